"""Whether to believe a run: checks, each with what was found and what mends it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tgi_bench.analysis.accelerator_of import Environment
from tgi_bench.analysis.rules import (
    Check,
    Failing,
    Rule,
    Seen,
    Verdict,
    apply,
    failed,
    limited,
    listed,
    passed,
    unmade,
)
from tgi_bench.analysis.run import DeploymentRecord, Origin
from tgi_bench.analysis.telemetry import TelemetrySummary
from tgi_bench.kinds.argument_rules import check_arguments, check_version
from tgi_bench.kinds.batch.excess import CLIENT_SHARE, MOST_CLIENT_SHARE
from tgi_bench.kinds.batch.metrics import StepFigures, TrialSummary
from tgi_bench.kinds.batch.scaling import usable
from tgi_bench.kinds.device_rules import telemetry_checks
from tgi_bench.kinds.failure_remedies import GO_ON, Failed, remedies
from tgi_bench.kinds.identity_rules import identity_checks
from tgi_bench.kinds.load.figures import LoadSummary
from tgi_bench.kinds.load.rules import load_checks
from tgi_bench.kinds.roofline_rule import check_roofline
from tgi_bench.load_observation import ClientFloor
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.plan.load_trial import LoadTrial
from tgi_bench.plan.plan import BatchTrial, Plan

LEAST_RUNS = 3
MOST_RANK_SPREAD = 0.10
MOST_SPREAD = 0.25
MOST_FIRST_RUN_EXCESS = 0.10
_UNREACHED = "shards"
"""A word of every reason why batches cannot be sent at all, and of no refusal for room."""

Trials = Sequence[TrialSummary]
Loads = Sequence[LoadSummary]


def judge(  # noqa: PLR0913 - a run's parts, as Run has them
    plan: Plan,
    origin: Origin,
    deployments: Sequence[DeploymentRecord],
    trials: Trials,
    finished: bool,
    *,
    loads: Loads = (),
    floors: Sequence[ClientFloor] = (),
    telemetry: Sequence[TelemetrySummary] = (),
    environment: Environment = (),
) -> Verdict:
    """Every check that this origin allows; one that cannot be made says so and passes.

    Those of the client come first. Checks of batches are left out where the plan has loads and no
    batches, those of loads where it has none. Those of devices are left out of a simulated run,
    which computes on none.
    """
    checks = [_ended(plan, (trials, loads), finished), _failed(plan, trials, loads)]
    if plan.trials or not plan.load_trials:
        checks.append(_runs(trials, origin))
    if origin is Origin.IMPORTED:
        published = (apply(_PUBLISHED_SPREAD, usable(trials)), _percentiles(trials))
        return Verdict.of((*checks, *published))
    if plan.trials or not plan.load_trials:
        checks.append(apply(_OUTPUT_LENGTH, trials))
        checks += [apply(rule, usable(trials)) for rule in _OF_FIGURES]
    if plan.load_trials:
        checks += load_checks(loads, floors)
    checks.append(check_roofline(environment, origin, deployments, trials, loads))
    if origin is Origin.MEASURED:
        checks += telemetry_checks(telemetry)
    checks += [*identity_checks(deployments), check_arguments(deployments)]
    return Verdict.of((*checks, check_version(deployments)))


def _ended(plan: Plan, summaries: tuple[Trials, Loads], finished: bool) -> Check:
    ended = {of.trial_id for of, _ in _known_ends(*summaries)}
    planned: list[BatchTrial | LoadTrial] = [*plan.trials, *plan.load_trials]
    missing = tuple(
        Failing(trial.trial_id, trial.trial_id, trial.deployment_id, "not finished")
        for trial in planned
        if trial.trial_id not in ended
    )
    name = "every trial ended"
    total = len(planned)
    if missing or not finished:
        what = listed([row.name for row in missing]) if missing else "the sweep itself"
        finding = f"{total - len(missing)} of {total} trials ended; not finished: {what}"
        return failed(name, finding, GO_ON, missing)
    return passed(name, f"{total} of {total}")


def _unmeasured(load: LoadSummary) -> bool:
    """Whether there were requests, and none of them in the part that is measured."""
    some = any(count for stage in load.stages for _, count in stage.by_part)
    return some and not any(stage.outcomes for stage in load.stages)


def _failed(plan: Plan, trials: Trials, loads: Loads) -> Check:
    """Running out of memory is a result; so is a refusal for want of room."""
    fine = (Outcome.OK, Outcome.OUT_OF_MEMORY, Outcome.SKIPPED, Outcome.REFUSED)
    ends = _known_ends(trials, loads)
    bad = [(of, end) for of, end in ends if end.outcome not in fine]
    name = "no trial failed"
    if bad:
        of_loads = {load.trial.trial_id for load in loads}
        unmeasured = {load.trial.trial_id for load in loads if _unmeasured(load)}
        attached = not any(d.launcher.started_by_us for d in plan.deployments)
        failing = tuple(
            Failing(
                of.trial_id,
                of.trial_id,
                of.deployment_id,
                f"{end.outcome.value.replace('_', ' ')}: {end.reason}",
            )
            for of, end in bad
        )
        how = [
            Failed(end, of.trial_id in of_loads, attached, of.trial_id in unmeasured)
            for of, end in bad
        ]
        finding = listed([f"{row.name} ({row.text})" for row in failing])
        return failed(name, finding, remedies(how), failing)
    if not usable(trials) and not any(_has_answers(load) for load in loads):
        started = any(t.runs for t in trials) or any(load.stages for load in loads)
        return failed(name, *_nothing([end for _, end in ends], started, bool(trials)))
    return passed(name, _ends([end for _, end in ends]))


def _known_ends(trials: Trials, loads: Loads) -> list[tuple[BatchTrial | LoadTrial, TrialEnd]]:
    """Each trial that is finished with its end, batches first."""
    of: list[TrialSummary | LoadSummary] = [*trials, *loads]
    return [(summary.trial, summary.end) for summary in of if summary.end is not None]


def _has_answers(load: LoadSummary) -> bool:
    return load.end is not None and any(stage.e2e is not None for stage in load.stages)


def _nothing(ends: Sequence[TrialEnd], started: bool, batches: bool) -> tuple[str, str]:
    """Finding and remedy of a run without any figure in which nothing failed."""
    if not ends:
        found = "no trial was finished" if started else "no trial was run"
        return found, GO_ON
    if all(end.outcome is Outcome.REFUSED and _UNREACHED in end.reason for end in ends):
        reasons = list(dict.fromkeys(end.reason for end in ends))
        remedy = (
            "name the socket of shard_rank 0 in server.sockets, or choose an engine and an image "
            "with gRPC shards: batches are sent to those"
        )
        return f"no trial has figures: {listed(reasons)}", remedy
    remedy = "choose smaller values for batches.batch_size or batches.sequence_length"
    if not batches:
        remedy = "see why requests failed, then raise load.duration"
    return "no trial has figures", remedy


def _ends(ends: Sequence[TrialEnd]) -> str:
    counts: dict[str, int] = {}
    for end in ends:
        word = end.outcome.value.replace("_", " ")
        counts[word] = counts.get(word, 0) + 1
    return ", ".join(f"{count} {word}" for word, count in counts.items())


def _runs(trials: Trials, origin: Origin) -> Check:
    published = "the published report has no more; do not compare by its figures alone"
    rule = replace(_RUNS, remedy=published) if origin is Origin.IMPORTED else _RUNS
    return apply(rule, usable(trials))


def _few_runs(trial: TrialSummary) -> Seen:
    return Seen(trial.runs < LEAST_RUNS, -trial.runs, f"{trial.runs}")


def _how_many(seen: Sequence[Seen]) -> str:
    counts = sorted({-round(one.measure) for one in seen})
    between = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{between} runs per trial"


def _output_length(trial: TrialSummary) -> Seen | None:
    """Every run of an OK trial has its one prefill and decode_length - 1 decode steps."""
    if trial.end is None or trial.end.outcome is not Outcome.OK:
        return None
    missing = trial.trial.runs - trial.runs
    return Seen(missing != 0, missing, f"{trial.runs} of {trial.trial.runs} runs")


def _prompt_length(trial: TrialSummary) -> Seen | None:
    asked = trial.trial.batch_size * trial.trial.sequence_length
    if trial.prompt_tokens is None:
        return None
    off = abs(trial.prompt_tokens - asked)
    return Seen(off > 0, off / asked, f"{trial.prompt_tokens} instead of {asked}")


def _relative_spread(summary: TrialSummary) -> float | None:
    """(highest - lowest) / mean of a run's decode total; of prefill where there is no decode."""
    figures = summary.decode_total or summary.prefill
    if figures is None or summary.runs < 2 or figures.latency.mean <= 0:
        return None
    latency = figures.latency
    return (latency.highest - latency.lowest) / latency.mean


def _percentiles(trials: Trials) -> Check:
    """Whether published percentiles can be those of sorted samples.

    Nearest rank gives p50 <= p90 <= p99 <= highest, p99 = highest below 100 samples, and with
    10 samples or more p90 = p99 only on ties. text-generation-benchmark indexes an unsorted
    vector, which breaks the first two in some rows and makes p90 = p99 in all.
    """
    name = "percentiles are of sorted samples"
    rows = [
        (t, step)
        for t in usable(trials)
        for step in (t.prefill, t.decode_token, t.decode_total)
        if step is not None
    ]
    given = [(t, s) for t, s in rows if s.latency.p50 is not None]
    if not given:
        return unmade(name, "the published report gives none")
    disordered = [f"{t.trial.trial_id}" for t, s in given if not _ordered(s)]
    tied = [t for t, s in given if t.runs >= 10 and s.latency.p90 == s.latency.p99]
    findings = []
    if disordered:
        of = f"{len(disordered)} of {len(given)} rows"
        rows_in = listed(list(dict.fromkeys(disordered)))
        findings.append(f"{of} have p90 below p50, or p99 below p90 or above Highest: {rows_in}")
    if tied and len(tied) == len(given):
        findings.append(
            f"p90 equals p99 in all {len(tied)} rows although each has 10 runs or more: they "
            "index a vector that was not sorted, as text-generation-benchmark does"
        )
    if findings:
        return failed(name, "; ".join(findings), "use Average, Lowest and Highest only")
    return passed(name, f"in order in all {len(given)} rows")


def _ordered(figures: StepFigures) -> bool:
    latency = figures.latency
    known = [v for v in (latency.p50, latency.p90, latency.p99, latency.highest) if v is not None]
    return known == sorted(known)


_RUNS = Rule(
    f"at least {LEAST_RUNS} runs",
    _few_runs,
    "no trial has figures",
    "raise batches.runs",
    "trials",
    _how_many,
)
_OUTPUT_LENGTH = Rule(
    "every run has the asked output length",
    _output_length,
    "no trial came to its end",
    "the server ended sequences early or steps are missing: see the observations in run.db, then "
    "measure again",
    "trials",
    lambda _: "one prefill and decode_length - 1 decode steps in each",
)
_PROMPT_LENGTH = Rule(
    "prompts have the asked length",
    _prompt_length,
    "no server told how many tokens a batch held (flash models do not)",
    "prompt throughput is off by that ratio: choose batches.sequence_length within "
    "max_input_tokens, or report the tokenizer as a bug",
    "trials",
    lambda seen: f"by the room that servers set aside for a batch, in {len(seen)} trials",
)
_CLIENT_SHARE: Rule[TrialSummary] = replace(
    limited(
        CLIENT_SHARE,
        (lambda t: t.client_share, MOST_CLIENT_SHARE),
        "no server sent the duration of a step (before 1.3.3)",
        "leave fewer processes on the client's machine, or raise batches.batch_size so that steps "
        "take longer",
    ),
    of_client=True,
)
_RANK_SPREAD: Rule[TrialSummary] = limited(
    f"ranks agree within {MOST_RANK_SPREAD:.0%}",
    (lambda t: t.rank_spread, MOST_RANK_SPREAD),
    "no step has durations of more than one rank",
    "look for a slower or shared GPU among the ranks, then measure again",
)
_SPREAD = limited(
    f"runs of a trial agree within {MOST_SPREAD:.0%}",
    (_relative_spread, MOST_SPREAD),
    "no trial has two runs",
    "raise batches.warmups, keep the machine quiet, or raise batches.runs and use p50",
)
_PUBLISHED_SPREAD = replace(
    _SPREAD, remedy="compare by Lowest, or measure these trials again with more warm-ups"
)
_WARM_UP: Rule[TrialSummary] = limited(
    "the first run is no slower than the others",
    (lambda t: t.first_run_excess, MOST_FIRST_RUN_EXCESS),
    "no trial has three runs",
    "raise batches.warmups",
)
_OF_FIGURES = (_PROMPT_LENGTH, _CLIENT_SHARE, _RANK_SPREAD, _SPREAD, _WARM_UP)
"""What is asked of trials that have figures."""

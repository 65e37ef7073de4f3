"""Whether to believe a run: checks, each with what was found and what mends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tgi_bench.analysis.arguments import check_arguments, check_version
from tgi_bench.analysis.failure_remedies import GO_ON, Failed, remedies
from tgi_bench.analysis.load_rows import listed as _listed
from tgi_bench.analysis.load_rows import unchecked as _unchecked
from tgi_bench.analysis.load_run import LoadSummary
from tgi_bench.analysis.load_verdict import load_checks
from tgi_bench.analysis.run import (
    Check,
    DeploymentRecord,
    Origin,
    StepFigures,
    TrialSummary,
    Verdict,
)
from tgi_bench.analysis.scaling import usable
from tgi_bench.analysis.telemetry import TelemetrySummary
from tgi_bench.analysis.telemetry_checks import telemetry_checks
from tgi_bench.observation import ClientFloor, Outcome, TrialEnd
from tgi_bench.plan.plan import LauncherKind, Plan

LEAST_RUNS = 3
MOST_CLIENT_SHARE = 0.20
MOST_RANK_SPREAD = 0.10
MOST_SPREAD = 0.25
MOST_FIRST_RUN_EXCESS = 0.10
CLIENT_SHARE = f"client and transport take at most {MOST_CLIENT_SHARE:.0%} of a step"
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
) -> Verdict:
    """Every check that this origin allows; one that cannot be made says so and passes.

    Checks of batches are left out where the plan has loads and no batches, those of loads where
    it has none. Those of devices are left out of a simulated run, which computes on none.
    """
    checks = [_ended(plan, (trials, loads), finished), _failed(plan, trials, loads)]
    if plan.trials or not plan.load_trials:
        checks.append(_runs(trials, origin))
    if origin is Origin.IMPORTED:
        return Verdict((*checks, _spread(trials, origin), _percentiles(trials)))
    if plan.trials or not plan.load_trials:
        checks += [
            _output_length(trials),
            _prompt_length(trials),
            _client_share(trials),
            _rank_spread(trials),
            _spread(trials, origin),
            _warm_up(trials),
        ]
    if plan.load_trials:
        checks += load_checks(loads, floors)
    if origin is Origin.MEASURED:
        checks += telemetry_checks(telemetry)
    return Verdict((*checks, check_arguments(deployments), check_version(deployments)))


def _ended(plan: Plan, summaries: tuple[Trials, Loads], finished: bool) -> Check:
    ended = dict(_known_ends(*summaries))
    planned = [t.trial_id for t in plan.trials] + [t.trial_id for t in plan.load_trials]
    missing = [trial_id for trial_id in planned if trial_id not in ended]
    name = "every trial ended"
    total = len(planned)
    if missing or not finished:
        what = _listed(missing) if missing else "the sweep itself"
        finding = f"{total - len(missing)} of {total} trials ended; not finished: {what}"
        return Check(name, False, finding, GO_ON)
    return Check(name, True, f"{total} of {total}", "")


def _failed(plan: Plan, trials: Trials, loads: Loads) -> Check:
    """Running out of memory is a result; so is a refusal for want of room."""
    fine = (Outcome.OK, Outcome.OUT_OF_MEMORY, Outcome.SKIPPED, Outcome.REFUSED)
    ends = _known_ends(trials, loads)
    failed = [(trial_id, end) for trial_id, end in ends if end.outcome not in fine]
    name = "no trial failed"
    if failed:
        of_loads = {load.trial.trial_id for load in loads}
        attached = all(d.launcher is LauncherKind.ATTACH for d in plan.deployments)
        said = [f"{i} ({end.outcome.value.replace('_', ' ')}: {end.reason})" for i, end in failed]
        how = [Failed(end, trial_id in of_loads, attached) for trial_id, end in failed]
        return Check(name, False, _listed(said), remedies(how))
    if not usable(trials) and not any(_has_answers(load) for load in loads):
        started = any(t.runs for t in trials) or any(load.stages for load in loads)
        return Check(name, False, *_nothing([end for _, end in ends], started, bool(trials)))
    return Check(name, True, _ends([end for _, end in ends]), "")


def _known_ends(trials: Trials, loads: Loads) -> list[tuple[str, TrialEnd]]:
    """Trial id and end of each trial that is finished, batches first."""
    ends = [(trial.trial.trial_id, trial.end) for trial in trials if trial.end is not None]
    return ends + [(load.trial.trial_id, load.end) for load in loads if load.end is not None]


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
        return f"no trial has figures: {_listed(reasons)}", remedy
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
    name = f"at least {LEAST_RUNS} runs"
    few = [f"{t.trial.trial_id} ({t.runs})" for t in usable(trials) if t.runs < LEAST_RUNS]
    if few:
        published = "the published report has no more; do not compare by its figures alone"
        remedy = published if origin is Origin.IMPORTED else "raise batches.runs"
        return Check(name, False, _listed(few), remedy)
    counts = sorted({t.runs for t in usable(trials)})
    return Check(name, True, _range([float(c) for c in counts], "{:.0f} runs per trial"), "")


def _output_length(trials: Trials) -> Check:
    """Every run of an OK trial has its one prefill and decode_length - 1 decode steps."""
    name = "every run has the asked output length"
    short = [
        f"{t.trial.trial_id} ({t.runs} of {t.trial.runs} runs)"
        for t in trials
        if t.end is not None and t.end.outcome is Outcome.OK and t.runs != t.trial.runs
    ]
    if short:
        remedy = (
            "the server ended sequences early or steps are missing: see the observations in "
            "run.db, then measure again"
        )
        return Check(name, False, _listed(short), remedy)
    return Check(name, True, "one prefill and decode_length - 1 decode steps in each", "")


def _prompt_length(trials: Trials) -> Check:
    name = "prompts have the asked length"
    said = [t for t in usable(trials) if t.prompt_tokens is not None]
    if not said:
        return _unchecked(name, "no server told how many tokens a batch held (flash models do not)")
    wrong = [
        f"{t.trial.trial_id} ({t.prompt_tokens} instead of {asked})"
        for t in said
        if t.prompt_tokens != (asked := t.trial.batch_size * t.trial.sequence_length)
    ]
    if wrong:
        remedy = (
            "prompt throughput is off by that ratio: choose batches.sequence_length within "
            "max_input_tokens, or report the tokenizer as a bug"
        )
        return Check(name, False, _listed(wrong), remedy)
    return Check(
        name, True, f"by the room that servers set aside for a batch, in {len(said)} trials", ""
    )


def _client_share(trials: Trials) -> Check:
    return _limited(
        trials,
        CLIENT_SHARE,
        (lambda t: t.client_share, MOST_CLIENT_SHARE),
        "no server sent the duration of a step (before 1.3.3)",
        "leave fewer processes on the client's machine, or raise batches.batch_size so that "
        "steps take longer",
    )


def _rank_spread(trials: Trials) -> Check:
    return _limited(
        trials,
        f"ranks agree within {MOST_RANK_SPREAD:.0%}",
        (lambda t: t.rank_spread, MOST_RANK_SPREAD),
        "no step has durations of more than one rank",
        "look for a slower or shared GPU among the ranks, then measure again",
    )


def _spread(trials: Trials, origin: Origin) -> Check:
    """(highest - lowest) / mean of a run's decode total; of prefill where there is no decode."""
    remedy = "raise batches.warmups, keep the machine quiet, or raise batches.runs and use p50"
    if origin is Origin.IMPORTED:
        remedy = "compare by Lowest, or measure these trials again with more warm-ups"
    return _limited(
        trials,
        f"runs of a trial agree within {MOST_SPREAD:.0%}",
        (_relative_spread, MOST_SPREAD),
        "no trial has two runs",
        remedy,
    )


def _relative_spread(summary: TrialSummary) -> float | None:
    figures = summary.decode_total or summary.prefill
    if figures is None or summary.runs < 2 or figures.latency.mean <= 0:
        return None
    latency = figures.latency
    return (latency.highest - latency.lowest) / latency.mean


def _warm_up(trials: Trials) -> Check:
    return _limited(
        trials,
        "the first run is no slower than the others",
        (lambda t: t.first_run_excess, MOST_FIRST_RUN_EXCESS),
        "no trial has three runs",
        "raise batches.warmups",
    )


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
        return _unchecked(name, "the published report gives none")
    disordered = [f"{t.trial.trial_id}" for t, s in given if not _ordered(s)]
    tied = [t for t, s in given if t.runs >= 10 and s.latency.p90 == s.latency.p99]
    findings = []
    if disordered:
        of = f"{len(disordered)} of {len(given)} rows"
        rows_in = _listed(list(dict.fromkeys(disordered)))
        findings.append(f"{of} have p90 below p50, or p99 below p90 or above Highest: {rows_in}")
    if tied and len(tied) == len(given):
        findings.append(
            f"p90 equals p99 in all {len(tied)} rows although each has 10 runs or more: they "
            "index a vector that was not sorted, as text-generation-benchmark does"
        )
    if findings:
        return Check(name, False, "; ".join(findings), "use Average, Lowest and Highest only")
    return Check(name, True, f"in order in all {len(given)} rows", "")


def _ordered(figures: StepFigures) -> bool:
    latency = figures.latency
    known = [v for v in (latency.p50, latency.p90, latency.p99, latency.highest) if v is not None]
    return known == sorted(known)


def _limited(
    trials: Trials,
    name: str,
    limit: tuple[Callable[[TrialSummary], float | None], float],
    unchecked: str,
    remedy: str,
) -> Check:
    """A figure of every usable trial against its upper limit; limit: (figure, most)."""
    figure, most = limit
    values = {t.trial.trial_id: v for t in usable(trials) if (v := figure(t)) is not None}
    if not values:
        return _unchecked(name, unchecked)
    over = sorted((i for i in values if values[i] > most), key=lambda i: -values[i])
    if over:
        worst = [f"{i} ({values[i]:.1%})" for i in over]
        return Check(name, False, f"{len(over)} of {len(values)} trials: {_listed(worst)}", remedy)
    return Check(name, True, f"at most {max(0.0, *values.values()):.1%}", "")


def _range(values: Sequence[float], form: str) -> str:
    if not values:
        return "no trial has figures"
    low, high = form.format(values[0]), form.format(values[-1])
    return low if low == high else f"{form.split(' ')[0].format(values[0])} to {high}"

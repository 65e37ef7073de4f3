"""Whether to believe the batches of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tgi_bench.analysis.rules import (
    Check,
    Rule,
    Seen,
    apply,
    failed,
    limited,
    listed,
    passed,
    unmade,
)
from tgi_bench.analysis.run import Origin, Run
from tgi_bench.kinds.batch.excess import CLIENT_SHARE, MOST_CLIENT_SHARE
from tgi_bench.kinds.batch.metrics import StepFigures, TrialSummary
from tgi_bench.kinds.batch.scaling import usable
from tgi_bench.observation import Outcome

LEAST_RUNS = 3
MOST_RANK_SPREAD = 0.10
MOST_SPREAD = 0.25
MOST_FIRST_RUN_EXCESS = 0.10

Trials = Sequence[TrialSummary]


def batch_checks(run: Run) -> tuple[Check, ...]:
    """Of a published report only what it lets be checked."""
    trials = run.of(TrialSummary)
    if run.origin is Origin.IMPORTED:
        rules = (replace(RUNS, remedy=_PUBLISHED_RUNS), _PUBLISHED_SPREAD)
        return (*(apply(rule, usable(trials)) for rule in rules), _percentiles(trials))
    return (
        apply(RUNS, usable(trials)),
        apply(_OUTPUT_LENGTH, trials),
        *(apply(rule, usable(trials)) for rule in RULES),
    )


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


RUNS = Rule(
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
_PUBLISHED_RUNS = "the published report has no more; do not compare by its figures alone"
_PUBLISHED_SPREAD = replace(
    _SPREAD, remedy="compare by Lowest, or measure these trials again with more warm-ups"
)
_WARM_UP: Rule[TrialSummary] = limited(
    "the first run is no slower than the others",
    (lambda t: t.first_run_excess, MOST_FIRST_RUN_EXCESS),
    "no trial has three runs",
    "raise batches.warmups",
)
RULES: tuple[Rule[TrialSummary], ...] = (
    _PROMPT_LENGTH,
    _CLIENT_SHARE,
    _RANK_SPREAD,
    _SPREAD,
    _WARM_UP,
)
"""What is asked of trials that have figures."""

"""The figures of one trial, from its observations or from somebody's published table."""

from __future__ import annotations

from collections.abc import Sequence

from tgi_bench.analysis.samples import Distribution, distribution
from tgi_bench.kinds.batch import metrics
from tgi_bench.kinds.batch.metrics import Rates, StepFigures, TrialSummary
from tgi_bench.observation import PublishedFigures, StepObservation, TrialEnd
from tgi_bench.plan.plan import BatchTrial


def summarise(
    trial: BatchTrial, observations: Sequence[StepObservation], end: TrialEnd | None
) -> TrialSummary:
    """The figures of a trial that was driven; end is None where it is not finished."""
    runs = metrics.counted_runs(trial, observations)
    prefills = metrics.prefill_latencies_ns(runs)
    totals = metrics.decode_totals_ns(runs)
    return TrialSummary(
        trial=trial,
        end=end,
        runs=len(runs),
        prefill=_figures(prefills, metrics.prefill_rates(trial, prefills)),
        decode_token=_figures(metrics.decode_step_latencies_ns(runs), None),
        decode_total=_figures(totals, metrics.decode_rates(trial, totals)),
        client_share=metrics.client_share(runs),
        rank_spread=metrics.rank_spread(runs),
        first_run_excess=metrics.first_run_excess(runs),
        prompt_tokens=_prompt_tokens(trial, runs),
    )


def summarise_published(
    trial: BatchTrial, figures: Sequence[PublishedFigures], end: TrialEnd | None, runs: int
) -> TrialSummary:
    """The same of a published report, which gives figures over `runs` runs and no samples."""
    by_step = {row.step: _published(row, runs) for row in figures}
    return TrialSummary(
        trial=trial,
        end=end,
        runs=runs if by_step else 0,
        prefill=by_step.get("prefill"),
        decode_token=by_step.get("decode_token"),
        decode_total=by_step.get("decode_total"),
        client_share=None,
        rank_spread=None,
        first_run_excess=None,
        prompt_tokens=None,
    )


def _figures(samples: Sequence[int], rates: Rates | None) -> StepFigures | None:
    latency = distribution(samples)
    return None if latency is None else StepFigures(latency, rates)


def _published(row: PublishedFigures, runs: int) -> StepFigures:
    latency = Distribution(
        count=runs,
        mean=row.mean_ns,
        lowest=row.lowest_ns,
        highest=row.highest_ns,
        p50=row.p50_ns,
        p90=row.p90_ns,
        p99=row.p99_ns,
    )
    mean, lowest, highest = (
        row.mean_tokens_per_s,
        row.lowest_tokens_per_s,
        row.highest_tokens_per_s,
    )
    if mean is None or lowest is None or highest is None:
        return StepFigures(latency, None)
    return StepFigures(latency, Rates(mean, lowest, highest))


def _prompt_tokens(trial: BatchTrial, runs: metrics.Runs) -> int | None:
    """What the server said a batch held after prefill: the value farthest from the asked one."""
    said = [run[0].prompt_tokens for run in runs]
    asked = trial.batch_size * trial.sequence_length
    return max((n for n in said if n is not None), key=lambda n: abs(n - asked), default=None)

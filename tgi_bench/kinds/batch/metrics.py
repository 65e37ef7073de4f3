"""The formulas of batches, once: from step observations to the figures of a trial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tgi_bench.analysis.samples import METHOD, Distribution, distribution
from tgi_bench.kinds.batch import metrics
from tgi_bench.observation import Outcome, Phase, PublishedFigures, StepObservation, TrialEnd
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


@dataclass(frozen=True, slots=True)
class Rates:
    """Throughput in tokens/s (prompt tokens/s for prefill).

    mean: all tokens over all time (measured), or as printed (imported). lowest, highest:
    of single runs.
    """

    mean: float
    lowest: float
    highest: float


@dataclass(frozen=True, slots=True)
class StepFigures:
    """One step's latency in ns and its throughput; None where it does not have one."""

    latency: Distribution
    throughput: Rates | None


@dataclass(frozen=True, slots=True)
class TrialSummary:
    """The figures of one trial over its runs, warm-ups left out.

    end: None where the trial is not finished. runs: runs with every step OK. Each figure is
    None where no run gives it. decode_token pools the decode steps of all runs;
    decode_total is one value a run and carries the decode throughput.
    client_share: median over steps of what of the latency is neither the slowest rank's total_ns
    nor a call that computes nothing (`metrics.client_share`);
    rank_spread: median over steps of (slowest - fastest rank's total_ns) / slowest;
    both None where the server sends no durations (rank_spread: or has one rank).
    first_run_excess: how far the first run is above the slowest other one, over the median of
    the others; None with fewer than 3 runs.
    prompt_tokens: of one batch, as its observation has them; of the runs the one farthest from
    what was asked; None where no reply tells.
    """

    trial: BatchTrial
    end: TrialEnd | None
    runs: int
    prefill: StepFigures | None
    decode_token: StepFigures | None
    decode_total: StepFigures | None
    client_share: float | None
    rank_spread: float | None
    first_run_excess: float | None
    prompt_tokens: int | None

    @property
    def name(self) -> str:
        """As checks show it."""
        return self.trial.trial_id

    @property
    def trial_id(self) -> str:
        """Of its trial."""
        return self.trial.trial_id

    @property
    def deployment_id(self) -> str:
        """Of its server."""
        return self.trial.deployment_id


Runs = Sequence[Sequence[StepObservation]]
"""Whole runs: the prefill step first, then the decode steps in order."""

NS_PER_S = 1_000_000_000

CLIENT_TERM = "client and transport of a step"
"""The one of these that not every run has."""

DEFINITIONS: tuple[tuple[str, str], ...] = (
    (
        "latency",
        "from just before the first rank's call to when the slowest rank answered, on one "
        "monotonic clock of the client",
    ),
    ("Prefill", "the latency of one Prefill call on the whole batch; it emits the first token"),
    (
        "Decode (token)",
        "the latency of one Decode call on the whole batch, each call timed by itself; the "
        "decode steps of all runs are pooled",
    ),
    (
        "Decode (total)",
        "the sum of a run's decode step latencies; a run has decode_length - 1 decode steps",
    ),
    (
        "prefill throughput",
        "batch size x sequence length / prefill latency, in prompt tokens per second",
    ),
    ("decode throughput", "batch size x decode steps / Decode (total)"),
    ("Average of a latency", "the arithmetic mean of the samples"),
    (
        "Average of a throughput",
        "all tokens of all runs over all their time; Lowest and Highest are those of single runs",
    ),
    (
        "p50, p90, p99",
        f"{METHOD}: with fewer than 10 samples p90 is the highest one, with fewer than 100 p99 is",
    ),
    (
        "runs of a trial agree",
        "(highest - lowest) / mean of the trial's Decode (total) is within the limit; of Prefill "
        "where there is no decode step",
    ),
    (
        CLIENT_TERM,
        "(latency - the slowest rank's own duration - Health) / latency, the median over steps, "
        "not below 0; Health is what a call that computes nothing took to all ranks just before "
        "the run, less what the client waited for a core in it, and 0 where it was not asked",
    ),
    ("speed-up", "the mean latency at the smallest num_shard / that at this num_shard"),
    ("efficiency", "speed-up x the smallest num_shard / this num_shard"),
    (
        "OOM",
        "out of memory, at this batch size or at a smaller one of the same shape (then skipped)",
    ),
)

HOST_MEMORY: tuple[tuple[str, str], ...] = (
    (
        "host OOM",
        "the memory limit of the server's container or host was reached, as the kernel or the "
        "container engine says; it tells nothing of the device, so larger batches are tried",
    ),
)
"""Beside DEFINITIONS, where a trial ended so."""

PUBLISHED_DIFFERENCES: tuple[tuple[str, str], ...] = (
    ("Decode (token)", "Decode (total) / decode steps of a run: no step was timed by itself"),
    ("Average of a throughput", "the mean of the runs' rates"),
    (
        "prefill throughput",
        "before 2.4.1 it is batch size / latency: sequences per second, here multiplied by the "
        "sequence length",
    ),
    ("p50, p90, p99", "elements of a vector that need not be sorted"),
    ("OOM", "stands where the tool printed NaN, for no runs: inferred"),
)
"""Where text-generation-benchmark, whose tables can be imported, differs: by the same terms."""


def counted_runs(
    trial: BatchTrial, observations: Sequence[StepObservation]
) -> tuple[tuple[StepObservation, ...], ...]:
    """The runs that figures are made of, by run index: no warm-ups, every step OK, none missing.

    A run counts where its steps are exactly one Prefill and decode_length - 1 Decodes.
    """
    by_run: dict[int, list[StepObservation]] = {}
    for seen in observations:
        if not seen.warmup:
            by_run.setdefault(seen.run_index, []).append(seen)
    expected = list(range(trial.decode_length))
    runs = (tuple(sorted(by_run[i], key=lambda s: s.step_index)) for i in sorted(by_run))
    return tuple(
        run
        for run in runs
        if [s.step_index for s in run] == expected
        and all(s.outcome is Outcome.OK for s in run)
        and [s.phase for s in run] == [Phase.PREFILL] + [Phase.DECODE] * (len(run) - 1)
    )


def prefill_latencies_ns(runs: Runs) -> tuple[int, ...]:
    """One per run."""
    return tuple(run[0].latency_ns for run in runs)


def decode_step_latencies_ns(runs: Runs) -> tuple[int, ...]:
    """decode_length - 1 per run, pooled; () where decode_length is 1."""
    return tuple(step.latency_ns for run in runs for step in run[1:])


def decode_totals_ns(runs: Runs) -> tuple[int, ...]:
    """One per run: the sum of its decode step latencies; () where decode_length is 1."""
    return tuple(sum(step.latency_ns for step in run[1:]) for run in runs if len(run) > 1)


def rates(tokens: int, latencies_ns: Sequence[int]) -> Rates | None:
    """Throughput of runs of `tokens` tokens each, in tokens/s.

    mean = n tokens / sum of latencies. None without a run, or where a latency is not positive.
    """
    if not latencies_ns or min(latencies_ns) <= 0:
        return None
    return Rates(
        mean=tokens * len(latencies_ns) * NS_PER_S / sum(latencies_ns),
        lowest=tokens * NS_PER_S / max(latencies_ns),
        highest=tokens * NS_PER_S / min(latencies_ns),
    )


def prefill_rates(trial: BatchTrial, latencies_ns: Sequence[int]) -> Rates | None:
    """Batch size x sequence length / latency, in prompt tokens/s."""
    return rates(trial.batch_size * trial.sequence_length, latencies_ns)


def decode_rates(trial: BatchTrial, totals_ns: Sequence[int]) -> Rates | None:
    """Batch size x decode steps / decode total, in tokens/s."""
    return rates(trial.batch_size * (trial.decode_length - 1), totals_ns)


def client_share(runs: Runs) -> float | None:
    """Median over steps of max(0, latency - the slowest rank's total_ns - Health) / latency.

    Health: what a call that computes nothing took to all ranks just before the run; 0 where it
    was not asked. None where a rank of every step sent no duration (before 1.3.3).
    """
    shares = [
        max(0, step.latency_ns - max(totals) - (run[0].health_ns or 0)) / step.latency_ns
        for run in runs
        for step in run
        if (totals := _totals_ns(step)) is not None and step.latency_ns > 0
    ]
    return median(shares) if shares else None


def rank_spread(runs: Runs) -> float | None:
    """Median over steps of (slowest - fastest rank's total_ns) / slowest.

    None where there is one rank, or no durations.
    """
    spreads = [
        (max(totals) - min(totals)) / max(totals)
        for run in runs
        for step in run
        if (totals := _totals_ns(step)) is not None and len(totals) > 1 and max(totals) > 0
    ]
    return median(spreads) if spreads else None


def first_run_excess(runs: Runs) -> float | None:
    """(first run - slowest other run) / median of the others, over the runs' summed latencies.

    Above 0 where the first run was the slowest. None with fewer than 3 runs.
    """
    first, *others = [sum(step.latency_ns for step in run) for run in runs] or [0]
    if len(others) < 2 or median(others) <= 0:
        return None
    return (first - max(others)) / median(others)


def _totals_ns(step: StepObservation) -> tuple[int, ...] | None:
    """total_ns of every rank; None where one of them, or all, did not say."""
    totals = tuple(rank.total_ns for rank in step.ranks if rank.total_ns is not None)
    return totals if totals and len(totals) == len(step.ranks) else None

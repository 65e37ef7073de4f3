"""Task runs to figures, and the largest batch size that fits: doubling, then bisection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import median

from tgi_bench.analysis.samples import Distribution, distribution
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.task_observation import DirectFacts, TaskRun
from tgi_bench.trials.direct import DirectModel, FindBatch, GenerateTask, TaskTrial

TASK_DEFINITIONS = (
    (
        "sec",
        "wall time of one run: of generate one call, from before its prefill step until its last "
        "token is on the host; of summarize every call and the text between them. The device is "
        "synchronised at both ends",
    ),
    (
        "tokens/sec",
        "new tokens / sec, over all runs and all sequences of the batch; tokens are the "
        "tokenizer's, and every sequence has exactly the new tokens that were asked",
    ),
    (
        "msec/token",
        "1000 / (tokens/sec) = sec / (batch size x new tokens): spread over the batch, so no "
        "step's latency",
    ),
    (
        "msec/step",
        "mean time of one decode step of the whole batch, the device synchronised after each: "
        "what a reader waits for each token after the first",
    ),
    ("Prefill", "the step that reads all prompts of the batch and gives each its first new token"),
    (
        "Peak memory",
        "the most memory that one device held in any run, weights and cache included, in GiB of "
        "2^30 bytes; of a CPU the resident memory of the process",
    ),
    (
        "oom",
        "memory ran out, at this batch size or already at a smaller one; every attempt is made "
        "in a process that is ended after it",
    ),
    ("Percentiles", "nearest rank on sorted samples, pooled over all runs"),
    ("-", "undefined, or not known"),
)


def summarise_task(trial: TaskTrial, runs: Sequence[TaskRun], end: TrialEnd | None) -> TaskSummary:
    """The figures of a trial. runs: of its last attempt, by probe and run."""
    figures = [
        _figures(trial, list(group), end) for _, group in groupby(runs, key=lambda run: run.probe)
    ]
    if not figures and trial.batch_size is not None:
        figures = [_figures(trial, (), end)]
    searched = isinstance(trial.task, GenerateTask) and trial.task.find is not None
    probes = [
        BatchProbe(f.batch_size, f.end.outcome is Outcome.OK)
        for f in figures
        if f.end is not None and (f.end.outcome is Outcome.OK or f.end.outcome.memory_ran_out)
    ]
    return TaskSummary(
        trial=trial,
        end=end,
        figures=tuple(sorted(figures, key=lambda f: f.batch_size)),
        largest=bracket(probes) if searched and probes else None,
    )


def _figures(trial: TaskTrial, runs: Sequence[TaskRun], end: TrialEnd | None) -> TaskFigures:
    good = [run for run in runs if run.outcome is Outcome.OK and not run.warmup]
    walls = [run.ended_ns - run.began_ns for run in good]
    calls = [call for run in good for call in run.calls]
    total_ns = sum(walls)
    tokens = sum(call.new_tokens for call in calls)
    return TaskFigures(
        batch_size=runs[0].batch_size if runs else trial.batch_size or 0,
        end=_end_of(trial, runs, end),
        runs=len(good),
        run=distribution(walls),
        prefill=distribution([c.step_ends_ns[0] - c.began_ns for c in calls if c.step_ends_ns]),
        decode_step=distribution([b - a for c in calls for a, b in pairwise(c.step_ends_ns)]),
        new_tokens_per_s=tokens * 1e9 / total_ns if total_ns > 0 and tokens else None,
        prompt_tokens=_same([sum(c.prompt_tokens for c in run.calls) for run in good]),
        new_tokens=_same([sum(c.new_tokens for c in run.calls) for run in good]),
        calls=_same([len(run.calls) for run in good]),
        peak_bytes=max((r.peak_bytes for r in good if r.peak_bytes is not None), default=None),
        first_run_excess=_first_run_excess(walls),
        windows=tuple((run.began_ns, run.ended_ns) for run in good),
    )


def _end_of(trial: TaskTrial, runs: Sequence[TaskRun], end: TrialEnd | None) -> TrialEnd | None:
    """How one batch size ended: of a search its own last run tells, else the trial's end does."""
    if trial.batch_size is not None:
        return end
    last = runs[-1]
    if last.outcome is not Outcome.OK:
        return TrialEnd(last.outcome, last.reason)
    whole = len(runs) == trial.warmups + trial.runs
    return TrialEnd(Outcome.OK, "") if whole else None


def _same(values: Sequence[int]) -> int | None:
    """The value that all have; None where they differ or there is none."""
    return values[0] if values and len(set(values)) == 1 else None


def _first_run_excess(walls: Sequence[int]) -> float | None:
    if len(walls) < 3:
        return None
    others = walls[1:]
    return (walls[0] - max(others)) / median(others)


@dataclass(frozen=True, slots=True)
class BatchProbe:
    """A batch size that was tried, and whether it fitted."""

    batch_size: int
    fits: bool


@dataclass(frozen=True, slots=True)
class LargestBatch:
    """The answer of a search.

    fits: the largest batch size that fitted; None where none did. too_large: the smallest that
    did not; None where every one fitted, and then the true one may be larger.
    """

    fits: int | None
    too_large: int | None


def next_batch(find: FindBatch, probes: Sequence[BatchProbe]) -> int | LargestBatch:
    """The batch size to try next, or the answer.

    From `start` doubled up to `highest`; where `start` does not fit, halved down to 1. Between the
    largest that fits and the smallest that does not, the middle, until they are within the
    tolerance.
    """
    found = bracket(probes)
    match found.fits, found.too_large:
        case None, None:
            return find.start
        case int(low), None:
            return found if low >= find.highest else min(2 * low, find.highest)
        case None, int(high):
            return found if high == 1 else high // 2
        case int(low), int(high) if high - low > max(1, int(find.tolerance * low)):
            return (low + high) // 2
        case _:
            return found


def bracket(probes: Sequence[BatchProbe]) -> LargestBatch:
    """The largest batch size that fitted below the smallest that did not, and that one."""
    high = min((p.batch_size for p in probes if not p.fits), default=None)
    fitting = [p.batch_size for p in probes if p.fits and (high is None or p.batch_size < high)]
    return LargestBatch(max(fitting, default=None), high)


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """The runs of one batch size, or of one document; warm-ups are left out.

    end: how this batch size ended; None where it is not finished. runs: runs with outcome OK.
    run: wall time of a run in ns. prefill, decode_step: of every call of every run, in ns.
    new_tokens_per_s: new tokens of all runs / their wall time. ns_per_new_token: its inverse,
    spread over the batch. new_tokens, prompt_tokens, calls: of one run; None where runs differ.
    peak_bytes: the highest of all runs. first_run_excess: how far the first run is above the
    slowest other one, over the median of the others; None with fewer than 3 runs.
    windows: begin and end of each run, in ns of the monotonic clock.
    """

    batch_size: int
    end: TrialEnd | None
    runs: int
    run: Distribution | None
    prefill: Distribution | None
    decode_step: Distribution | None
    new_tokens_per_s: float | None
    prompt_tokens: int | None
    new_tokens: int | None
    calls: int | None
    peak_bytes: int | None
    first_run_excess: float | None
    windows: tuple[tuple[int, int], ...] = ()

    @property
    def ns_per_new_token(self) -> float | None:
        """Wall time / new tokens of all sequences: no step's latency."""
        return None if self.new_tokens_per_s is None else 1e9 / self.new_tokens_per_s


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """One task trial.

    end: None where it is not finished. figures: one for each batch size that was tried, ascending.
    largest: what a search found; None of any other trial, and of a search without a probe.
    """

    trial: TaskTrial
    end: TrialEnd | None
    figures: tuple[TaskFigures, ...]
    largest: LargestBatch | None

    @property
    def trial_id(self) -> str:
        """Of its trial."""
        return self.trial.trial_id

    @property
    def deployment_id(self) -> None:
        """None: there is no server."""
        return None


@dataclass(frozen=True, slots=True)
class DirectRecord:
    """One model and what its load came to; facts is None where none was good."""

    model: DirectModel
    facts: DirectFacts | None
    failure: str
    """Why its last load failed; empty where it did not."""

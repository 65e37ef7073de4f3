"""What the reports see of direct mode: figures of each batch size and of each summary."""

from __future__ import annotations

from dataclasses import dataclass

from tgi_bench.analysis.samples import Distribution
from tgi_bench.kinds.direct.search import LargestBatch
from tgi_bench.observation import TrialEnd
from tgi_bench.task_observation import DirectFacts
from tgi_bench.trials.direct import DirectModel, TaskTrial


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

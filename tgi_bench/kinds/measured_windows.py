"""Which times and tokens of a trial its energy is of."""

from __future__ import annotations

from collections.abc import Sequence

from tgi_bench.analysis.telemetry import MeasuredWindows
from tgi_bench.kinds.batch.metrics import NS_PER_S, counted_runs
from tgi_bench.kinds.direct.figures import TaskSummary
from tgi_bench.kinds.load.figures import LoadSummary
from tgi_bench.observation import StepObservation
from tgi_bench.plan.plan import BatchTrial


def measured_batches(trial: BatchTrial, observations: Sequence[StepObservation]) -> MeasuredWindows:
    """Each run from its first send to its last reply; batch size x decode_length tokens a run."""
    runs = counted_runs(trial, observations)
    windows = tuple((run[0].sent_ns, run[-1].ended_ns) for run in runs)
    tokens = trial.batch_size * trial.decode_length * len(runs)
    return MeasuredWindows(trial.trial_id, windows, float(tokens) or None)


def measured_stages(load: LoadSummary) -> tuple[MeasuredWindows, ...]:
    """Each stage's window, and the new tokens that arrived in it."""
    found = []
    searched = load.trial.find is not None
    for summary in load.stages:
        window, rate = summary.window, summary.output_tokens_per_s
        seconds = (window.end_ns - window.begin_ns) / NS_PER_S
        windows = ((window.begin_ns, window.end_ns),) if seconds > 0 else ()
        tokens = None if rate is None else rate.value * seconds
        part = f"step {summary.stage.index + 1}" if searched else ""
        found.append(MeasuredWindows(load.trial.trial_id, windows, tokens, part))
    return tuple(found)


def measured_tasks(summary: TaskSummary) -> tuple[MeasuredWindows, ...]:
    """The runs of each batch size, or of the document."""
    several = len(summary.figures) > 1
    return tuple(
        MeasuredWindows(
            trial_id=summary.trial.trial_id,
            windows=figures.windows,
            tokens=float(figures.new_tokens * len(figures.windows)) if figures.new_tokens else None,
            part=f"batch size {figures.batch_size}" if several else "",
        )
        for figures in summary.figures
    )

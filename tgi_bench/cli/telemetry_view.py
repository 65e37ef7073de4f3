"""What a run file sampled of devices, as the reports see it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tgi_bench.analysis.telemetry import MeasuredWindows, TelemetrySummary, summarise_telemetry
from tgi_bench.devices.observation import Telemetry
from tgi_bench.inert import all_on_one_line, on_one_line
from tgi_bench.kinds.batch.metrics import TrialSummary
from tgi_bench.kinds.direct.figures import TaskSummary
from tgi_bench.kinds.load.figures import LoadSummary
from tgi_bench.kinds.measured_windows import (
    measured_batches,
    measured_stages,
    measured_tasks,
)
from tgi_bench.observation import StepObservation
from tgi_bench.record.store import RunStore


def telemetry_of(
    store: RunStore,
    trials: Sequence[TrialSummary],
    loads: Sequence[LoadSummary],
    tasks: Sequence[TaskSummary],
) -> tuple[TelemetrySummary, ...]:
    """A summary for each trial around which something was sampled, or for each part of it."""
    return (
        *(found for t in trials for found in _of_batches(store, t)),
        *(f for load in loads for f in _of(store, load.trial.trial_id, measured_stages(load))),
        *(f for task in tasks for f in _of(store, task.trial.trial_id, measured_tasks(task))),
    )


def _of_batches(store: RunStore, summary: TrialSummary) -> Iterator[TelemetrySummary]:
    trial = summary.trial
    seen = _seen(store, trial.trial_id)
    if seen is not None:
        # Steps are read a second time, where there is something to lay beside them.
        steps = tuple(store.seen(trial.trial_id, StepObservation)) if seen.samples else ()
        yield summarise_telemetry(seen, measured_batches(trial, steps))


def _of(
    store: RunStore, trial_id: str, parts: Sequence[MeasuredWindows]
) -> Iterator[TelemetrySummary]:
    seen = _seen(store, trial_id)
    if seen is not None:
        for measured in parts or (MeasuredWindows(trial_id, (), None),):
            yield summarise_telemetry(seen, measured)


def _seen(store: RunStore, trial_id: str) -> Telemetry | None:
    """With the names of devices and the reasons on one line and printable; not its many samples."""
    seen = store.telemetry(trial_id)
    if seen is None:
        return None
    devices, absent = all_on_one_line(seen.devices), on_one_line(seen.absent)
    return replace(seen, absent=absent, devices=devices)

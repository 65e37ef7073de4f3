"""plan -> drive -> record in direct mode: models in processes of our own, without a server.

Processes of one model serve its trials in a row; after anything that failed they are ended and
others started, so that nothing of a failure is left in what is measured next. A sweep can be cut
off anywhere and gone on with, as one on servers can.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tgi_bench.devices.take import own_devices
from tgi_bench.devices.watch import TelemetryWatch
from tgi_bench.drive.direct import DirectHost
from tgi_bench.drive.messages import RunAsk
from tgi_bench.errors import LaunchError, StepError
from tgi_bench.kinds.direct.search import BatchProbe, LargestBatch, bracket, next_batch
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.plan.plan import Plan
from tgi_bench.plan.task_trial import DirectModel, GenerateTask, TaskDevice, TaskTrial
from tgi_bench.record.store import RunStore
from tgi_bench.task_observation import DirectFacts, TaskRun


class TaskWatcher(Protocol):
    """Is told what happens, between runs and never during one."""

    def loading(self, model: DirectModel) -> None:
        """A model is about to be loaded."""

    def loaded(self, model: DirectModel, facts: DirectFacts) -> None:
        """It is there."""

    def task_begins(self, trial: TaskTrial, batch_size: int) -> None:
        """The first warm-up of a batch size, or of a document, is next."""

    def task_run(self, trial: TaskTrial, run: TaskRun) -> None:
        """One warm-up or run is over, or has failed."""

    def task_ended(self, trial: TaskTrial, end: TrialEnd) -> None:
        """A trial has its end, whether it was run or not."""


@dataclass(frozen=True, slots=True)
class DirectSweep:
    """One plan of direct mode on its way into one run file.

    run_dir: the run's folder. telemetry: what samples the devices; it is told when to.
    """

    plan: Plan
    store: RunStore
    run_dir: Path
    watcher: TaskWatcher
    telemetry: TelemetryWatch = field(default_factory=TelemetryWatch)

    def run(self) -> None:
        """Give every trial an end.

        KeyboardInterrupt passes through: the processes are ended, the trial stays without end.
        """
        for model in self.plan.direct_models:
            on_cpu = model.device is TaskDevice.CPU
            devices = own_devices(model.devices, os.environ, cpu_only=on_cpu)
            with self.telemetry.of(devices), _hosts(self, model) as hosts:
                for trial in self.plan.task_trials:
                    if trial.model == model and trial.trial_id not in self.store.ends():
                        self._give_end(trial, hosts)

    def _give_end(self, trial: TaskTrial, hosts: _Hosts) -> None:
        skip = _skip(self.plan, trial, self.store.ends())
        if skip is not None:
            self.store.end_unstarted(trial.trial_id, skip)
            self.watcher.task_ended(trial, skip)
            return
        try:
            hosts.ready()
        except LaunchError as error:
            end = TrialEnd(Outcome.LAUNCH_FAILED, str(error))
        except StepError as error:
            end = TrialEnd(error.outcome, str(error))
        else:
            attempt = self.store.begin(trial.trial_id)
            with self.telemetry.during(self.store, attempt):
                end = _Attempt(self, trial, attempt, hosts).end()
            self.store.end(attempt, end)
            self.watcher.task_ended(trial, end)
            return
        self.store.end_unstarted(trial.trial_id, end)
        self.watcher.task_ended(trial, end)


class _Hosts:
    """The one host of a model that lives at a time; a load that failed is not tried again."""

    def __init__(self, sweep: DirectSweep, model: DirectModel) -> None:
        self._sweep = sweep
        self._model = model
        self._host: DirectHost | None = None
        self._failure: StepError | LaunchError | None = None

    def ready(self) -> DirectHost:
        """A host with the model loaded.

        Raises StepError where memory ran out or time, LaunchError where it cannot be loaded.
        """
        if self._failure is not None:
            raise self._failure
        if self._host is not None:
            return self._host
        sweep, model = self._sweep, self._model
        sweep.watcher.loading(model)
        self._host = DirectHost(model, sweep.run_dir / "launch" / f"{model.model_id}.log")
        try:
            facts = self._host.load()
        except StepError as error:
            self.end()
            sweep.store.failed(model.model_id, str(error))
            known = error.outcome.memory_ran_out or error.outcome is Outcome.TIMEOUT
            self._failure = error if known else LaunchError(str(error))
            raise self._failure from error
        sweep.store.started(model.model_id, facts)
        sweep.telemetry.ready()
        sweep.watcher.loaded(model, facts)
        return self._host

    def end(self) -> None:
        """End the host that lives; the next `ready` starts another."""
        host, self._host = self._host, None
        if host is not None:
            host.end()


@contextmanager
def _hosts(sweep: DirectSweep, model: DirectModel) -> Iterator[_Hosts]:
    """No host of the model lives on."""
    hosts = _Hosts(sweep, model)
    try:
        yield hosts
    finally:
        hosts.end()


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One attempt at a trial."""

    sweep: DirectSweep
    trial: TaskTrial
    attempt: int
    hosts: _Hosts

    def end(self) -> TrialEnd:
        """Run the trial: its end."""
        task = self.trial.task
        if isinstance(task, GenerateTask) and task.find is not None:
            return self._search(task)
        return self._measure(self.trial.batch_size or 1, 0)

    def _search(self, task: GenerateTask) -> TrialEnd:
        """Each batch size that is tried is measured whole, and has figures if it fits."""
        probes: list[BatchProbe] = []
        while task.find is not None and not isinstance(
            size := next_batch(task.find, probes), LargestBatch
        ):
            end = self._measure(size, len(probes))
            # On a CPU the host's memory is the device's: a search asks what fits.
            if end.outcome is not Outcome.OK and not end.outcome.memory_ran_out:
                return end
            probes.append(BatchProbe(size, end.outcome is Outcome.OK))
        if bracket(probes).fits is None:
            return TrialEnd(Outcome.OUT_OF_MEMORY, "not even batch size 1 fits")
        return TrialEnd(Outcome.OK, "")

    def _measure(self, batch_size: int, probe: int) -> TrialEnd:
        """Warm-ups and runs at one batch size; ends at the first that fails."""
        trial = self.trial
        self.sweep.watcher.task_begins(trial, batch_size)
        for index in range(trial.warmups + trial.runs):
            ask = RunAsk(
                task=trial.task,
                batch_size=batch_size,
                probe=probe,
                run_index=index,
                warmup=index < trial.warmups,
                prompt_seed=trial.prompt_seed,
            )
            try:
                host = self.hosts.ready()
            except (StepError, LaunchError) as error:
                # It was loaded before: whatever this is, it is not the batch size's doing.
                reason = f"the model could not be loaded again: {error}"
                return TrialEnd(Outcome.FAILED, reason)
            began_ns = time.monotonic_ns()
            try:
                run = host.run(ask, trial.run_timeout_s)
            except StepError as error:
                self._record(_failed(ask, began_ns, error))
                self.hosts.end()
                return TrialEnd(error.outcome, str(error))
            self._record(run)
        return TrialEnd(Outcome.OK, "")

    def _record(self, run: TaskRun) -> None:
        self.sweep.store.add(self.attempt, [run])
        self.sweep.watcher.task_run(self.trial, run)


def _failed(ask: RunAsk, began_ns: int, error: StepError) -> TaskRun:
    return TaskRun(
        batch_size=ask.batch_size,
        probe=ask.probe,
        run_index=ask.run_index,
        warmup=ask.warmup,
        began_ns=began_ns,
        ended_ns=time.monotonic_ns(),
        peak_bytes=None,
        calls=(),
        outcome=error.outcome,
        reason=str(error),
    )


def _skip(plan: Plan, trial: TaskTrial, ends: Mapping[str, TrialEnd]) -> TrialEnd | None:
    """The end of a trial that need not be run: a smaller batch of its shape ran out of memory."""
    if trial.shape is None or trial.batch_size is None:
        return None
    for other in plan.task_trials:
        end = ends.get(other.trial_id)
        size = other.batch_size
        if (
            end is not None
            and end.outcome is Outcome.OUT_OF_MEMORY
            and other.shape == trial.shape
            and size is not None
            and size < trial.batch_size
        ):
            return TrialEnd(Outcome.SKIPPED, f"batch size {size} ran out of memory already")
    return None

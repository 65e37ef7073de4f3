"""Direct mode: tasks on models in processes of our own, without a server.

Processes of one model serve its trials in a row; after anything that failed they are ended and
others started, so that nothing of a failure is left in what is measured next.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tgi_bench.drive.channel import RunAsk
from tgi_bench.drive.direct import DirectHost
from tgi_bench.errors import LaunchError, StepError
from tgi_bench.kinds.direct.figures import BatchProbe, LargestBatch, bracket, next_batch
from tgi_bench.kinds.running import Running, Watcher, next_run
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.report.durations import counted, duration
from tgi_bench.task_observation import DirectFacts, TaskRun
from tgi_bench.trials.direct import DirectModel, GenerateTask, TaskTrial


@contextmanager
def session(model: DirectModel, running: Running) -> Iterator[Callable[[TaskTrial], bool]]:
    """What runs a trial and gives it its end; True always: a process that failed is started again.

    No process of the model lives on.
    """
    hosts = _Hosts(model, running)
    try:
        yield lambda trial: _run(trial, hosts, running)
    finally:
        hosts.end()


def _run(trial: TaskTrial, hosts: _Hosts, running: Running) -> bool:
    try:
        hosts.ready()
    except LaunchError as error:
        end = TrialEnd(Outcome.LAUNCH_FAILED, str(error))
    except StepError as error:
        end = TrialEnd(error.outcome, str(error))
    else:
        running.watcher.begins(trial.trial_id)
        attempt = running.store.begin(trial.trial_id)
        with running.telemetry.during(running.store, attempt):
            end = _Attempt(running, trial, attempt, hosts).end()
        running.store.end(attempt, end)
        running.watcher.ended(trial.trial_id, end)
        return True
    running.store.end_unstarted(trial.trial_id, end)
    running.watcher.ended(trial.trial_id, end)
    return True


class _Hosts:
    """The one host of a model that lives at a time; a load that failed is not tried again."""

    def __init__(self, model: DirectModel, running: Running) -> None:
        self._model = model
        self._running = running
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
        running, model = self._running, self._model
        running.watcher.starting(model.model_id, "loading")
        self._host = DirectHost(model, running.run_dir / "launch" / f"{model.model_id}.log")
        try:
            facts = self._host.load()
        except StepError as error:
            self.end()
            running.store.failed(model.model_id, str(error))
            known = error.outcome.memory_ran_out or error.outcome is Outcome.TIMEOUT
            self._failure = error if known else LaunchError(str(error))
            raise self._failure from error
        running.store.started(model.model_id, facts)
        running.telemetry.ready()
        running.watcher.ready(model.model_id, "loaded", loaded(facts))
        return self._host

    def end(self) -> None:
        """End the host that lives; the next `ready` starts another."""
        host, self._host = self._host, None
        if host is not None:
            host.end()


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One attempt at a trial."""

    running: Running
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
            self.running.watcher.part_begins(self.trial.trial_id, f"batch size {size}")
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
        self.running.store.add(self.attempt, [run])
        tell(self.running.watcher, self.trial, run)


def tell(watcher: Watcher, trial: TaskTrial, run: TaskRun) -> None:
    """What a watcher is told of a run: its wall time, if it did not fail."""
    if run.outcome is Outcome.OK:
        wall_ns = run.ended_ns - run.began_ns
        rate = sum(call.new_tokens for call in run.calls) * 1e9 / wall_ns
        said = f"{duration(wall_ns / 1e9)} a run, {rate:.1f} tokens/s"
        following = next_run(run.run_index, trial.warmups, trial.runs)
        watcher.going(trial.trial_id, f"{following}   last: {said}", said)


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


def loaded(facts: DirectFacts) -> str:
    """What was loaded, on what, and how long it took."""
    return (
        f"({facts.parameters:,} parameters in {facts.dtype} on "
        f"{counted(facts.devices, 'device')} {facts.device}, in {duration(facts.load_ns / 1e9)})"
    )

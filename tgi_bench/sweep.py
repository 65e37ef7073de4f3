"""plan -> launch -> drive -> record: the only file that knows all of them.

A sweep can be cut off anywhere and gone on with: it asks the run file which trials have an
end and makes the others. A server serves all trials of its deployment in a row; one that
died is started again where later trials need it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from tgi_bench.drive.ranks import Ranks
from tgi_bench.drive.shard import Room, drive
from tgi_bench.errors import LaunchError, StepError
from tgi_bench.launch.endpoint import LaunchOptions, RunningServer
from tgi_bench.launch.launcher import launch
from tgi_bench.launch.secrets import Redactor
from tgi_bench.observation import Outcome, ServerFacts, StepObservation, TrialEnd
from tgi_bench.plan.plan import BatchTrial, Deployment, Plan
from tgi_bench.plan.prompts import batch_prompts
from tgi_bench.record.store import RunStore

_DEATH_SHOWS_S = 1.0
"""A shard that answers and then exits does so within 0.5 s; its launcher notices after that."""
_HEALTH_TIMEOUT_S = 5.0
_LOG_TAIL = 50
_HARMLESS = (Outcome.OK, Outcome.REFUSED)


class Watcher(Protocol):
    """Is told what happens, between the timed steps and never during one."""

    def launching(self, deployment: Deployment) -> None:
        """A server is about to be started."""

    def progress(self, deployment: Deployment, text: str) -> None:
        """It is not ready yet: what its log says that it is doing."""

    def ready(self, deployment: Deployment, facts: ServerFacts) -> None:
        """It is ready."""

    def launch_failed(self, deployment: Deployment, error: LaunchError) -> None:
        """It did not become ready; its trials end here."""

    def trial_begins(self, trial: BatchTrial) -> None:
        """The first warm-up of a trial is next."""

    def run_ended(self, trial: BatchTrial, observations: Sequence[StepObservation]) -> None:
        """One warm-up or run of a trial is over."""

    def trial_ended(self, trial: BatchTrial, end: TrialEnd) -> None:
        """A trial has its end, whether it was run or not."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """One plan on its way into one run file.

    run_dir: the run's folder, named by its id. pull: whether missing images may be pulled.
    """

    plan: Plan
    store: RunStore
    run_dir: Path
    watcher: Watcher
    pull: bool = True

    def run(self) -> None:
        """Give every trial of the plan an end.

        KeyboardInterrupt passes through: the server is stopped, the trial stays without end.
        """
        for deployment in self.plan.deployments:
            while pending := self._pending(deployment):
                try:
                    self._serve(deployment, pending)
                except LaunchError as error:
                    self._give_up(deployment, error)
        self.store.finish()

    def _pending(self, deployment: Deployment) -> tuple[BatchTrial, ...]:
        """Trials of the deployment that are still to be run; ends those that need not be."""
        ends = self.store.ends()
        pending = []
        for trial in self.plan.trials:
            if trial.deployment_id != deployment.deployment_id or trial.trial_id in ends:
                continue
            if (skip := _skip(self.plan, trial, ends)) is not None:
                self._end(trial, skip)
            else:
                pending.append(trial)
        return tuple(pending)

    def _serve(self, deployment: Deployment, pending: Sequence[BatchTrial]) -> None:
        """Start the server and run trials on it until all have an end or it died."""
        self.watcher.launching(deployment)
        options = LaunchOptions(
            run_dir=self.run_dir,
            run_id=self.run_dir.name,
            pull=self.pull,
            progress=lambda text: self.watcher.progress(deployment, text),
        )
        with launch(deployment, options) as server:
            facts = server.endpoint.facts
            self.store.deployment_started(deployment.deployment_id, facts)
            self.watcher.ready(deployment, facts)
            socket = server.endpoint.master_socket
            if socket is None:
                for trial in pending:
                    self._end(trial, TrialEnd(Outcome.REFUSED, server.endpoint.no_socket_reason))
                return
            try:
                ranks = Ranks.connect(socket)
            except StepError as error:
                raise LaunchError(str(error), server.log_tail(_LOG_TAIL)) from error
            with ranks:
                self._run_trials(pending, server, ranks)

    def _run_trials(
        self, pending: Sequence[BatchTrial], server: RunningServer, ranks: Ranks
    ) -> None:
        """Give trials their end until all have one or the server died."""
        for trial in pending:
            skip = _skip(self.plan, trial, self.store.ends())
            if skip is not None:
                self._end(trial, skip)
            elif not self._run_trial(trial, server, ranks):
                return

    def _run_trial(self, trial: BatchTrial, server: RunningServer, ranks: Ranks) -> bool:
        """Run one trial and give it its end; False where the server can run no further one."""
        prompts = batch_prompts(
            trial.prompt_seed, trial.trial_id, trial.batch_size, trial.sequence_length
        )
        self.watcher.trial_begins(trial)
        attempt = self.store.begin_trial(trial.trial_id)

        def record(observations: tuple[StepObservation, ...]) -> None:
            clean = tuple(
                replace(o, reason=self._redacted(trial.deployment_id, o.reason)) if o.reason else o
                for o in observations
            )
            self.store.add(trial.trial_id, attempt, clean)
            self.watcher.run_ended(trial, observations)

        end = drive(ranks, trial, prompts, _room(server.endpoint.facts), record)
        usable = end.outcome in _HARMLESS or _still_usable(server, ranks)
        if not usable:
            end = _explained(end, server)
        end = self._clean(trial, end)
        self.store.end_trial(trial.trial_id, attempt, end)
        self.watcher.trial_ended(trial, end)
        return usable

    def _give_up(self, deployment: Deployment, error: LaunchError) -> None:
        cause = self._redacted(deployment.deployment_id, str(error))
        tail = tuple(self._redacted(deployment.deployment_id, line) for line in error.log_tail)
        self.store.deployment_failed(deployment.deployment_id, cause)
        self.watcher.launch_failed(deployment, LaunchError(cause, tail))
        for trial in self._pending(deployment):
            self._end(trial, TrialEnd(Outcome.LAUNCH_FAILED, cause))

    def _redacted(self, deployment_id: str, text: str) -> str:
        """A server may fail with a secret in its message."""
        return Redactor.of(self.plan.deployment(deployment_id), os.environ).text(text)

    def _clean(self, trial: BatchTrial, end: TrialEnd) -> TrialEnd:
        return TrialEnd(end.outcome, self._redacted(trial.deployment_id, end.reason))

    def _end(self, trial: BatchTrial, end: TrialEnd) -> None:
        """The end of a trial that is not run."""
        self.store.end_unstarted(trial.trial_id, end)
        self.watcher.trial_ended(trial, end)


def _skip(plan: Plan, trial: BatchTrial, ends: Mapping[str, TrialEnd]) -> TrialEnd | None:
    """The end of a trial that need not be run: a smaller batch of its shape ran out of memory."""
    for other in plan.trials:
        end = ends.get(other.trial_id)
        if (
            end is not None
            and end.outcome is Outcome.OUT_OF_MEMORY
            and other.shape == trial.shape
            and other.batch_size < trial.batch_size
        ):
            return TrialEnd(
                Outcome.SKIPPED, f"batch size {other.batch_size} ran out of memory already"
            )
    return None


def _room(facts: ServerFacts) -> Room | None:
    if facts.capacity_tokens is None:
        return None
    return Room(facts.capacity_tokens, facts.capacity_source)


def _still_usable(server: RunningServer, ranks: Ranks) -> bool:
    """Whether a server that failed a step goes on: a shard may answer and exit right after."""
    deadline = time.monotonic() + _DEATH_SHOWS_S
    while time.monotonic() < deadline:
        if not server.alive():
            return False
        time.sleep(0.05)
    return server.alive() and ranks.answer(_HEALTH_TIMEOUT_S)


def _explained(end: TrialEnd, server: RunningServer) -> TrialEnd:
    """The end with what a dead server's log says: its RPCs may only have been cut off."""
    cause = server.death_cause()
    if end.outcome is not Outcome.SHARD_DIED or cause is None:
        return end
    outcome = Outcome.OUT_OF_MEMORY if "out of memory" in cause.lower() else end.outcome
    return TrialEnd(outcome, cause)

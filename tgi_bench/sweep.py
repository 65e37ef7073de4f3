"""plan -> launch -> drive -> record: the only file that knows all of them.

A sweep can be cut off anywhere and gone on with: it asks the run file which trials have an
end and makes the others. A host, which is a server or a model in processes of our own, serves
all of its trials in a row; a server that died is started again where later trials need it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, TypeVar

from tgi_bench.ask import Contact, contact
from tgi_bench.devices.take import own_devices
from tgi_bench.devices.watch import TelemetryWatch
from tgi_bench.dialects.metrics import gauge_asker
from tgi_bench.drive.server_host import known_roots
from tgi_bench.errors import LaunchError, StepError
from tgi_bench.kinds.batch import run as batch
from tgi_bench.kinds.running import Running, Watcher, ready_in
from tgi_bench.launch.launcher import LaunchOptions, RunningServer
from tgi_bench.launch.secrets import Redactor, headers_of
from tgi_bench.observation import Outcome, ServerFacts, TrialEnd
from tgi_bench.plan.plan import BatchTrial, Deployment, Plan
from tgi_bench.record.runs import require_room
from tgi_bench.record.store import RunStore
from tgi_bench.trials.direct import DirectModel, TaskDevice, TaskTrial
from tgi_bench.trials.load import LoadTrial

if TYPE_CHECKING:
    from tgi_bench.drive.workers import Ahead

Trial = BatchTrial | LoadTrial | TaskTrial
T = TypeVar("T", BatchTrial, LoadTrial, TaskTrial)


@dataclass(frozen=True, slots=True)
class Sweep:
    """One plan on its way into one run file.

    run_dir: the run's folder, named by its id. pull: whether missing images may be pulled.
    ahead: worker processes of the load client that were started before.
    telemetry: what samples the devices; it is told when to.
    start: a random word; texts without a seed are drawn from it, so a resumed run has new ones.
    """

    plan: Plan
    store: RunStore
    run_dir: Path
    watcher: Watcher
    pull: bool = True
    ahead: Ahead | None = None
    telemetry: TelemetryWatch = field(default_factory=TelemetryWatch)
    start: str = field(default_factory=lambda: token_hex(8))

    def run(self) -> None:
        """Give every trial of the plan an end.

        KeyboardInterrupt passes through: the host is ended, the trial stays without end.
        """
        for deployment in self.plan.deployments:
            while self._left(deployment):
                try:
                    self._serve(deployment)
                except LaunchError as error:
                    self._give_up(deployment, error)
        for model in self.plan.direct_models:
            self._hold(model)

    def _left(self, deployment: Deployment) -> bool:
        batches = self._pending(self.plan.trials, deployment)
        return bool(batches) or bool(self._pending(self.plan.load_trials, deployment))

    def _pending(self, trials: Sequence[T], host: Deployment | DirectModel) -> tuple[T, ...]:
        """Those of the host that are still to be run; ends those that need not be."""
        ends = self.store.ends()
        return tuple(
            trial
            for trial in trials
            if host_id(trial) == id_of(host)
            and trial.trial_id not in ends
            and not self._skipped(trial, ends)
        )

    def _skipped(self, trial: Trial, ends: Mapping[str, TrialEnd]) -> bool:
        """Whether it need not be run, and has its end: a smaller batch of its shape ran out of
        memory."""
        if isinstance(trial, LoadTrial) or trial.shape is None or trial.batch_size is None:
            return False
        others = self.plan.trials if isinstance(trial, BatchTrial) else self.plan.task_trials
        for other in others:
            end, size = ends.get(other.trial_id), other.batch_size
            if end is None or end.outcome is not Outcome.OUT_OF_MEMORY or size is None:
                continue
            if other.shape == trial.shape and size < trial.batch_size:
                reason = f"batch size {size} ran out of memory already"
                self._end(trial, TrialEnd(Outcome.SKIPPED, reason))
                return True
        return False

    def _each(self, trials: Sequence[T], run: Callable[[T], bool]) -> bool:
        """Give trials their end until all have one or the host died; whether it lives."""
        return all(self._skipped(trial, self.store.ends()) or run(trial) for trial in trials)

    def _end(self, trial: Trial, end: TrialEnd) -> None:
        """The end of a trial that is not run."""
        self.store.end_unstarted(trial.trial_id, end)
        self.watcher.ended(trial.trial_id, end)

    def _serve(self, deployment: Deployment) -> None:
        """Start the server and run trials on it until all have an end or it died."""
        name = deployment.deployment_id
        self.watcher.starting(name, "starting", f"({deployment.launcher.name})")
        options = LaunchOptions(
            run_dir=self.run_dir,
            run_id=self.run_dir.name,
            pull=self.pull,
            progress=lambda text: self.watcher.waiting(name, text),
        )
        running = self._running(Redactor.of(deployment, os.environ).text)
        sampled = self.telemetry.of(deployment.launcher.devices(deployment, os.environ))
        with sampled, deployment.launcher.launch(deployment, options) as server:
            facts = self._facts(deployment, server)
            self.store.started(name, facts)
            self.watcher.ready(name, "ready", ready_in(facts))
            asker, url = gauge_asker(_contact(deployment, server)), server.endpoint.url
            with self.telemetry.serving(facts.simulated, asker, lambda: known_roots(url)):
                if batches := self._pending(self.plan.trials, deployment):
                    with batch.session(server, running) as run_batch:
                        if not self._each(batches, run_batch):
                            return
                if loads := self._pending(self.plan.load_trials, deployment):
                    from tgi_bench.kinds.load import run as load

                    with load.session(server, deployment, running) as run_load:
                        self._each(loads, run_load)

    def _hold(self, model: DirectModel) -> None:
        """Run the trials of a model in processes of our own."""
        if not self._pending(self.plan.task_trials, model):
            return
        from tgi_bench.kinds.direct import run as direct

        on_cpu = model.device is TaskDevice.CPU
        devices = own_devices(model.devices, os.environ, cpu_only=on_cpu)
        running = self._running(str)
        with self.telemetry.of(devices), direct.session(model, running) as run:
            self._each(self._pending(self.plan.task_trials, model), run)

    def _running(self, redacted: Callable[[str], str]) -> Running:
        return Running(
            store=self.store,
            run_dir=self.run_dir,
            watcher=self.watcher,
            telemetry=self.telemetry,
            redacted=redacted,
            start=self.start,
            ahead=self.ahead,
        )

    def _facts(self, deployment: Deployment, server: RunningServer) -> ServerFacts:
        """What the server said, with what its ranks say where their sockets are known."""
        facts, socket = server.endpoint.facts, server.endpoint.master_socket
        if socket is None:
            return facts
        from tgi_bench.drive.ranks import Ranks

        try:
            with Ranks.connect(socket) as ranks:
                shards = ranks.facts
        except StepError as error:
            if not self._pending(self.plan.trials, deployment):
                return facts  # a load goes to the router: what its shards say stays unknown
            raise LaunchError(str(error), server.log_tail(batch.LOG_TAIL)) from error
        return replace(facts, shards=shards, simulated=facts.simulated or shards.simulated)

    def _give_up(self, deployment: Deployment, error: LaunchError) -> None:
        """The server cannot be started: its trials end here. It may fail with a secret in its
        message."""
        require_room(self.run_dir)
        redacted = Redactor.of(deployment, os.environ).text
        cause, tail = redacted(str(error)), tuple(map(redacted, error.log_tail))
        self.store.failed(deployment.deployment_id, cause)
        self.watcher.not_started(deployment.deployment_id, LaunchError(cause, tail))
        end = TrialEnd(Outcome.LAUNCH_FAILED, cause)
        for trial in self._pending(self.plan.trials, deployment):
            self._end(trial, end)
        for load in self._pending(self.plan.load_trials, deployment):
            self._end(load, end)


def host_id(trial: Trial) -> str:
    """The id of the deployment or of the model that a trial runs on."""
    return trial.model.model_id if isinstance(trial, TaskTrial) else trial.deployment_id


def id_of(host: Deployment | DirectModel) -> str:
    """Its own id."""
    return host.model_id if isinstance(host, DirectModel) else host.deployment_id


def _contact(deployment: Deployment, server: RunningServer) -> Contact:
    headers = headers_of(deployment, os.environ)
    return contact(server.endpoint.url, headers, deployment.launcher.verify_tls)

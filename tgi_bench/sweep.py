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
from typing import TYPE_CHECKING

from tgi_bench.ask import Contact, contact
from tgi_bench.devices.take import own_devices
from tgi_bench.devices.watch import TelemetryWatch
from tgi_bench.dialects.metrics import gauge_asker
from tgi_bench.drive.server_host import known_roots
from tgi_bench.errors import LaunchError, StepError
from tgi_bench.kinds import KINDS
from tgi_bench.kinds.kind import PlannedTrial, TrialKind
from tgi_bench.kinds.running import Running, Served, Watcher, ready_in
from tgi_bench.launch.launcher import LaunchOptions, RunningServer
from tgi_bench.launch.secrets import Redactor, headers_of
from tgi_bench.observation import Outcome, ServerFacts, TrialEnd
from tgi_bench.plan.plan import Deployment, Plan
from tgi_bench.record.runs import require_room
from tgi_bench.record.store import RunStore
from tgi_bench.trials.direct import DirectModel, TaskDevice

if TYPE_CHECKING:
    from tgi_bench.drive.workers import Ahead


_LOG_TAIL = 50


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
            while self._left(deployment.deployment_id):
                try:
                    self._serve(deployment)
                except LaunchError as error:
                    self._give_up(deployment, error)
        for model in self.plan.direct_models:
            self._hold(model)

    def _pending(self, kind: TrialKind, host_id: str) -> tuple[PlannedTrial, ...]:
        """Trials of the host that are still to be run; ends those that need not be."""
        ends, of_kind = self.store.ends(), kind.planned(self.plan)
        return tuple(
            planned
            for planned in of_kind
            if host_id in (planned.deployment_id, planned.model_id)
            and planned.trial_id not in ends
            and not self._skipped(planned, of_kind, ends)
        )

    def _left(self, host_id: str) -> tuple[PlannedTrial, ...]:
        """The same of all kinds."""
        return tuple(planned for kind in KINDS for planned in self._pending(kind, host_id))

    def _skipped(
        self,
        planned: PlannedTrial,
        of_kind: Sequence[PlannedTrial],
        ends: Mapping[str, TrialEnd],
    ) -> bool:
        """Whether it need not be run, and has its end: a smaller batch of its shape ran out of
        memory."""
        if planned.shape is None or planned.batch_size is None:
            return False
        for other in of_kind:
            end, size = ends.get(other.trial_id), other.batch_size
            if end is None or end.outcome is not Outcome.OUT_OF_MEMORY or size is None:
                continue
            if other.shape == planned.shape and size < planned.batch_size:
                reason = f"batch size {size} ran out of memory already"
                self._end(planned.trial_id, TrialEnd(Outcome.SKIPPED, reason))
                return True
        return False

    def _run_on(self, host: Served | DirectModel, host_id: str, running: Running) -> None:
        """Run what is left for a host until all trials have an end or the host died."""
        for kind in KINDS:
            pending = self._pending(kind, host_id)
            if not pending or kind.session is None:
                continue
            of_kind = kind.planned(self.plan)
            with kind.session()(host, running) as run:
                for planned in pending:
                    if self._skipped(planned, of_kind, self.store.ends()):
                        continue
                    if not run(planned.trial):
                        return

    def _end(self, trial_id: str, end: TrialEnd) -> None:
        """The end of a trial that is not run."""
        self.store.end_unstarted(trial_id, end)
        self.watcher.ended(trial_id, end)

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
                self._run_on(Served(server, deployment), name, running)

    def _hold(self, model: DirectModel) -> None:
        """Run the trials of a model in processes of our own."""
        if not self._left(model.model_id):
            return
        on_cpu = model.device is TaskDevice.CPU
        devices = own_devices(model.devices, os.environ, cpu_only=on_cpu)
        with self.telemetry.of(devices):
            self._run_on(model, model.model_id, self._running(str))

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
            name = deployment.deployment_id
            if not any(kind.on_ranks and self._pending(kind, name) for kind in KINDS):
                return facts  # a load goes to the router: what its shards say stays unknown
            raise LaunchError(str(error), server.log_tail(_LOG_TAIL)) from error
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
        for planned in self._left(deployment.deployment_id):
            self._end(planned.trial_id, end)


def _contact(deployment: Deployment, server: RunningServer) -> Contact:
    headers = headers_of(deployment, os.environ)
    return contact(server.endpoint.url, headers, deployment.launcher.verify_tls)

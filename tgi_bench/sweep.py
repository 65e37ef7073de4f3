"""plan -> launch -> drive -> record: the only file that knows all of them.

A sweep can be cut off anywhere and gone on with: it asks the run file which trials have an
end and makes the others. A server serves all trials of its deployment in a row; one that
died is started again where later trials need it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from tgi_bench.ask import Contact, contact
from tgi_bench.devices.take import choice_of
from tgi_bench.devices.watch import TelemetryWatch
from tgi_bench.drive.load import run_stage
from tgi_bench.drive.preparation import LoadTarget, Prepared, SentTexts, prepare
from tgi_bench.drive.server_host import known_roots
from tgi_bench.drive.stage import Listener, Progress, StageAsk, of_search
from tgi_bench.engines.engine import Engine
from tgi_bench.errors import InputError, LaunchError, NotRecordedError, StepError
from tgi_bench.launch.after_failure import end_of_load, explained, found_dead, usable
from tgi_bench.launch.endpoint import LaunchOptions, RunningServer
from tgi_bench.launch.launcher import launch
from tgi_bench.launch.metrics import gauge_asker
from tgi_bench.launch.secrets import Redactor, headers_of
from tgi_bench.load_observation import LoadStage, RequestObservation
from tgi_bench.observation import Outcome, ServerFacts, StepObservation, TrialEnd
from tgi_bench.plan.load_trial import LoadTrial
from tgi_bench.plan.plan import AttachOptions, BatchTrial, Deployment, LauncherKind, Plan
from tgi_bench.plan.prompts import prompts_of
from tgi_bench.record.load_recording import LoadRecording
from tgi_bench.record.runs import require_room
from tgi_bench.record.store import RunStore
from tgi_bench.watcher import Watcher

if TYPE_CHECKING:
    # grpc takes a while to import, which a load need not wait for.
    from tgi_bench.drive.ranks import Ranks
    from tgi_bench.drive.shard import Room
    from tgi_bench.drive.workers import Ahead

_HEALTH_TIMEOUT_S = 5.0
_LOG_TAIL = 50
_HARMLESS = (Outcome.OK, Outcome.REFUSED)


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

        KeyboardInterrupt passes through: the server is stopped, the trial stays without end.
        """
        for deployment in self.plan.deployments:
            while self._pending(deployment) or self._pending_loads(deployment):
                try:
                    self._serve(deployment)
                except LaunchError as error:
                    self._give_up(deployment, error)

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

    def _pending_loads(self, deployment: Deployment) -> tuple[LoadTrial, ...]:
        """Its load trials that have no end."""
        ends = self.store.ends()
        return tuple(
            trial
            for trial in self.plan.load_trials
            if trial.deployment_id == deployment.deployment_id and trial.trial_id not in ends
        )

    def _serve(self, deployment: Deployment) -> None:
        """Start the server and run trials on it until all have an end or it died."""
        self.watcher.launching(deployment)
        options = LaunchOptions(
            run_dir=self.run_dir,
            run_id=self.run_dir.name,
            pull=self.pull,
            progress=lambda text: self.watcher.progress(deployment, text),
        )
        sampled = self.telemetry.of(choice_of(deployment, os.environ))
        with sampled, launch(deployment, options) as server:
            facts = self._facts(deployment, server)
            self.store.started(deployment.deployment_id, facts)
            self.watcher.ready(deployment, facts)
            asker, url = gauge_asker(_contact(deployment, server)), server.endpoint.url
            with self.telemetry.serving(facts.simulated, asker, lambda: known_roots(url)):
                if self._run_batches(deployment, server):
                    texts = SentTexts()
                    for trial in self._pending_loads(deployment):
                        if not self._run_load(trial, server, texts):
                            return

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
            if not self._pending(deployment):
                return facts  # a load goes to the router: what its shards say stays unknown
            raise LaunchError(str(error), server.log_tail(_LOG_TAIL)) from error
        return replace(facts, shards=shards, simulated=facts.simulated or shards.simulated)

    def _run_batches(self, deployment: Deployment, server: RunningServer) -> bool:
        """Give the batches their end; False where the server died."""
        if not (pending := self._pending(deployment)):
            return True
        socket = server.endpoint.master_socket
        if socket is None:
            for trial in pending:
                self._end(trial, TrialEnd(Outcome.REFUSED, server.endpoint.no_socket_reason))
            return True
        from tgi_bench.drive.ranks import Ranks

        try:
            ranks = Ranks.connect(socket)
        except StepError as error:
            raise LaunchError(str(error), server.log_tail(_LOG_TAIL)) from error
        with ranks:
            return self._run_trials(pending, server, ranks)

    def _run_trials(
        self, pending: Sequence[BatchTrial], server: RunningServer, ranks: Ranks
    ) -> bool:
        """Give trials their end until all have one or the server died; whether it lives."""
        for trial in pending:
            skip = _skip(self.plan, trial, self.store.ends())
            if skip is not None:
                self._end(trial, skip)
            elif not self._run_trial(trial, server, ranks):
                return False
        return True

    def _run_trial(self, trial: BatchTrial, server: RunningServer, ranks: Ranks) -> bool:
        """Run one trial and give it its end; False where the server can run no further one."""
        from tgi_bench.drive.shard import drive

        prompts = prompts_of(trial, self.start)
        self.watcher.trial_begins(trial)
        attempt = self.store.begin(trial.trial_id)

        def record(observations: tuple[StepObservation, ...]) -> None:
            clean = tuple(
                replace(o, reason=self._redacted(trial.deployment_id, o.reason)) if o.reason else o
                for o in observations
            )
            self.store.add(attempt, clean)
            self.watcher.run_ended(trial, observations)

        since = server.log_length()
        with self.telemetry.during(self.store, attempt):
            end = drive(ranks, trial, prompts, _room(server.endpoint.facts), record)
        going_on = end.outcome in _HARMLESS or usable(
            server, since, lambda: ranks.answer(_HEALTH_TIMEOUT_S)
        )
        if not going_on:
            require_room(self.run_dir)
            end = explained(end, server, since)
        end = self._clean(trial, end)
        self.store.end(attempt, end)
        self.watcher.trial_ended(trial, end)
        return going_on

    def _run_load(self, trial: LoadTrial, server: RunningServer, texts: SentTexts) -> bool:
        """Send one load, or a search's many, and give the trial its end; False if it died.

        texts: that the server was sent by the loads before.
        """
        attempt = self.store.begin(trial.trial_id)
        deployment = self.plan.deployment(trial.deployment_id)
        redactor = Redactor.of(deployment, os.environ)
        recording = LoadRecording(self.store, attempt, redactor.text)
        since = server.log_length()
        try:
            prepared = prepare(_target(deployment, server), trial, self.start)
            prepared = replace(prepared, texts=texts)
            with self.telemetry.during(self.store, attempt):
                self._run_stages(prepared, recording, server)
            end = recording.end()
        except NotRecordedError:
            raise  # the trial goes on where there is room again
        except (InputError, StepError) as error:
            outcome = error.outcome if isinstance(error, StepError) else Outcome.FAILED
            end = TrialEnd(outcome, str(error))
        death = found_dead(server, since) if recording.torn else server.death(since)
        if death is not None:
            require_room(self.run_dir)
            end = end_of_load(death)
        end = TrialEnd(end.outcome, redactor.text(end.reason))
        self.store.end(attempt, end)
        self.watcher.trial_ended(trial, end)
        return death is None

    def _run_stages(
        self, prepared: Prepared, recording: LoadRecording, server: RunningServer
    ) -> None:
        """The trial's one stage, or those that its search asks for."""
        trial = prepared.trial
        if trial.find is None:
            ask = StageAsk(0, 0, trial.arrivals)
            self._run_stage(prepared, ask, recording, self._listener(trial, recording, server))
            return
        # Both need numpy, whose import a sweep of batches need not wait for.
        from tgi_bench.kinds.load.certainty import certainly
        from tgi_bench.kinds.load.figures import SearchAnswer
        from tgi_bench.kinds.load.search import SearchStep, met, next_probe
        from tgi_bench.kinds.load.summary import summarise_stage

        probes: list[SearchStep] = []
        while not isinstance(value := next_probe(trial.find, probes), SearchAnswer):
            seen: list[RequestObservation] = []

            def keep(
                requests: Sequence[RequestObservation], seen: list[RequestObservation] = seen
            ) -> None:
                recording.record(requests)
                seen.extend(requests)

            repeat = sum(probe.value == value for probe in probes)
            step = of_search(trial, value)
            ask = StageAsk(len(probes), repeat, step.arrivals)
            listener = replace(self._listener(step, recording, server), record=keep)
            stage = self._run_stage(replace(prepared, trial=step), ask, recording, listener)
            _require_alive(recording, server)
            summary = summarise_stage(trial, stage, seen)
            probe = SearchStep(value, met(trial, summary), certainly(trial, summary))
            self.watcher.load_tried(trial, ask, probe.met)
            probes.append(probe)

    def _listener(
        self, trial: LoadTrial, recording: LoadRecording, server: RunningServer
    ) -> Listener:
        def progress(told: Progress) -> None:
            _require_alive(recording, server)
            self.watcher.load_progress(trial, told)

        def cut_off(stage: LoadStage) -> None:
            self.store.add(recording.attempt, [stage])

        return Listener(recording.record, progress, _enough(trial), cut_off=cut_off)

    def _run_stage(
        self, prepared: Prepared, ask: StageAsk, recording: LoadRecording, listener: Listener
    ) -> LoadStage:
        trial = prepared.trial
        self.watcher.load_begins(trial, ask)
        stage = run_stage(prepared, ask, listener, self.ahead)
        self.store.add(recording.attempt, [stage])
        return stage

    def _give_up(self, deployment: Deployment, error: LaunchError) -> None:
        require_room(self.run_dir)
        cause = self._redacted(deployment.deployment_id, str(error))
        tail = tuple(self._redacted(deployment.deployment_id, line) for line in error.log_tail)
        self.store.failed(deployment.deployment_id, cause)
        self.watcher.launch_failed(deployment, LaunchError(cause, tail))
        for trial in self._pending(deployment):
            self._end(trial, TrialEnd(Outcome.LAUNCH_FAILED, cause))
        for load in self._pending_loads(deployment):
            end = TrialEnd(Outcome.LAUNCH_FAILED, cause)
            self.store.end_unstarted(load.trial_id, end)
            self.watcher.trial_ended(load, end)

    def _redacted(self, deployment_id: str, text: str) -> str:
        """A server may fail with a secret in its message."""
        return Redactor.of(self.plan.deployment(deployment_id), os.environ).text(text)

    def _clean(self, trial: BatchTrial, end: TrialEnd) -> TrialEnd:
        return TrialEnd(end.outcome, self._redacted(trial.deployment_id, end.reason))

    def _end(self, trial: BatchTrial, end: TrialEnd) -> None:
        """The end of a trial that is not run."""
        self.store.end_unstarted(trial.trial_id, end)
        self.watcher.trial_ended(trial, end)


def _require_alive(recording: LoadRecording, server: RunningServer) -> None:
    """Raise StepError where nothing comes back any more because the server died: what is left
    of the load would tell nothing."""
    if recording.silent and not server.alive():
        raise StepError(Outcome.SERVER_DIED, "the server no longer answers")


def _contact(deployment: Deployment, server: RunningServer) -> Contact:
    verified = AttachOptions.verified(deployment.host)
    return contact(server.endpoint.url, headers_of(deployment, os.environ), verified)


def _target(deployment: Deployment, server: RunningServer) -> LoadTarget:
    """One of somebody else may be of any engine, where the experiment names none but TGI."""
    unknown = deployment.launcher is LauncherKind.ATTACH and deployment.engine is Engine.TGI
    return LoadTarget(
        url=server.endpoint.url,
        engine="" if unknown else deployment.engine.value,
        model=deployment.model,
        headers=headers_of(deployment, os.environ),
        verify_tls=AttachOptions.verified(deployment.host),
    )


def _enough(trial: LoadTrial) -> Callable[[Sequence[RequestObservation]], bool] | None:
    """Whether the trial's interval is narrow enough; None where it does not ask."""
    until = trial.extent.until
    if until is None:
        return None
    from tgi_bench.kinds.load.stopping import narrow_enough

    return lambda requests: narrow_enough(until, trial, requests)


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
    from tgi_bench.drive.shard import Room

    return Room(facts.capacity_tokens, facts.capacity_source)

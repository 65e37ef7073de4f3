"""Loads over HTTP: one stage, or those that a search asks for, recorded as they come."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tgi_bench.analysis.remaining import most_stages
from tgi_bench.drive.load import run_stage
from tgi_bench.drive.preparation import LoadTarget, Prepared, SentTexts, prepare
from tgi_bench.drive.stage import Listener, Progress, StageAsk, of_search
from tgi_bench.engines.engine import Engine
from tgi_bench.errors import InputError, NotRecordedError, StepError
from tgi_bench.kinds.running import Running, Served, Watcher
from tgi_bench.launch.cause import end_of_load, found_dead
from tgi_bench.launch.launcher import RunningServer
from tgi_bench.launch.secrets import headers_of
from tgi_bench.load_observation import LoadPart, LoadStage, RequestObservation, RequestOutcome
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.plan.plan import Deployment
from tgi_bench.record.runs import require_room
from tgi_bench.record.store import RunStore
from tgi_bench.report.durations import counted
from tgi_bench.trials.load import ClosedLoop, LoadTrial, OpenLoop

_TORN = frozenset(
    {
        RequestOutcome.CONNECTION_REFUSED,
        RequestOutcome.CONNECTION_RESET,
        RequestOutcome.INCOMPLETE,
        RequestOutcome.HTTP_ERROR,
        RequestOutcome.SERVER_ERROR,
        RequestOutcome.TIMEOUT,
    }
)
"""How requests end whose server dies."""


class LoadRecording:
    """attempt: number of it, as `begin` gave it. redacted: a text without secrets.

    torn: some of the requests written last ended as those of a dead server; silent: all did.
    """

    def __init__(self, store: RunStore, attempt: int, redacted: Callable[[str], str]) -> None:
        self._store, self.attempt = store, attempt
        self._redacted = redacted
        self._measured_ok = self._sent = False
        self._reasons: dict[str, int] = {}
        self.torn = self.silent = False

    def record(self, requests: Sequence[RequestObservation]) -> None:
        """Write some more."""
        clean = [replace(r, reason=self._redacted(r.reason)) if r.reason else r for r in requests]
        self._store.add(self.attempt, clean)
        for request in clean:
            if request.reason:
                self._reasons[request.reason] = self._reasons.get(request.reason, 0) + 1
            self._sent = self._sent or request.sent_ns is not None
            if request.outcome is RequestOutcome.OK and request.part is LoadPart.MEASURED:
                self._measured_ok = True
        outcomes = {request.outcome for request in clean}
        self.torn, self.silent = bool(outcomes & _TORN), bool(outcomes) and outcomes <= _TORN

    def end(self) -> TrialEnd:
        """OK where one measured request was answered."""
        if self._measured_ok:
            return TrialEnd(Outcome.OK, "")
        if self._reasons:
            most = max(self._reasons, key=lambda r: self._reasons[r])
            return TrialEnd(Outcome.FAILED, f"no request was answered: {most}")
        none = "no request was sent"
        if self._sent:  # in warm-up, and ended in it or after the window
            none = f"{none} and ended within the window, which is too short for one"
        return TrialEnd(Outcome.FAILED, none)


_NOTHING = Progress(share=None, ended=0, failed=0, tokens=0)


@contextmanager
def session(host: Served, running: Running) -> Iterator[Callable[[LoadTrial], bool]]:
    """What sends a load, or a search's many, and gives the trial its end; False if it died."""
    texts = SentTexts()
    yield lambda trial: _Load(trial, host.server, host.deployment, running, texts).run()


@dataclass(slots=True)
class _Load:
    """One trial. texts: that the server was sent by the loads before."""

    trial: LoadTrial
    server: RunningServer
    deployment: Deployment
    running: Running
    texts: SentTexts
    recording: LoadRecording = field(init=False)
    told: LoadTold = field(init=False)

    def run(self) -> bool:
        """As `session` says."""
        trial, server, running = self.trial, self.server, self.running
        attempt = running.store.begin(trial.trial_id)
        self.recording = LoadRecording(running.store, attempt, running.redacted)
        self.told = LoadTold(running.watcher, trial)
        since = server.log_length()
        try:
            prepared = prepare(_target(self.deployment, server), trial, running.start)
            prepared = replace(prepared, texts=self.texts)
            with running.telemetry.during(running.store, attempt):
                self._run_stages(prepared)
            end = self.recording.end()
        except NotRecordedError:
            raise  # the trial goes on where there is room again
        except (InputError, StepError) as error:
            outcome = error.outcome if isinstance(error, StepError) else Outcome.FAILED
            end = TrialEnd(outcome, str(error))
        death = found_dead(server, since) if self.recording.torn else server.death(since)
        if death is not None:
            require_room(running.run_dir)
            end = end_of_load(death)
        end = TrialEnd(end.outcome, running.redacted(end.reason))
        running.store.end(attempt, end)
        running.watcher.ended(trial.trial_id, end)
        return death is None

    def _run_stages(self, prepared: Prepared) -> None:
        """The trial's one stage, or those that its search asks for."""
        trial = self.trial
        if trial.find is None:
            self._run_stage(prepared, StageAsk(0, 0, trial.arrivals), self.recording.record)
            return
        # Both need numpy, whose import a sweep of batches need not wait for.
        from tgi_bench.kinds.load.figures import SearchAnswer
        from tgi_bench.kinds.load.search import SearchStep, certainly, met, next_probe
        from tgi_bench.kinds.load.summary import summarise_stage

        probes: list[SearchStep] = []
        while not isinstance(value := next_probe(trial.find, probes), SearchAnswer):
            seen: list[RequestObservation] = []

            def keep(
                requests: Sequence[RequestObservation], seen: list[RequestObservation] = seen
            ) -> None:
                self.recording.record(requests)
                seen.extend(requests)

            repeat = sum(probe.value == value for probe in probes)
            step = of_search(trial, value)
            ask = StageAsk(len(probes), repeat, step.arrivals)
            stage = self._run_stage(replace(prepared, trial=step), ask, keep)
            self._require_alive()
            summary = summarise_stage(trial, stage, seen)
            probe = SearchStep(value, met(trial, summary), certainly(trial, summary))
            self.told.tried(ask, probe.met)
            probes.append(probe)

    def _run_stage(
        self,
        prepared: Prepared,
        ask: StageAsk,
        record: Callable[[Sequence[RequestObservation]], None],
    ) -> LoadStage:
        def keep(stage: LoadStage) -> None:
            self.running.store.add(self.recording.attempt, [stage])

        self.told.begins(ask)
        listener = Listener(record, self._progress, _enough(prepared.trial), cut_off=keep)
        stage = run_stage(prepared, ask, listener, self.running.ahead)
        keep(stage)
        return stage

    def _progress(self, told: Progress) -> None:
        self._require_alive()
        self.told.progress(told)

    def _require_alive(self) -> None:
        """Raise StepError where nothing comes back any more because the server died: what is left
        of the load would tell nothing."""
        if self.recording.silent and not self.server.alive():
            raise StepError(Outcome.SERVER_DIED, "the server no longer answers")


def _target(deployment: Deployment, server: RunningServer) -> LoadTarget:
    """One of somebody else may be of any engine, where the experiment names none but TGI."""
    unknown = deployment.launcher.said_by_server and deployment.engine is Engine.TGI
    return LoadTarget(
        url=server.endpoint.url,
        engine="" if unknown else deployment.engine.value,
        model=deployment.model,
        headers=headers_of(deployment, os.environ),
        verify_tls=deployment.launcher.verify_tls,
    )


def _enough(trial: LoadTrial) -> Callable[[Sequence[RequestObservation]], bool] | None:
    """Whether the trial's interval is narrow enough; None where it does not ask."""
    until = trial.extent.until
    if until is None:
        return None
    from tgi_bench.kinds.load.slo import narrow_enough

    return lambda requests: narrow_enough(until, trial, requests)


class LoadTold:
    """What a watcher is told of a load, in words."""

    def __init__(self, watcher: Watcher, trial: LoadTrial) -> None:
        self._watcher, self._trial = watcher, trial
        self._earlier = self._stage = _NOTHING
        self._trying = ""

    def begins(self, ask: StageAsk) -> None:
        """A load is about to be sent; of a search, with the value that it tries."""
        self._earlier, self._stage = added(self._earlier, self._stage), _NOTHING
        if ask.index == 0:
            self._watcher.begins(self._trial.trial_id, asked(ask))
        if self._trial.find is not None:
            at_most = most_stages(self._trial.find)
            self._trying = f"{asked(ask)}, load {ask.index + 1} of {at_most} at most"
            self._watcher.part_begins(self._trial.trial_id, self._trying)

    def progress(self, stage: Progress) -> None:
        """How far it is: its workers keep the time, so that a redraw moves no send."""
        self._stage = stage
        value = f"{self._trying}: " if self._trying else ""
        share = line = ""
        if stage.share is not None:
            share = f"{stage.share:.0%}   "
            line = f"{value}{stage.share:.0%}, {counts(stage)}"
        result = counts(added(self._earlier, stage))
        now = f"{value}{share}{counts(stage)}"
        self._watcher.going(self._trial.trial_id, now, result, line)

    def tried(self, ask: StageAsk, met: bool) -> None:
        """One load of a search is over: which way the search goes."""
        word = "SLOs met" if met else "SLOs missed"
        said = f"{asked(ask)}: {word}, {counts(self._stage)}"
        self._watcher.part_ended(self._trial.trial_id, said)


def asked(ask: StageAsk) -> str:
    """ "concurrency 8", "4.5 requests/s"; "" where the arrivals change with time."""
    match ask.arrivals:
        case ClosedLoop(concurrency):
            return f"concurrency {concurrency}"
        case OpenLoop(rate_per_s=rate) if rate is not None:
            return f"{rate:.4g} requests/s"
        case _:
            return ""


def counts(progress: Progress) -> str:
    """ "120 requests, 15360 tokens, 2 failed"."""
    failed = f", {progress.failed} failed" if progress.failed else ""
    return f"{counted(progress.ended, 'request')}, {progress.tokens} tokens{failed}"


def added(one: Progress, other: Progress) -> Progress:
    """The counts of both, as of two steps of a search."""
    return Progress(
        share=None,
        ended=one.ended + other.ended,
        failed=one.failed + other.failed,
        tokens=one.tokens + other.tokens,
    )

"""One stage on its way: requests are handed to the workers, their answers read as they come."""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tgi_bench.dialects.answer import Reading
from tgi_bench.dialects.reading import read_answer
from tgi_bench.drive import channel as w
from tgi_bench.drive.feeding import (
    ClosedFeeder,
    ConversationFeeder,
    Feeder,
    RequestMaker,
    TimedFeeder,
)
from tgi_bench.drive.preparation import Prepared
from tgi_bench.drive.refusal import together
from tgi_bench.drive.server_host import HostWatch
from tgi_bench.drive.stage import (
    NO_END,
    Listener,
    Parts,
    Progress,
    StageAsk,
    ended_by,
    most_requests,
    planned_length_ns,
    trace_requests,
)
from tgi_bench.drive.workers import WorkerProcess, answers, heard
from tgi_bench.errors import StepError
from tgi_bench.load_observation import (
    ClientFacts,
    LoadPart,
    LoadStage,
    RequestObservation,
    RequestOutcome,
    StageConditions,
    Waits,
)
from tgi_bench.observation import Outcome
from tgi_bench.plan.arrivals import send_offsets_ns
from tgi_bench.plan.workload import RequestSpec, requests
from tgi_bench.trials.load import ClosedLoop, OpenLoop, TraceTimes

_LEAD_NS = 3_000_000
_TIMED_LEAD_NS = 20_000_000
"""Enough to make the first requests, which need to know when the start is."""
_LOOK_S = 0.02
_RECORD_NS = 1_000_000_000
_SLACK_NS = 5_000_000_000
_CUT_S = 2.0


class NamesHeard:
    """Which models and builds the answers of a stage named."""

    def __init__(self) -> None:
        self._models: Counter[str] = Counter()
        self._fingerprints: Counter[str] = Counter()
        self._two_models = 0

    def hear(self, reading: Reading) -> None:
        """One answer more."""
        self._models.update(reading.models)
        self._fingerprints.update(reading.fingerprints)
        self._two_models += len(reading.models) > 1

    def kept_in(self, conditions: StageConditions) -> StageConditions:
        """The conditions with these, the most frequent first."""
        return replace(
            conditions,
            answered_by=tuple(self._models.most_common()),
            two_models=self._two_models,
            fingerprints=tuple(self._fingerprints.most_common()),
        )


class Stage:
    """One load on its way."""

    def __init__(
        self,
        prepared: Prepared,
        ask: StageAsk,
        listener: Listener,
        workers: Sequence[WorkerProcess],
        host: HostWatch,
    ) -> None:
        self._prepared = prepared
        self._trial = prepared.trial
        self._ask = ask
        self._listener = listener
        self._workers = workers
        self._maker = RequestMaker(prepared, ask.index)
        self._stream = f"{prepared.trial.trial_id}/{ask.index}"
        self._new: list[RequestObservation] = []
        self._measured: list[RequestObservation] = []
        self._ended = self._failed = self._tokens = 0
        self._next_record_ns = 0
        self._stopped_ns: int | None = None
        self._last_answered_ns = 0
        self._after_head_ns = array("q")
        self._host = host
        self._names = NamesHeard()
        self._kernel_stamps = True
        self._stamp_reason = ""

    def run(self, ready: Sequence[w.Ready]) -> LoadStage:
        """From the first job to the last answer."""
        reasons = [one.stamp_reason for one in ready if one.stamp_reason]
        self._kernel_stamps, self._stamp_reason = not reasons, "; ".join(dict.fromkeys(reasons))
        cpu_ns = time.process_time_ns()
        self._prepared.texts.begin()
        start_ns = self._start()
        self._host.load_begins(worker.pid for worker in self._workers)
        try:
            self._drive(start_ns)
        except (KeyboardInterrupt, StepError) as error:
            self._cut()
            self._never_sent()
            self._flush()
            died = isinstance(error, StepError)
            if died:  # after its last answer nothing was measured any more
                self._stopped_ns = self._last_answered_ns or self._stopped_ns
            reason = str(error) if died else "interrupted"
            self._listener.cut_off(self._stage(start_ns, cpu_ns, reason))
            raise
        self._never_sent()
        self._flush()
        self._show(time.monotonic_ns(), start_ns, planned_length_ns(self._trial.extent))
        if all(worker.done is None for worker in self._workers):
            raise StepError(Outcome.FAILED, "no worker of the load client said that it was done")
        return self._stage(start_ns, cpu_ns, "")

    def _stage(self, start_ns: int, cpu_ns: int, cut_off: str) -> LoadStage:
        """What it was. cpu_ns: of this process at its beginning."""
        ended_ns = max(self._last_ended_ns, start_ns)
        client = self._client(time.process_time_ns() - cpu_ns, ended_ns - start_ns)
        begin_ns, end_ns = self._parts.window(self._stopped_ns)
        arrivals = self._ask.arrivals
        return LoadStage(
            index=self._ask.index,
            concurrency=arrivals.concurrency if isinstance(arrivals, ClosedLoop) else None,
            rate_per_s=arrivals.rate_per_s if isinstance(arrivals, OpenLoop) else None,
            repeat=self._ask.repeat,
            began_ns=start_ns,
            ended_ns=ended_ns,
            measured_from_ns=begin_ns,
            measured_until_ns=end_ns,
            dialect=self._prepared.abilities.dialect.name,
            client=client,
            details=self._prepared.details,
            cut_off=cut_off,
            conditions=self._conditions(),
        )

    def _conditions(self) -> StageConditions:
        found = self._names.kept_in(self._prepared.conditions)
        control = found.small_writes
        if control is not None and self._after_head_ns:
            middle = sorted(self._after_head_ns)[len(self._after_head_ns) // 2]
            control = replace(control, load_after_head_ns=middle)
        host = self._host.end(worker.pid for worker in self._workers)
        texts, waits = self._prepared.texts.counted, self._waits()
        return replace(found, waits=waits, small_writes=control, host=host, prompts=texts)

    def _waits(self) -> Waits:
        done = [worker.done for worker in self._workers if worker.done is not None]
        return together((self._feeder.waits, *(Waits(*one.waits) for one in done)))

    def _start(self) -> int:
        """Hand over what must be there at the start, and start; returns when that is."""
        trial, count = self._trial, len(self._workers)
        once = isinstance(self._ask.arrivals, TraceTimes)
        prepared = self._prepared
        specs = requests(trial.workload, self._stream, prepared.corpus, once, prepared.start)
        closed = isinstance(self._ask.arrivals, ClosedLoop)
        if closed and trial.workload.turns is None:
            self._feeder: Feeder = self._closed(specs)
            self._hand_over(self._feeder.jobs(time.monotonic_ns()))
        talks: ConversationFeeder | None = None
        if closed and trial.workload.turns is not None:
            assert isinstance(self._ask.arrivals, ClosedLoop)
            users = (self._ask.arrivals.concurrency, count)
            talks = ConversationFeeder(self._maker, specs, users, most_requests(trial.extent))
        timed = talks is not None or not closed
        start_ns = time.monotonic_ns() + (_TIMED_LEAD_NS if timed else _LEAD_NS)
        self._parts = Parts(trial.extent, start_ns)
        self._last_ended_ns = start_ns
        if talks is not None:
            planned_ns = planned_length_ns(trial.extent)
            talks.begin(start_ns, None if planned_ns is None else start_ns + planned_ns)
            self._feeder = talks
            self._hand_over(talks.jobs(time.monotonic_ns()))
        elif not closed:
            self._feeder = TimedFeeder(self._maker, *self._timed(specs, start_ns), count)
            self._hand_over(self._feeder.jobs(time.monotonic_ns()))
        for worker in self._workers:
            worker.send((w.START, start_ns))
        return start_ns

    def _closed(self, specs: Iterator[RequestSpec]) -> ClosedFeeder:
        assert isinstance(self._ask.arrivals, ClosedLoop)
        slots = tuple(shares(self._ask.arrivals.concurrency, len(self._workers)))
        return ClosedFeeder(self._maker, specs, slots, most_requests(self._trial.extent))

    def _timed(
        self, specs: Iterator[RequestSpec], start_ns: int
    ) -> tuple[Iterator[RequestSpec], Iterator[int]]:
        extent, arrivals = self._trial.extent, self._ask.arrivals
        if isinstance(arrivals, TraceTimes):
            return trace_requests(specs, arrivals, start_ns, extent)
        assert isinstance(arrivals, OpenLoop)
        offsets = send_offsets_ns(arrivals, planned_length_ns(extent), self._stream)
        most = most_requests(extent)
        due_ns = (start_ns + offset for number, offset in enumerate(offsets) if number < most)
        return specs, ended_by(due_ns, most)

    def _drive(self, start_ns: int) -> None:
        """Feed and hear until every worker is done."""
        planned_ns = planned_length_ns(self._trial.extent)
        told = False
        while not all(worker.done for worker in self._workers):
            now = time.monotonic_ns()
            if self._stopped_ns is None:
                self._hand_over(self._feeder.jobs(now))
            if not told and self._feeder.exhausted(now):
                told = True
                self._tell((w.LAST,))
            for _, message in heard(self._workers, _LOOK_S):
                if message[0] == w.ANSWERS:
                    self._read(answers(message))
            self._now_and_then(now, start_ns, planned_ns)

    def _now_and_then(self, now: int, start_ns: int, planned_ns: int | None) -> None:
        if now < self._next_record_ns:
            return
        self._next_record_ns = now + _RECORD_NS
        self._flush()
        self._host.look()
        self._show(now, start_ns, planned_ns)
        enough = self._listener.enough
        if self._stopped_ns is None and enough is not None and enough(self._measured):
            self._stopped_ns = now
            self._tell((w.DRAIN,))
        if planned_ns is not None:
            latest_ns = start_ns + planned_ns + self._trial.request_timeout_ns + _SLACK_NS
            if now > latest_ns + _SLACK_NS:
                raise StepError(Outcome.FAILED, "a worker process of the load client hangs")
            if now > latest_ns:
                self._tell((w.CUT,))

    def _show(self, now: int, start_ns: int, planned_ns: int | None) -> None:
        share = None
        most = most_requests(self._trial.extent)
        if planned_ns is not None:
            share = min(1.0, max(0.0, (now - start_ns) / planned_ns))
        if most < NO_END:
            share = max(share or 0.0, min(1.0, self._ended / most))
        self._listener.progress(Progress(share, self._ended, self._failed, self._tokens))

    def _hand_over(self, jobs: list[tuple[int, w.JobFields]]) -> None:
        for worker in self._workers:
            mine = [job for index, job in jobs if index == worker.index]
            if mine:
                worker.send((w.JOBS, mine))

    def _tell(self, message: tuple[str]) -> None:
        for worker in self._workers:
            if worker.done is None:
                worker.send(message)

    def _read(self, answered: Sequence[w.Answered]) -> None:
        for fields in answered:
            returned = w.Returned.of(fields)
            handed = self._feeder.book[returned.number]
            reading = read_answer(
                returned.answer,
                self._prepared.abilities,
                self._trial.stream,
                handed.ask,
                self._prepared.count_tokens,
            )
            self._feeder.answered(returned, reading)
            self._names.hear(reading)
            if returned.sent_ns is not None and not handed.spec.turn:
                made = handed.spec.prompt_tokens is not None
                self._prepared.texts.add(handed.ask, made)
            self._keep(
                RequestObservation(
                    stage=self._ask.index,
                    request_index=returned.number,
                    worker=handed.worker,
                    part=self._parts.of(returned.number, returned.intended_ns),
                    conversation=handed.spec.conversation,
                    turn=handed.spec.turn,
                    intended_ns=returned.intended_ns,
                    sent_ns=returned.sent_ns,
                    ended_ns=returned.answer.ended_ns,
                    event_ns=reading.event_ns,
                    event_tokens=reading.event_tokens,
                    events=reading.events,
                    shared_reads=reading.shared_reads,
                    prompt_tokens_asked=handed.ask.prompt_tokens,
                    prompt_tokens=reading.prompt_tokens,
                    cached_tokens=reading.cached_tokens,
                    output_tokens_asked=handed.ask.output_tokens,
                    output_tokens=reading.output_tokens,
                    counted_by=reading.counted_by,
                    finish_reason=reading.finish_reason,
                    status=returned.answer.status,
                    new_connection=returned.new_connection,
                    kernel_stamps=self._kernel_stamps,
                    outcome=reading.outcome,
                    reason=reading.reason,
                    tokens_told=reading.tokens_told,
                    first_told=reading.first_told,
                    text_tokens=reading.text_tokens,
                    resent=returned.resent,
                ),
                returned.answer.head_ns,
            )

    def _keep(self, request: RequestObservation, head_ns: int | None) -> None:
        self._new.append(request)
        self._ended += 1
        self._failed += request.outcome is not RequestOutcome.OK
        self._tokens += request.output_tokens
        self._last_ended_ns = max(self._last_ended_ns, request.ended_ns)
        if request.outcome is RequestOutcome.OK:
            self._last_answered_ns = max(self._last_answered_ns, request.ended_ns)
            if head_ns is not None and request.event_ns:
                self._after_head_ns.append(request.event_ns[0] - head_ns)
        self._parts.seen(request)
        if self._listener.enough is not None and request.part is LoadPart.MEASURED:
            self._measured.append(request)

    def _flush(self) -> None:
        if self._new:
            self._listener.record(self._new)
            self._new = []

    def _never_sent(self) -> None:
        """What a worker had a time for, that was past, and did not send; of one that was lost
        whatever had a time, for nobody knows what became of it."""
        now = time.monotonic_ns()
        last_ns = min(now, self._stopped_ns or now)
        late = [h for h in self._feeder.book.values() if 0 < h.due_ns <= last_ns]
        dropped = (RequestOutcome.DROPPED, "the load ended before it could be sent")
        lost = (RequestOutcome.CUT_OFF, "its worker process ended early")
        for handed in late:
            outcome, why = dropped if self._workers[handed.worker].done else lost
            nothing = (0, True, 0, b"", b"", b"", b"", 0, now, outcome.value, why, 0)
            self._read([(handed.number, handed.due_ns, *nothing)])

    def _cut(self) -> None:
        """End what is in flight and hear of it; nothing that is due later is missed."""
        self._stopped_ns = self._stopped_ns or time.monotonic_ns()
        self._tell((w.CUT,))
        deadline = time.monotonic() + _CUT_S
        while time.monotonic() < deadline:
            living = [one for one in self._workers if one.done is None and not one.lost]
            if not living:
                return
            for _, message in heard(living, _LOOK_S):
                if message[0] == w.ANSWERS:
                    self._read(answers(message))

    def _client(self, parent_cpu_ns: int, wall_ns: int) -> ClientFacts:
        done = [worker.done for worker in self._workers if worker.done is not None]
        return ClientFacts(
            workers=len(done),
            worker_cpu_ns=tuple(one.cpu_ns for one in done),
            parent_cpu_ns=parent_cpu_ns,
            wall_ns=wall_ns,
            kernel_stamps=self._kernel_stamps,
            stamp_reason=self._stamp_reason,
            clock_step_ns=max((one.clock_step_ns for one in done), key=abs, default=0),
            connections_opened=sum(one.opened for one in done),
            connections_reopened=sum(one.reopened for one in done),
        )


def shares(total: int, count: int) -> list[int]:
    """total in count parts as alike as can be."""
    return [total // count + (1 if i < total % count else 0) for i in range(count)]

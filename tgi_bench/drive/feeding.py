"""Which request goes to which worker, as which bytes, and when: closed loop, timed, and
conversations."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from tgi_bench.dialects.answer import Reading
from tgi_bench.dialects.dialect import Ask, AskOptions, request_bytes
from tgi_bench.drive import refusal
from tgi_bench.drive.channel import JobFields, Returned
from tgi_bench.drive.preparation import Prepared
from tgi_bench.load_observation import RequestOutcome, Waits
from tgi_bench.plan.workload import RequestSpec

History = tuple[tuple[str, str], ...]
REQUEST_ID = "x-request-id"
"""A header with "<stage>-<number>", by which a server's log can be laid beside a run."""


class RequestMaker:
    """Makes the requests of one stage."""

    def __init__(self, prepared: Prepared, stage: int) -> None:
        self._prepared = prepared
        self._stage = stage

    def question(self, spec: RequestSpec) -> History:
        """What a request adds to a conversation: its text as long as it must be, or a file's."""
        if spec.messages:
            return spec.messages
        return (("user", self._prepared.fitted(spec)),)

    def make(self, number: int, spec: RequestSpec, messages: History) -> tuple[Ask, bytes]:
        """The request that sends these messages, the last of them the new one.

        A later prompt is as long as its conversation has become: only a first one is exact.
        """
        prepared = self._prepared
        whole = len(messages) > 1
        asked_tokens = None if whole else spec.prompt_tokens
        ask = prepared.abilities.dialect.ask(messages, asked_tokens, spec.output_tokens)
        options = AskOptions(
            host=prepared.host,
            stream=prepared.trial.stream,
            sampling=prepared.trial.sampling,
            base_path=prepared.base_path,
            headers=(*prepared.headers, (REQUEST_ID, f"{self._stage}-{number}")),
        )
        return ask, request_bytes(ask, prepared.abilities, options)


_AHEAD_NS = 2_000_000_000
"""Requests with a time are handed over that long before it."""
_MOST_AT_ONCE = 512
_MOST_TIMED_AT_ONCE = 64
"""A worker takes them in between sends: that must not make one of them late."""
_LEAST_BACKLOG = 32
_AFTER_FAILURE_NS = 100_000_000
_PREPARED_AT_ONCE = 4
_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Handed:
    """A request that a worker has. due_ns: 0 where it has no time: a closed loop."""

    number: int
    worker: int
    due_ns: int
    spec: RequestSpec
    ask: Ask


class Feeder(Protocol):
    """Makes the jobs of one stage. book: what was handed over and has not come back.

    waits: of what it holds back because the server refused; a worker knows its own.
    """

    book: dict[int, Handed]
    waits: Waits

    def jobs(self, now_ns: int) -> list[tuple[int, JobFields]]:
        """(worker, job) of what is to be handed over now."""

    def answered(self, returned: Returned, reading: Reading) -> None:
        """One came back; it is in the book no more."""

    def exhausted(self, now_ns: int) -> bool:
        """Whether no further job will come."""


class ClosedFeeder:
    """A backlog for each worker, which sends the next one when a slot is free."""

    def __init__(
        self, maker: RequestMaker, specs: Iterator[RequestSpec], slots: tuple[int, ...], most: int
    ) -> None:
        """slots: of each worker. most: requests in all."""
        self.book: dict[int, Handed] = {}
        self.waits = Waits()
        self._maker, self._specs = maker, specs
        self._slots = slots
        self._out = [0] * len(slots)
        self._recent: list[deque[int]] = [deque() for _ in slots]
        self._number = 0
        self._most = most
        self._first = True

    def jobs(self, now_ns: int) -> list[tuple[int, JobFields]]:
        """At first one for each slot, so that the start waits for no more."""
        made: list[tuple[int, JobFields]] = []
        for worker, slots in enumerate(self._slots):
            wanted = slots if self._first else self._backlog(worker, now_ns)
            count = wanted - self._out[worker]
            for _ in range(count if self._first else min(count, _MOST_AT_ONCE)):
                if (job := self._next(worker)) is None:
                    return made
                made.append((worker, job))
        self._first = False
        return made

    def _backlog(self, worker: int, now_ns: int) -> int:
        """As many as it may need in the next second: twice what it took in the last."""
        recent = self._recent[worker]
        while recent and recent[0] < now_ns - _SECOND_NS:
            recent.popleft()
        return self._slots[worker] + max(self._slots[worker], _LEAST_BACKLOG, 2 * len(recent))

    def _next(self, worker: int) -> JobFields | None:
        if self._number >= self._most:
            return None
        spec = next(self._specs, None)
        if spec is None:
            self._most = self._number
            return None
        number, self._number = self._number, self._number + 1
        ask, request = self._maker.make(number, spec, self._maker.question(spec))
        self.book[number] = Handed(number, worker, 0, spec, ask)
        self._out[worker] += 1
        return number, 0, request

    def answered(self, returned: Returned, reading: Reading) -> None:
        """Its slot is free."""
        del reading
        handed = self.book.pop(returned.number)
        self._out[handed.worker] -= 1
        self._recent[handed.worker].append(time.monotonic_ns())

    def exhausted(self, now_ns: int) -> bool:
        """Whether the asked number was handed over."""
        del now_ns
        return self._number >= self._most


class TimedFeeder:
    """Requests at their own times, to one worker after the other."""

    def __init__(
        self,
        maker: RequestMaker,
        specs: Iterator[RequestSpec],
        due_ns: Iterator[int],
        workers: int,
    ) -> None:
        """due_ns: absolute, ascending; the shorter one of it and specs ends the stage."""
        self.book: dict[int, Handed] = {}
        self.waits = Waits()
        self._maker, self._specs, self._due_ns = maker, specs, due_ns
        self._workers = workers
        self._number = 0
        self._next_due_ns = next(due_ns, None)

    def jobs(self, now_ns: int) -> list[tuple[int, JobFields]]:
        """Those of the next two seconds."""
        made: list[tuple[int, JobFields]] = []
        while self._next_due_ns is not None and len(made) < _MOST_TIMED_AT_ONCE:
            if self._next_due_ns > now_ns + _AHEAD_NS:
                break
            spec = next(self._specs, None)
            if spec is None:
                self._next_due_ns = None
                break
            number, self._number = self._number, self._number + 1
            worker, due_ns = number % self._workers, self._next_due_ns
            ask, request = self._maker.make(number, spec, self._maker.question(spec))
            self.book[number] = Handed(number, worker, due_ns, spec, ask)
            made.append((worker, (number, due_ns, request)))
            self._next_due_ns = next(self._due_ns, None)
        return made

    def answered(self, returned: Returned, reading: Reading) -> None:
        """Nothing follows from it."""
        del reading
        del self.book[returned.number]

    def exhausted(self, now_ns: int) -> bool:
        """Whether the schedule is over."""
        del now_ns
        return self._next_due_ns is None


@dataclass(frozen=True, slots=True)
class _Question:
    """The next request of a user, made before its time."""

    number: int
    spec: RequestSpec
    ask: Ask
    request: bytes


@dataclass(slots=True)
class _User:
    """One of those who talk at once. history: of the running conversation.

    words: what the next question adds to it, where that is known before its answer.
    due_ns: of the next question: 0: at once; None while an answer is awaited, and at the end.
    refusals: in a row.
    """

    index: int
    turns: deque[RequestSpec]
    history: History
    words: History | None
    question: _Question | None
    due_ns: int | None
    refusals: int = 0


class ConversationFeeder:
    """Users who talk at once: each waits for its answer, thinks, and goes on.

    Who does not think sends when the answer is known, as a closed loop does: such a question has
    no time that it could be late for.
    """

    def __init__(
        self,
        maker: RequestMaker,
        specs: Iterator[RequestSpec],
        users: tuple[int, int],
        most: int,
    ) -> None:
        """Makes each user's first question. users: (how many, workers). most: requests in all."""
        self.book: dict[int, Handed] = {}
        self.waits = Waits()
        self._maker, self._specs = maker, specs
        count, self._workers = users
        self._end_ns: int | None = None
        self._most = most
        self._asked_by: dict[int, _User] = {}
        self._ahead: RequestSpec | None = next(specs, None)
        self._number = 0
        self._users = [_User(i, deque(), (), None, None, None) for i in range(count)]
        self._unprepared: deque[_User] = deque()
        for user in self._users:
            self._make(user)

    def begin(self, begin_ns: int, end_ns: int | None) -> None:
        """All ask at the start; nobody asks at end_ns or later (None: the number ends it)."""
        del begin_ns
        self._end_ns = end_ns
        for user in self._users:
            user.due_ns = 0

    def jobs(self, now_ns: int) -> list[tuple[int, JobFields]]:
        """The next question of each user who has one; where there is none, others are prepared."""
        made: list[tuple[int, JobFields]] = []
        if self._over(now_ns):
            return made
        for user in self._users:
            if user.due_ns is None:
                continue
            if user.question is None:
                self._make(user)
            if user.question is not None:
                made.append(self._handed(user, user.question, user.due_ns))
            user.due_ns = None
        if not made:
            self._prepare_some()
        return made

    def _prepare_some(self) -> None:
        """While answers are awaited: a later turn's words, or all of another conversation's
        first question."""
        for _ in range(min(_PREPARED_AT_ONCE, len(self._unprepared))):
            user = self._unprepared.popleft()
            if user.question is not None or user.due_ns is not None:
                continue
            if not user.turns:
                self._make(user)
            elif user.words is None:
                user.words = self._maker.question(user.turns[0])

    def _make(self, user: _User) -> None:
        """Its next question, where there is one."""
        if self._number >= self._most:
            return
        if not user.turns:
            self._take_conversation(user)
        if not user.turns:
            return
        spec = user.turns.popleft()
        number, self._number = self._number, self._number + 1
        words, user.words = user.words, None
        user.history = (*user.history, *(words or self._maker.question(spec)))
        ask, request = self._maker.make(number, spec, user.history)
        user.question = _Question(number, spec, ask, request)

    def _take_conversation(self, user: _User) -> None:
        user.history, user.words = (), None
        if self._ahead is None:
            return
        current = self._ahead.conversation
        while self._ahead is not None and self._ahead.conversation == current:
            user.turns.append(self._ahead)
            self._ahead = next(self._specs, None)

    def _handed(self, user: _User, question: _Question, due_ns: int) -> tuple[int, JobFields]:
        worker = user.index % self._workers
        number = question.number
        self.book[number] = Handed(number, worker, due_ns, question.spec, question.ask)
        self._asked_by[number] = user
        user.question = None
        self._unprepared.append(user)
        return worker, (number, due_ns, question.request)

    def answered(self, returned: Returned, reading: Reading) -> None:
        """Its user goes on, or after a failure begins another conversation."""
        del self.book[returned.number]
        user = self._asked_by.pop(returned.number)
        wait_ns = 0
        refused = reading.outcome is RequestOutcome.OVERLOADED
        if refused:
            wait_ns = refusal.wait_ns(returned.answer.headers, user.refusals)
        elif reading.outcome is not RequestOutcome.OK:
            wait_ns = _AFTER_FAILURE_NS
        elif user.question is None and user.turns:
            wait_ns = user.turns[0].think_ns
        if user.question is None:  # else another conversation was prepared, which knows neither
            if reading.outcome is RequestOutcome.OK:
                user.history = (*user.history, ("assistant", reading.text))
            else:
                user.turns.clear()
        due_ns = returned.answer.ended_ns + wait_ns
        over = self._end_ns is not None and due_ns >= self._end_ns
        user.refusals = user.refusals + 1 if refused else 0
        if refused:
            left_ns = wait_ns if self._end_ns is None else self._end_ns - returned.answer.ended_ns
            self.waits = refusal.with_one(self.waits, max(0, min(wait_ns, left_ns)))
        user.due_ns = None if over else due_ns if wait_ns else 0

    def exhausted(self, now_ns: int) -> bool:
        """Whether the asked number was asked, or the time is over, or nobody waits."""
        if self._over(now_ns):
            return True
        if any(user.due_ns is not None or user.question is not None for user in self._users):
            return False
        return self._number >= self._most or not self._asked_by

    def _over(self, now_ns: int) -> bool:
        return self._end_ns is not None and now_ns >= self._end_ns

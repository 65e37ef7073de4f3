"""From a client's request to its tokens: permits, validation, queue, timing."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass

from tgi_bench.server.router.failure import RequestError, incomplete, overloaded
from tgi_bench.server.router.metrics import Metrics
from tgi_bench.server.router.validation import GenerateRequest, Validator, ValidRequest
from tgi_bench.server.router.waiting import Entry, NewToken, WaitingQueue
from tgi_bench.wire.messages import GeneratedText, Token


@dataclass(frozen=True, slots=True)
class Timing:
    """When one request arrived, was queued, entered a batch and ended: monotonic ns."""

    arrived_ns: int
    queued_ns: int
    started_ns: int
    ended_ns: int

    @property
    def total_ns(self) -> int:
        """The whole request."""
        return self.ended_ns - self.arrived_ns

    @property
    def validation_ns(self) -> int:
        """Arrival to queue."""
        return self.queued_ns - self.arrived_ns

    @property
    def queue_ns(self) -> int:
        """Queue to batch."""
        return self.started_ns - self.queued_ns

    @property
    def inference_ns(self) -> int:
        """Batch to the last token; the prefill step is in it."""
        return self.ended_ns - self.started_ns

    def per_token_ns(self, generated_tokens: int) -> float:
        """inference / generated tokens: TGI's figure, which is not TPOT."""
        return self.inference_ns / generated_tokens


@dataclass(frozen=True, slots=True)
class Sequence:
    """One whole answer. top_tokens: one tuple a token, empty where not asked for."""

    input_tokens: int
    prefill: tuple[Token, ...]
    tokens: tuple[Token, ...]
    top_tokens: tuple[tuple[Token, ...], ...]
    end: GeneratedText
    timing: Timing

    @property
    def mean_logprob(self) -> float:
        """What best_of compares."""
        return sum(token.logprob for token in self.tokens) / len(self.tokens)


@dataclass(frozen=True, slots=True)
class Stream:
    """The tokens of one request as they come. `events` must be closed (aclosing)."""

    input_tokens: int
    events: AsyncGenerator[NewToken, None]


class Inference:
    """Answers requests. Each takes a permit; without a free one it is refused at once."""

    def __init__(
        self, validator: Validator, waiting: WaitingQueue, metrics: Metrics, permits: int
    ) -> None:
        self.validator = validator
        self._waiting = waiting
        self._metrics = metrics
        self._free_permits = permits
        self._ids = itertools.count()

    async def generate(self, request: GenerateRequest) -> tuple[Sequence, tuple[Sequence, ...]]:
        """The best answer and, with best_of > 1, the others. Raises RequestError."""
        with self._counted():
            count = self.validator.best_of(request.parameters.best_of)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_settled(self._one(request))) for _ in range(count)]
            sequences = []
            for task in tasks:
                outcome = task.result()
                if isinstance(outcome, RequestError):
                    raise outcome
                sequences.append(outcome)
            best = max(sequences, key=lambda sequence: sequence.mean_logprob)
            self._measure(best.timing, best.end)
            return best, tuple(other for other in sequences if other is not best)

    @contextmanager
    def open_stream(self, request: GenerateRequest) -> Iterator[Stream]:
        """The tokens of one answer. Raises RequestError, before or between the tokens."""
        with self._counted(), self._permit():
            arrived_ns = time.monotonic_ns()
            self.validator.streamable(request.parameters)
            valid = self._validate(request)
            yield Stream(valid.input_tokens, self._events(valid, arrived_ns))

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._metrics.requests.inc()
        try:
            yield
        except RequestError as failure:
            self._metrics.failures.labels(failure.kind.value.label).inc()
            raise

    @contextmanager
    def _permit(self) -> Iterator[None]:
        if not self._free_permits:
            raise overloaded()
        self._free_permits -= 1
        try:
            yield
        finally:
            self._free_permits += 1

    def _validate(self, request: GenerateRequest) -> ValidRequest:
        valid = self.validator.validate(request)
        self._metrics.input_tokens.observe(valid.input_tokens)
        self._metrics.max_new_tokens.observe(valid.stopping.max_new_tokens)
        return valid

    async def _one(self, request: GenerateRequest) -> Sequence:
        with self._permit():
            arrived_ns = time.monotonic_ns()
            valid = self._validate(request)
            entry = Entry(next(self._ids), valid)
            tokens: list[Token] = []
            top: list[tuple[Token, ...]] = []
            prefill: tuple[Token, ...] = ()
            end: GeneratedText | None = None
            async with aclosing(self._read(entry)) as events:
                async for event in events:
                    tokens.append(event.token)
                    top.append(event.top_tokens)
                    prefill = prefill or event.prefill_tokens
                    end = event.end
            if end is None:
                raise incomplete()
            return Sequence(
                input_tokens=valid.input_tokens,
                prefill=prefill,
                tokens=tuple(tokens),
                top_tokens=tuple(top) if valid.top_n_tokens else (),
                end=end,
                timing=_timing(entry, arrived_ns),
            )

    async def _events(self, valid: ValidRequest, arrived_ns: int) -> AsyncGenerator[NewToken, None]:
        entry = Entry(next(self._ids), valid)
        async with aclosing(self._read(entry)) as events:
            async for event in events:
                if event.end is not None:
                    self._measure(_timing(entry, arrived_ns), event.end)
                yield event

    async def _read(self, entry: Entry) -> AsyncGenerator[NewToken, None]:
        """Queue a request and give its tokens; one that is not read to its end is gone."""
        self._waiting.append(entry)
        try:
            while True:
                event = await entry.events.get()
                if isinstance(event, RequestError):
                    raise event
                yield event
                if event.end is not None:
                    return
        finally:
            entry.gone = True

    def _measure(self, timing: Timing, end: GeneratedText) -> None:
        metrics = self._metrics
        metrics.successes.inc()
        metrics.request_s.observe(timing.total_ns / 1e9)
        metrics.validation_s.observe(timing.validation_ns / 1e9)
        metrics.queue_s.observe(timing.queue_ns / 1e9)
        metrics.inference_s.observe(timing.inference_ns / 1e9)
        metrics.time_per_token_s.observe(timing.per_token_ns(end.generated_tokens) / 1e9)
        metrics.generated_tokens.observe(end.generated_tokens)


def _timing(entry: Entry, arrived_ns: int) -> Timing:
    started_ns = entry.queued_ns if entry.started_ns is None else entry.started_ns
    return Timing(arrived_ns, entry.queued_ns, started_ns, time.monotonic_ns())


async def _settled(
    sequence: Coroutine[object, object, Sequence],
) -> Sequence | RequestError:
    """A failure as a value: one of several sequences must not cancel the others' accounts."""
    try:
        return await sequence
    except RequestError as failure:
        return failure

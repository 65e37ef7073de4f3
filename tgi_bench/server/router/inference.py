"""From a client's request to its tokens: permits, validation, queue, timing."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field

from tgi_bench.server.router.body import RequestError, incomplete, overloaded
from tgi_bench.server.router.metrics import Metrics
from tgi_bench.server.router.validation import GenerateRequest, Validator, ValidRequest
from tgi_bench.wire.messages import Batch, GeneratedText, Request, Token


@dataclass(frozen=True, slots=True)
class NewToken:
    """One token of one request, with its alternatives.

    prefill_tokens: the prompt's, with the first token and where asked for.
    end: the whole answer, with the last token.
    """

    token: Token
    top_tokens: tuple[Token, ...]
    prefill_tokens: tuple[Token, ...]
    end: GeneratedText | None


@dataclass(slots=True, eq=False)
class QueuedRequest:
    """One request between the HTTP side and the batches. Times are monotonic ns.

    events: what happened to it, in order; the last is a NewToken with `end` or a failure.
    started_ns: when it entered a batch; None while it waits.
    gone: its client has left; nobody reads the events.
    """

    id: int
    request: ValidRequest
    events: asyncio.Queue[NewToken | RequestError] = field(default_factory=asyncio.Queue)
    queued_ns: int = field(default_factory=time.monotonic_ns)
    started_ns: int | None = None
    gone: bool = False


@dataclass(frozen=True, slots=True)
class BatchRoom:
    """What the next batch may take. Tokens are prompt plus new tokens.

    min_size: take nothing where fewer requests would enter. max_size: None is no limit.
    """

    prefill_tokens: int
    total_tokens: int
    min_size: int = 1
    max_size: int | None = None


@dataclass(frozen=True, slots=True)
class Need:
    """What a batch takes. A padded class pads every prompt to the longest of the batch;
    a flash class takes blocks of `block_size` tokens for each request."""

    padded: bool
    block_size: int
    requests: int = 0
    prompt_tokens: int = 0
    longest_prompt: int = 0
    new_tokens: int = 0
    block_tokens: int = 0

    def plus(self, request: ValidRequest) -> Need:
        """With one more request."""
        blocks = -(-request.total_tokens // self.block_size)
        return Need(
            padded=self.padded,
            block_size=self.block_size,
            requests=self.requests + 1,
            prompt_tokens=self.prompt_tokens + request.input_tokens,
            longest_prompt=max(self.longest_prompt, request.input_tokens),
            new_tokens=self.new_tokens + request.stopping.max_new_tokens,
            block_tokens=self.block_tokens + blocks * self.block_size,
        )

    @property
    def prefill_tokens(self) -> int:
        """Tokens that the prefill step computes."""
        return self.requests * self.longest_prompt if self.padded else self.prompt_tokens

    @property
    def total_tokens(self) -> int:
        """Tokens that the batch holds at its end."""
        return self.prefill_tokens + self.new_tokens if self.padded else self.block_tokens

    def fits(self, room: BatchRoom) -> bool:
        """Whether neither limit of tokens is passed."""
        return self.prefill_tokens <= room.prefill_tokens and self.total_tokens <= room.total_tokens


class WaitingQueue:
    """First in, first out. A request that does not fit holds up those behind it."""

    def __init__(self, empty: Need, on_size: Callable[[int], None]) -> None:
        """empty: what a batch without requests takes. on_size: told of every new length."""
        self._empty = empty
        self._on_size = on_size
        self._entries: deque[QueuedRequest] = deque()
        self._arrived = asyncio.Event()
        self._next_batch_id = 0
        self._closed = False

    def append(self, entry: QueuedRequest) -> None:
        """Queue a request; after `close` it fails at once."""
        if self._closed:
            entry.events.put_nowait(incomplete())
            return
        self._entries.append(entry)
        self._on_size(len(self._entries))
        self._arrived.set()

    def close(self) -> None:
        """Fail what waits and whatever comes: nobody will take it."""
        self._closed = True
        for entry in self._entries:
            entry.events.put_nowait(incomplete())
        self._entries.clear()
        self._on_size(0)

    def drop_gone(self) -> None:
        """Forget requests whose client has left."""
        self._entries = deque(entry for entry in self._entries if not entry.gone)
        self._on_size(len(self._entries))

    async def arrival(self) -> None:
        """Returns once a request waits."""
        while not self._entries:
            self._arrived.clear()
            await self._arrived.wait()

    def next_batch(self, room: BatchRoom) -> tuple[Batch, tuple[QueuedRequest, ...]] | None:
        """Take the requests that fit, in order; None where none or too few do."""
        self.drop_gone()
        taken: list[QueuedRequest] = []
        need = self._empty
        for entry in self._entries:
            if room.max_size is not None and len(taken) >= room.max_size:
                break
            larger = need.plus(entry.request)
            if not larger.fits(room):
                break
            need = larger
            taken.append(entry)
        if not taken or len(taken) < room.min_size:
            return None
        for entry in taken:
            self._entries.popleft()
            entry.started_ns = time.monotonic_ns()
        self._on_size(len(self._entries))
        return self._batch(taken, need.total_tokens), tuple(taken)

    def _batch(self, entries: list[QueuedRequest], max_tokens: int) -> Batch:
        batch_id = self._next_batch_id
        self._next_batch_id += 1
        return Batch(
            id=batch_id,
            requests=tuple(_to_wire(entry) for entry in entries),
            max_tokens=max_tokens,
            size=len(entries),
        )


def _to_wire(entry: QueuedRequest) -> Request:
    request = entry.request
    return Request(
        id=entry.id,
        text=request.inputs,
        truncate=request.truncate,
        choice=request.choice,
        stopping=request.stopping,
        prefill_logprobs=request.prefill_logprobs,
        top_n_tokens=request.top_n_tokens,
    )


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
class WholeAnswer:
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
class TokenStream:
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

    async def generate(
        self, request: GenerateRequest
    ) -> tuple[WholeAnswer, tuple[WholeAnswer, ...]]:
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
    def open_stream(self, request: GenerateRequest) -> Iterator[TokenStream]:
        """The tokens of one answer. Raises RequestError, before or between the tokens."""
        with self._counted(), self._permit():
            arrived_ns = time.monotonic_ns()
            self.validator.streamable(request.parameters)
            valid = self._validate(request)
            yield TokenStream(valid.input_tokens, self._events(valid, arrived_ns))

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

    async def _one(self, request: GenerateRequest) -> WholeAnswer:
        with self._permit():
            arrived_ns = time.monotonic_ns()
            valid = self._validate(request)
            entry = QueuedRequest(next(self._ids), valid)
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
            return WholeAnswer(
                input_tokens=valid.input_tokens,
                prefill=prefill,
                tokens=tuple(tokens),
                top_tokens=tuple(top) if valid.top_n_tokens else (),
                end=end,
                timing=_timing(entry, arrived_ns),
            )

    async def _events(self, valid: ValidRequest, arrived_ns: int) -> AsyncGenerator[NewToken, None]:
        entry = QueuedRequest(next(self._ids), valid)
        async with aclosing(self._read(entry)) as events:
            async for event in events:
                if event.end is not None:
                    self._measure(_timing(entry, arrived_ns), event.end)
                yield event

    async def _read(self, entry: QueuedRequest) -> AsyncGenerator[NewToken, None]:
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


def _timing(entry: QueuedRequest, arrived_ns: int) -> Timing:
    started_ns = entry.queued_ns if entry.started_ns is None else entry.started_ns
    return Timing(arrived_ns, entry.queued_ns, started_ns, time.monotonic_ns())


async def _settled(
    sequence: Coroutine[object, object, WholeAnswer],
) -> WholeAnswer | RequestError:
    """A failure as a value: one of several sequences must not cancel the others' accounts."""
    try:
        return await sequence
    except RequestError as failure:
        return failure

"""Requests that wait, and which of them enter the next batch."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tgi_bench.server.router.failure import RequestError, incomplete
from tgi_bench.server.router.validation import ValidRequest
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
class Entry:
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
class Room:
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

    def fits(self, room: Room) -> bool:
        """Whether neither limit of tokens is passed."""
        return self.prefill_tokens <= room.prefill_tokens and self.total_tokens <= room.total_tokens


class WaitingQueue:
    """First in, first out. A request that does not fit holds up those behind it."""

    def __init__(self, empty: Need, on_size: Callable[[int], None]) -> None:
        """empty: what a batch without requests takes. on_size: told of every new length."""
        self._empty = empty
        self._on_size = on_size
        self._entries: deque[Entry] = deque()
        self._arrived = asyncio.Event()
        self._next_batch_id = 0
        self._closed = False

    def append(self, entry: Entry) -> None:
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

    def next_batch(self, room: Room) -> tuple[Batch, tuple[Entry, ...]] | None:
        """Take the requests that fit, in order; None where none or too few do."""
        self.drop_gone()
        taken: list[Entry] = []
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

    def _batch(self, entries: list[Entry], max_tokens: int) -> Batch:
        batch_id = self._next_batch_id
        self._next_batch_id += 1
        return Batch(
            id=batch_id,
            requests=tuple(_to_wire(entry) for entry in entries),
            max_tokens=max_tokens,
            size=len(entries),
        )


def _to_wire(entry: Entry) -> Request:
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

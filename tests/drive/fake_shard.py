"""Ranks of a server inside the test: gRPC on unix sockets, doing what a script says.

A rank keeps batches as a shard does: Prefill makes one, Decode pops it and puts it back
until each request has its new tokens. It answers for its own share of the batch's requests.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

import grpc

from tgi_bench.wire import codec
from tgi_bench.wire import messages as m
from tgi_bench.wire.messages import Protocol

OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 2.00 GiB"


@dataclass(frozen=True, slots=True)
class Fail:
    """Answer with this status."""

    code: grpc.StatusCode
    details: str
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Hang:
    """Answer nothing until the caller has gone."""


@dataclass(frozen=True, slots=True)
class Die:
    """End the server with the call unanswered."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """Answer bytes that are no message."""


Fault = Fail | Hang | Die | Garbage


class Share(Enum):
    """Which requests of a batch a rank answers for."""

    PLACE = "its place modulo the ranks, as padded classes do"
    ID = "its id modulo the ranks, as the flash class does from 2.4.0 on"


@dataclass(frozen=True, slots=True)
class Script:
    """What one rank does.

    faults: by (number of the Prefill from 0, step from 0); delay_s: of each step.
    answers: by step, the ids that it answers for instead of its share.
    extra_steps: made beyond max_new_tokens, fewer where it is negative.
    tokens_per_step: of each request. counts: says current_tokens. times: sends durations.
    block_size: of the Info reply; None does not say. padded: says that it pads batches. info: the
    bytes of the whole reply instead. without: RPCs that its version does not have. workers: calls
    answered at a time; a real shard answers one.
    """

    protocol: Protocol = Protocol.V3
    faults: tuple[tuple[tuple[int, int], Fault], ...] = ()
    share: Share = Share.PLACE
    answers: tuple[tuple[int, tuple[int, ...]], ...] = ()
    delay_s: float = 0.0
    extra_steps: int = 0
    tokens_per_step: int = 1
    counts: bool = True
    times: bool = True
    block_size: int | None = None
    workers: int = 4
    padded: bool = False
    device_type: str = "cuda"
    dtype: str = "torch.float16"
    info: bytes | None = None
    without: tuple[str, ...] = ()

    def fault(self, run: int, step: int) -> Fault | None:
        return dict(self.faults).get((run, step))

    def answered(self, shard_rank: int, ranks: int, step: int, ids: list[int]) -> tuple[int, ...]:
        """The ids that this rank answers for."""
        if (given := dict(self.answers).get(step)) is not None:
            return given
        places = enumerate(ids) if self.share is Share.PLACE else ((i, i) for i in ids)
        return tuple(i for place, i in places if place % ranks == shard_rank)


@dataclass(slots=True)
class Held:
    """A batch between its steps. made: steps so far."""

    batch: m.Batch
    run: int
    made: int


@dataclass(slots=True)
class FakeRank:
    """One rank, with all that it was asked."""

    rank: int
    socket: Path
    script: Script
    urls: tuple[str, ...]
    calls: list[str] = field(default_factory=list)
    prefills: list[m.Batch] = field(default_factory=list)
    cleared: list[int | None] = field(default_factory=list)
    abandoned: threading.Event = field(default_factory=threading.Event)
    cleared_one: threading.Event = field(default_factory=threading.Event)
    held: dict[int, Held] = field(default_factory=dict)
    server: grpc.Server | None = None

    def start(self) -> None:
        server = grpc.server(ThreadPoolExecutor(max_workers=self.script.workers))
        server.add_generic_rpc_handlers((_Handler(self),))
        server.add_insecure_port(f"unix:{self.socket}")
        server.start()
        self.server = server

    def stop(self) -> None:
        if self.server is not None:
            self.server.stop(0).wait(5)

    def answer(self, rpc: str, payload: bytes, context: grpc.ServicerContext) -> bytes:
        self.calls.append(rpc)
        protocol = self.script.protocol
        match rpc:
            case "ServiceDiscovery":
                return codec.encode_discovery(protocol, self.urls)
            case "Info":
                script = self.script
                if script.info is not None:
                    return script.info
                info = m.ShardInfo(script.padded, script.dtype, script.device_type, speculate=0)
                if self.script.block_size is not None:
                    info = replace(info, attention_impl="paged", block_size=self.script.block_size)
                return codec.encode_info(protocol, info)
            case "ClearCache":
                batch_id = codec.decode_clear_cache(protocol, payload)
                self.cleared.append(batch_id)
                self.held.clear() if batch_id is None else self.held.pop(batch_id, None)
                self.cleared_one.set()
                return codec.EMPTY
            case "Prefill":
                batch = codec.decode_prefill(protocol, payload)
                self.prefills.append(batch)
                return self._step(Held(batch, len(self.prefills) - 1, 0), context)
            case "Decode":
                (cached,) = codec.decode_decode(protocol, payload)
                if cached.id not in self.held:
                    context.abort(
                        grpc.StatusCode.INTERNAL, f"Batch ID {cached.id} not found in cache."
                    )
                return self._step(self.held.pop(cached.id), context)
            case _:
                return codec.EMPTY

    def _step(self, held: Held, context: grpc.ServicerContext) -> bytes:
        fault = self.script.fault(held.run, held.made)
        time.sleep(self.script.delay_s)
        match fault:
            case Fail():
                time.sleep(fault.after_s)
                context.abort(fault.code, fault.details)
            case Hang():
                self._hang(context)
            case Die():
                assert self.server is not None
                self.server.stop(0)
                self._hang(context)
            case Garbage():
                return b"\xff\xff\xff"
        held.made += 1
        last = held.batch.requests[0].stopping.max_new_tokens + self.script.extra_steps
        if held.made < last:
            self.held[held.batch.id] = held
        return codec.encode_step_reply(
            self.script.protocol, self._reply(held, ended=held.made >= last)
        )

    def _hang(self, context: grpc.ServicerContext) -> None:
        gone = threading.Event()
        if context.add_callback(gone.set):
            gone.wait(20)
        self.abandoned.set()

    def _reply(self, held: Held, ended: bool) -> m.StepReply:
        token = m.Token(7, -1.0, "a", False)
        batch = held.batch
        # As a padded shard sets room aside.
        longest = max(min(len(r.text.split()), r.truncate) for r in batch.requests)
        new_tokens = sum(r.stopping.max_new_tokens for r in batch.requests)
        cached = m.CachedBatch(
            batch.id,
            tuple(r.id for r in batch.requests),
            batch.size,
            batch.size * (longest + new_tokens),
            batch.size if self.script.counts else None,
        )
        ids = [r.id for r in batch.requests]
        answered = self.script.answered(self.rank, len(self.urls), held.made - 1, ids)
        return m.StepReply(
            tuple(m.Generation(i, (token,) * self.script.tokens_per_step) for i in answered),
            None if ended else cached,
            m.Durations(100 + self.rank, 20, 130 + self.rank) if self.script.times else None,
        )


class _Handler(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in stubs only
    """Answers one version only: of another, gRPC itself says UNIMPLEMENTED."""

    def __init__(self, rank: FakeRank) -> None:
        self._rank = rank

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        method = handler_call_details.method
        rpc = method.rpartition("/")[2]
        script = self._rank.script
        if method != script.protocol.method(rpc) or rpc in script.without:
            self._rank.calls.append(method)
            return None
        return grpc.unary_unary_rpc_method_handler(self._answering(rpc))

    def _answering(self, rpc: str) -> Callable[[bytes, grpc.ServicerContext], bytes]:
        return lambda payload, context: self._rank.answer(rpc, payload, context)


@contextmanager
def serving(folder: Path, *scripts: Script) -> Iterator[Sequence[FakeRank]]:
    """A rank for each script, on `<folder>/shard-<rank>`."""
    sockets = [folder / f"shard-{rank}" for rank in range(len(scripts))]
    urls = tuple(f"unix://{socket}" for socket in sockets)
    with ExitStack() as stack:
        ranks = []
        for rank, (socket, script) in enumerate(zip(sockets, scripts, strict=True)):
            fake = FakeRank(rank, socket, script, urls)
            fake.start()
            stack.callback(fake.stop)
            ranks.append(fake)
        yield ranks

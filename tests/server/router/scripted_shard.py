"""A rank that answers through the codec and does what a test tells it to.

It computes nothing: tokens are " t0", " t1", ... and a step takes no time unless it is held.
What it was asked is kept in order, so that tests count steps instead of measuring time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import grpc
import grpc.aio

from tgi_bench.wire import codec
from tgi_bench.wire.messages import (
    Batch,
    CachedBatch,
    Durations,
    FinishReason,
    GeneratedText,
    Generation,
    Protocol,
    Request,
    ShardInfo,
    StepReply,
    Token,
    WarmupReply,
)

_Behaviour = Callable[[bytes], Awaitable[bytes]]


@dataclass
class Script:
    """What a rank does. fail: the message of the next steps' failure.

    held: steps wait; decodes_held: decode steps do.
    room: of the KV cache in tokens; None: a padded class. step_s: how long a step takes.
    """

    room: int | None = None
    held: bool = False
    decodes_held: bool = False
    fail: str | None = None
    step_s: float = 0.0
    finish: FinishReason = FinishReason.LENGTH
    batches: list[Batch] = field(default_factory=list)
    decodes: list[tuple[int, ...]] = field(default_factory=list)
    filters: list[tuple[int, ...]] = field(default_factory=list)
    clears: list[int | None] = field(default_factory=list)


class ScriptedShard:
    """One rank on one unix socket, in the running loop."""

    def __init__(self, protocol: Protocol, paths: list[str], rank: int, script: Script) -> None:
        self._protocol = protocol
        self._paths = paths
        self._rank = rank
        self._script = script
        self._held: dict[int, dict[int, int]] = {}
        self._requests: dict[int, Request] = {}
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Listen."""
        rpcs: dict[str, _Behaviour] = {
            "Health": self._empty,
            "Info": self._info,
            "ServiceDiscovery": self._discover,
            "ClearCache": self._clear,
            "FilterBatch": self._filter,
            "Warmup": self._warmup,
            "Prefill": self._prefill,
            "Decode": self._decode,
        }
        service = f"{self._protocol.value}.TextGenerationService"
        handlers = {name: self._handler(call) for name, call in rpcs.items()}
        generic = grpc.method_handlers_generic_handler(service, handlers)
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((generic,))
        self._server.add_insecure_port(f"unix:{self._paths[self._rank]}")
        await self._server.start()

    async def stop(self) -> None:
        """Die: calls under way are cut off."""
        if self._server is not None:
            await self._server.stop(None)

    def _handler(self, call: _Behaviour) -> grpc.RpcMethodHandler[bytes, bytes]:
        async def answer(payload: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            try:
                return await call(payload)
            except ValueError as error:
                await context.abort(grpc.StatusCode.INTERNAL, str(error))
                raise

        return grpc.unary_unary_rpc_method_handler(answer)

    async def _empty(self, _: bytes) -> bytes:
        return b""

    async def _info(self, _: bytes) -> bytes:
        padded = self._script.room is None
        return codec.encode_info(self._protocol, ShardInfo(padded, "torch.float16", "simulated"))

    async def _discover(self, _: bytes) -> bytes:
        return codec.encode_discovery(self._protocol, [f"unix://{path}" for path in self._paths])

    async def _warmup(self, _: bytes) -> bytes:
        if self._script.fail:
            raise ValueError(self._script.fail)
        return codec.encode_warmup_reply(self._protocol, WarmupReply(self._script.room))

    async def _clear(self, payload: bytes) -> bytes:
        batch_id = codec.decode_clear_cache(self._protocol, payload)
        self._script.clears.append(batch_id)
        if batch_id is None:
            self._held.clear()
        else:
            self._held.pop(batch_id, None)
        return b""

    async def _filter(self, payload: bytes) -> bytes:
        batch_id, kept = codec.decode_filter(self._protocol, payload)
        self._script.filters.append(kept)
        held = self._held[batch_id]
        self._held[batch_id] = {request_id: held[request_id] for request_id in kept}
        return codec.encode_filter_reply(self._protocol, self._cached(batch_id))

    async def _prefill(self, payload: bytes) -> bytes:
        batch = codec.decode_prefill(self._protocol, payload)
        self._script.batches.append(batch)
        await self._step()
        self._requests.update((request.id, request) for request in batch.requests)
        return self._reply(batch.id, {request.id: 0 for request in batch.requests})

    async def _decode(self, payload: bytes) -> bytes:
        batches = codec.decode_decode(self._protocol, payload)
        self._script.decodes.append(tuple(batch.size for batch in batches))
        joined: dict[int, int] = {}
        for batch in batches:
            joined.update(self._held.pop(batch.id))
        while self._script.decodes_held:
            await asyncio.sleep(0.001)
        await self._step()
        return self._reply(batches[0].id, joined)

    async def _step(self) -> None:
        await asyncio.sleep(self._script.step_s)
        while self._script.held:
            await asyncio.sleep(0.001)
        if self._script.fail:
            raise ValueError(self._script.fail)

    def _reply(self, batch_id: int, positions: dict[int, int]) -> bytes:
        # Its own share of the batch, by place.
        generations = tuple(
            self._generation(i, at)
            for place, (i, at) in enumerate(positions.items())
            if place % len(self._paths) == self._rank
        )
        # Who has ended stays until the router filters it out.
        goes_on = any(
            at + 1 < self._requests[i].stopping.max_new_tokens for i, at in positions.items()
        )
        self._held[batch_id] = {i: at + 1 for i, at in positions.items()}
        cached = self._cached(batch_id) if goes_on else None
        reply = StepReply(generations, cached, Durations(2_000_000, 1_000_000, 3_000_000))
        return codec.encode_step_reply(self._protocol, reply)

    def _cached(self, batch_id: int) -> CachedBatch:
        ids = tuple(self._held[batch_id])
        return CachedBatch(batch_id, ids, len(ids), max_tokens=0)

    def _generation(self, request_id: int, at: int) -> Generation:
        request = self._requests[request_id]
        new_tokens = request.stopping.max_new_tokens
        end = None
        if at + 1 >= new_tokens:
            text = "".join(f" t{position}" for position in range(new_tokens))
            seed = request.choice.seed if request.choice.do_sample else None
            end = GeneratedText(text, new_tokens, self._script.finish, seed)
        # Requests differ in their log probability, so that best_of has a best.
        token = Token(at, -0.5 - request_id, f" t{at}", False)
        others = tuple(
            Token(100 + n, -1.0 - n, f" o{n}", False) for n in range(request.top_n_tokens)
        )
        prompt: tuple[Token, ...] = ()
        if request.prefill_logprobs and at == 0:
            prompt = (Token(7, float("nan"), "a", False), Token(8, -0.25, " b", False))
        return Generation(request_id, (token,), end, prompt, (others,) if others else ())

"""Calls to every rank of a deployment at once, over gRPC on unix sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import TypeAlias

import grpc
import grpc.aio

from tgi_bench.server.router.body import ShardCallError
from tgi_bench.wire import codec
from tgi_bench.wire.messages import (
    Batch,
    CachedBatch,
    Protocol,
    ShardInfo,
    StepReply,
    Warmup,
    WarmupReply,
)

_NO_LIMIT = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))

_DISCOVERY_S = 10.0
HEALTH_S = 60.0
"""A rank answers Health between steps: longer than any one step that is worth waiting for."""

_Call: TypeAlias = "grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]"


class ShardClient:
    """All ranks of one deployment. Every call goes to each of them.

    A step's generations are those of all ranks together: each answers for its own share of the
    batch. Of all else rank 0's word is taken. Every method raises ShardCallError when any rank
    fails.
    """

    def __init__(self, protocol: Protocol, channels: tuple[grpc.aio.Channel, ...]) -> None:
        self._protocol = protocol
        self._channels = channels

    @classmethod
    async def connect(cls, protocol: Protocol, master_path: str) -> ShardClient:
        """Ask rank 0 at `master_path` for all ranks and connect to them."""
        async with grpc.aio.insecure_channel(f"unix:{master_path}") as master:
            probe = cls(protocol, (master,))
            reply = await probe._first("ServiceDiscovery", codec.EMPTY, _DISCOVERY_S)
        paths = [url.removeprefix("unix://") for url in codec.decode_discovery(protocol, reply)]
        return cls(
            protocol,
            tuple(grpc.aio.insecure_channel(f"unix:{path}", options=_NO_LIMIT) for path in paths),
        )

    async def close(self) -> None:
        """Close the connections; calls that are under way fail."""
        await asyncio.gather(*(channel.close(None) for channel in self._channels))

    async def info(self) -> ShardInfo:
        """What rank 0 says of itself."""
        return codec.decode_info(self._protocol, await self._first("Info", codec.EMPTY))

    async def health(self) -> None:
        """Returns when every rank has answered."""
        await self._all("Health", codec.EMPTY, HEALTH_S)

    async def warmup(self, warmup: Warmup) -> WarmupReply:
        """One prefill as large as will ever be sent."""
        payload = codec.encode_warmup(self._protocol, warmup)
        return codec.decode_warmup_reply(self._protocol, await self._first("Warmup", payload))

    async def prefill(self, batch: Batch) -> StepReply:
        """The prefill step of a new batch."""
        payload = codec.encode_prefill(self._protocol, batch)
        return await self._joined("Prefill", payload)

    async def decode(self, batches: Iterable[CachedBatch]) -> StepReply:
        """One decode step; several batches are joined."""
        payload = codec.encode_decode(self._protocol, batches)
        return await self._joined("Decode", payload)

    async def filter_batch(self, batch_id: int, request_ids: Iterable[int]) -> CachedBatch:
        """Keep these requests of a batch."""
        payload = codec.encode_filter(self._protocol, batch_id, request_ids)
        return codec.decode_filter_reply(self._protocol, await self._first("FilterBatch", payload))

    async def clear_cache(self, batch_id: int | None) -> None:
        """Forget a batch; None: all of them."""
        await self._all("ClearCache", codec.encode_clear_cache(self._protocol, batch_id))

    async def _joined(self, rpc: str, payload: bytes) -> StepReply:
        """Rank 0's reply, with the generations of every rank."""
        read = [
            codec.decode_step_reply(self._protocol, reply)
            for reply in await self._all(rpc, payload)
        ]
        return replace(read[0], generations=tuple(g for reply in read for g in reply.generations))

    async def _first(self, rpc: str, payload: bytes, timeout_s: float | None = None) -> bytes:
        return (await self._all(rpc, payload, timeout_s))[0]

    async def _all(self, rpc: str, payload: bytes, timeout_s: float | None = None) -> list[bytes]:
        """Send to all ranks at once and wait for the slowest, also when one has failed:
        the ranks must stay in step."""
        method = self._protocol.method(rpc)
        calls = [
            self._unary(channel, method)(payload, timeout=timeout_s) for channel in self._channels
        ]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        replies: list[bytes] = []
        for reply in outcomes:
            if isinstance(reply, grpc.aio.AioRpcError):
                raise ShardCallError(reply.details() or reply.code().name) from reply
            if isinstance(reply, asyncio.CancelledError | grpc.aio.UsageError):
                raise ShardCallError("the connection was closed") from reply
            if isinstance(reply, BaseException):
                raise reply
            replies.append(reply)
        return replies

    @staticmethod
    def _unary(channel: grpc.aio.Channel, method: str) -> _Call:
        return channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)

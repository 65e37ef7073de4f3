"""Neutral messages to bytes of generate.v1, v2 and v3, and back.

A pure translation: no call is made here, and nothing is decided about a server's
behaviour. Bytes that do not parse raise protobuf's DecodeError.
"""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.message import Message

from tgi_bench.wire import generate_v1_pb2 as v1
from tgi_bench.wire import generate_v2_pb2 as v2
from tgi_bench.wire import generate_v3_pb2 as v3
from tgi_bench.wire import messages as m
from tgi_bench.wire import parts
from tgi_bench.wire.messages import Protocol

_MODULES = {Protocol.V1: v1, Protocol.V2: v2, Protocol.V3: v3}

EMPTY = b""
"""The bytes of every message without fields: Health, Info and ServiceDiscovery requests."""


# What a client sends.


def encode_prefill(protocol: Protocol, batch: m.Batch) -> bytes:
    """PrefillRequest."""
    request = _MODULES[protocol].PrefillRequest()
    parts.fill_batch(request.batch, batch)
    return _serialized(request)


def encode_decode(protocol: Protocol, batches: Iterable[m.CachedBatch]) -> bytes:
    """DecodeRequest; several batches are joined by the shard, in this order."""
    request = _MODULES[protocol].DecodeRequest()
    for batch in batches:
        parts.fill_cached(request.batches.add(), batch)
    return _serialized(request)


def encode_filter(protocol: Protocol, batch_id: int, request_ids: Iterable[int]) -> bytes:
    """FilterBatchRequest: keep these requests of the batch."""
    return _serialized(
        _MODULES[protocol].FilterBatchRequest(batch_id=batch_id, request_ids=request_ids)
    )


def encode_clear_cache(protocol: Protocol, batch_id: int | None) -> bytes:
    """ClearCacheRequest; None clears every batch."""
    return _serialized(_MODULES[protocol].ClearCacheRequest(id=batch_id))


def encode_warmup(protocol: Protocol, warmup: m.Warmup) -> bytes:
    """WarmupRequest."""
    match protocol:
        case Protocol.V1:
            first = v1.WarmupRequest()
            parts.fill_batch(first.batch, warmup.batch)
            return _serialized(first)
        case Protocol.V2:
            second = v2.WarmupRequest(
                max_input_length=warmup.max_input_tokens or 0,
                max_prefill_tokens=warmup.max_prefill_tokens,
                max_total_tokens=warmup.max_total_tokens or 0,
            )
            parts.fill_batch(second.batch, warmup.batch)
            return _serialized(second)
        case Protocol.V3:
            third = v3.WarmupRequest(
                max_input_tokens=warmup.max_input_tokens,
                max_prefill_tokens=warmup.max_prefill_tokens,
                max_total_tokens=warmup.max_total_tokens,
            )
            parts.fill_batch(third.batch, warmup.batch)
            return _serialized(third)


# What a client reads.


def decode_step_reply(protocol: Protocol, payload: bytes) -> m.StepReply:
    """PrefillResponse or DecodeResponse: the two have one layout in every version."""
    match protocol:
        case Protocol.V1:
            first = v1.DecodeResponse.FromString(payload)
            return m.StepReply(
                generations=tuple(parts.read_generation_v1(g) for g in first.generations),
                cached=parts.read_cached(first.batch) if first.HasField("batch") else None,
                durations=None,
            )
        case Protocol.V2:
            return parts.read_step_reply(v2.DecodeResponse.FromString(payload))
        case Protocol.V3:
            return parts.read_step_reply(v3.DecodeResponse.FromString(payload))


def decode_filter_reply(protocol: Protocol, payload: bytes) -> m.CachedBatch:
    """FilterBatchResponse."""
    return parts.read_cached(_MODULES[protocol].FilterBatchResponse.FromString(payload).batch)


def decode_discovery(protocol: Protocol, payload: bytes) -> tuple[str, ...]:
    """ServiceDiscoveryResponse: one url a rank, "unix:///tmp/text-generation-server-0"."""
    return tuple(_MODULES[protocol].ServiceDiscoveryResponse.FromString(payload).urls)


def decode_info(protocol: Protocol, payload: bytes) -> m.Info:
    """InfoResponse."""
    info = _MODULES[protocol].InfoResponse.FromString(payload)
    window = info.window_size if info.HasField("window_size") else None
    common = m.Info(info.requires_padding, info.dtype, info.device_type, window)
    if isinstance(info, v1.InfoResponse):
        return common
    if isinstance(info, v2.InfoResponse) or not info.block_size:
        return m.Info(info.requires_padding, info.dtype, info.device_type, window, info.speculate)
    return m.Info(
        requires_padding=info.requires_padding,
        dtype=info.dtype,
        device_type=info.device_type,
        window_size=window,
        speculate=info.speculate,
        support_chunking=info.support_chunking,
        use_prefix_caching=info.use_prefix_caching,
        attention_impl=info.attention_impl,
        block_size=info.block_size,
    )


def decode_warmup_reply(protocol: Protocol, payload: bytes) -> m.WarmupReply:
    """WarmupResponse."""
    reply = _MODULES[protocol].WarmupResponse.FromString(payload)
    supported = (
        reply.max_supported_total_tokens if reply.HasField("max_supported_total_tokens") else None
    )
    if isinstance(reply, v3.WarmupResponse):
        return m.WarmupReply(
            supported, reply.max_input_tokens or None, reply.max_total_tokens or None
        )
    return m.WarmupReply(supported)


# What a shard reads.


def decode_prefill(protocol: Protocol, payload: bytes) -> m.Batch:
    """PrefillRequest."""
    return parts.read_batch(_MODULES[protocol].PrefillRequest.FromString(payload).batch)


def decode_decode(protocol: Protocol, payload: bytes) -> tuple[m.CachedBatch, ...]:
    """DecodeRequest."""
    batches = _MODULES[protocol].DecodeRequest.FromString(payload).batches
    return tuple(parts.read_cached(batch) for batch in batches)


def decode_filter(protocol: Protocol, payload: bytes) -> tuple[int, tuple[int, ...]]:
    """FilterBatchRequest: the batch's id and the requests to keep."""
    request = _MODULES[protocol].FilterBatchRequest.FromString(payload)
    return request.batch_id, tuple(request.request_ids)


def decode_clear_cache(protocol: Protocol, payload: bytes) -> int | None:
    """ClearCacheRequest: the batch's id; None is every batch."""
    request = _MODULES[protocol].ClearCacheRequest.FromString(payload)
    return request.id if request.HasField("id") else None


def decode_warmup(protocol: Protocol, payload: bytes) -> m.Warmup:
    """WarmupRequest. A limit that v1 does not carry is None; its prefill limit is the batch's."""
    request = _MODULES[protocol].WarmupRequest.FromString(payload)
    batch = parts.read_batch(request.batch)
    match request:
        case v1.WarmupRequest():
            return m.Warmup(batch, None, sum(r.truncate for r in batch.requests), None)
        case v2.WarmupRequest():
            return m.Warmup(
                batch,
                request.max_input_length or None,
                request.max_prefill_tokens,
                request.max_total_tokens or None,
            )
        case _:
            return m.Warmup(
                batch,
                request.max_input_tokens if request.HasField("max_input_tokens") else None,
                request.max_prefill_tokens,
                request.max_total_tokens if request.HasField("max_total_tokens") else None,
            )


# What a shard answers.


def encode_step_reply(protocol: Protocol, reply: m.StepReply) -> bytes:
    """PrefillResponse or DecodeResponse."""
    response = _MODULES[protocol].DecodeResponse()
    for generation in reply.generations:
        parts.fill_generation(response.generations.add(), generation)
    if reply.cached is not None:
        parts.fill_cached(response.batch, reply.cached)
    if reply.durations is not None and not isinstance(response, v1.DecodeResponse):
        response.forward_ns = reply.durations.forward_ns
        response.decode_ns = reply.durations.decode_ns
        response.total_ns = reply.durations.total_ns
        if reply.durations.concat_ns is not None:
            response.concat_ns = reply.durations.concat_ns
    return _serialized(response)


def encode_filter_reply(protocol: Protocol, batch: m.CachedBatch) -> bytes:
    """FilterBatchResponse."""
    response = _MODULES[protocol].FilterBatchResponse()
    parts.fill_cached(response.batch, batch)
    return _serialized(response)


def encode_discovery(protocol: Protocol, urls: Iterable[str]) -> bytes:
    """ServiceDiscoveryResponse."""
    return _serialized(_MODULES[protocol].ServiceDiscoveryResponse(urls=urls))


def encode_info(protocol: Protocol, info: m.Info) -> bytes:
    """InfoResponse."""
    response = _MODULES[protocol].InfoResponse(
        requires_padding=info.requires_padding,
        dtype=info.dtype,
        device_type=info.device_type,
        window_size=info.window_size,
    )
    if not isinstance(response, v1.InfoResponse):
        response.speculate = info.speculate or 0
    if isinstance(response, v3.InfoResponse):
        response.support_chunking = info.support_chunking or False
        response.use_prefix_caching = info.use_prefix_caching or False
        response.attention_impl = info.attention_impl or ""
        response.block_size = info.block_size or 0
    return _serialized(response)


def encode_warmup_reply(protocol: Protocol, reply: m.WarmupReply) -> bytes:
    """WarmupResponse."""
    response = _MODULES[protocol].WarmupResponse(
        max_supported_total_tokens=reply.max_supported_total_tokens
    )
    if isinstance(response, v3.WarmupResponse):
        response.max_input_tokens = reply.max_input_tokens or 0
        response.max_total_tokens = reply.max_total_tokens or 0
    return _serialized(response)


def _serialized(message: Message) -> bytes:
    payload: bytes = message.SerializeToString()
    return payload

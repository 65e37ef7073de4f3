"""Neutral messages to bytes of generate.v1, v2 and v3, and back, by the names of their fields.

A pure translation: no call is made here, and nothing is decided about a server's
behaviour. Bytes that do not parse raise protobuf's DecodeError.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import MISSING, is_dataclass, replace
from enum import IntEnum
from functools import partial
from operator import attrgetter
from types import NoneType
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tgi_bench.wire import generate_v1_pb2 as v1
from tgi_bench.wire import generate_v2_pb2 as v2
from tgi_bench.wire import generate_v3_pb2 as v3
from tgi_bench.wire import messages as m
from tgi_bench.wire.messages import Protocol

T = TypeVar("T")
Told = dict[str, Any]
"""A message of the wire as its constructor takes it: values by the names of its fields."""

_TOKENS = tuple[m.Token, ...]
"""Which the wire has in columns: a list of ids, one of texts, ..."""

EMPTY = b""
"""The bytes of every message without fields: Health, Info and ServiceDiscovery requests."""

_MODULES = {Protocol.V1: v1, Protocol.V2: v2, Protocol.V3: v3}

# What the versions call, say and lay out otherwise than `messages`.

_CALLED = {
    "cached": "batch",
    "choice": "parameters",
    "max_input_tokens": "max_input_length",  # v2
    "stopping": "stopping_parameters",
    "text": "inputs",  # v1, v2
}
"""Names, where a version has no field of ours."""

_ZERO_IS_UNSAID = frozenset({"current_tokens", "max_input_tokens", "max_total_tokens"})
"""Where a version cannot mark what was not said: no limit is 0, and no batch that is held."""


class _Field(NamedTuple):
    """One field of a neutral message in one message of the wire.

    tell: writes a value, neither None nor empty, among the wire's. read: the value of a message.
    """

    name: str
    tell: Callable[[Any, Told], None]
    read: Callable[[Any], Any]


def _tell_chunk(text: str, told: Told) -> None:
    told["input_chunks"] = {"chunks": [{"text": text}]}


def _tell_one_token(tokens: tuple[m.Token, ...], told: Told) -> None:
    token = tokens[0]
    told["token_id"], told["token_logprob"] = token.id, token.logprob
    told["token_text"], told["token_is_special"] = token.text, token.special


def _read_one_token(said: v1.Generation) -> tuple[m.Token, ...]:
    return (m.Token(said.token_id, said.token_logprob, said.token_text, said.token_is_special),)


def _tell_first_top(top: tuple[tuple[m.Token, ...], ...], told: Told) -> None:
    told["top_tokens"] = _columns(top[0], special=True)


def _read_first_top(said: v1.Generation) -> tuple[tuple[m.Token, ...], ...]:
    return (_tokens(said.top_tokens, True),) if said.HasField("top_tokens") else ()


def _tell_durations(durations: m.Durations, told: Told) -> None:
    told |= _told(durations, v3.DecodeResponse)


def _read_durations(said: v2.DecodeResponse | v3.DecodeResponse) -> m.Durations | None:
    return _read(m.Durations, said) if said.total_ns else None  # 0: before 1.3.3


_LAID_OUT = {
    # v1 carries one new token, as fields of its own, and the alternatives of that one.
    (v1.Generation, "tokens"): _Field("tokens", _tell_one_token, _read_one_token),
    (v1.Generation, "top_tokens"): _Field("top_tokens", _tell_first_top, _read_first_top),
    # v3 shards read the chunks and ignore `inputs`.
    (v3.Request, "text"): _Field(
        "text", _tell_chunk, lambda said: "".join(c.text for c in said.input_chunks.chunks)
    ),
    (v2.DecodeResponse, "durations"): _Field("durations", _tell_durations, _read_durations),
    (v3.DecodeResponse, "durations"): _Field("durations", _tell_durations, _read_durations),
}
"""Fields that are no field of the wire by themselves."""


def _told(value: object, message: type[Message]) -> Told:
    """A neutral message as the wire's; what is None, empty or not of the version is left out."""
    told: Told = {}
    for name, tell, _ in _fields(type(value), message):
        said = getattr(value, name)
        if said is not None and said != ():
            tell(said, told)
    return told


def _read(kind: type[T], message: Message) -> T:
    """The wire's message as a neutral one; what the version lacks has its default, or is None."""
    return kind(*[read(message) for _, _, read in _fields(kind, type(message))])


_FIELDS: dict[tuple[type, type[Message]], tuple[_Field, ...]] = {}
"""Made when they are first needed."""


def _fields(kind: type, message: type[Message]) -> tuple[_Field, ...]:
    found = _FIELDS.get((kind, message))
    if found is None:
        hints = get_type_hints(kind)
        found = _FIELDS[kind, message] = tuple(
            _LAID_OUT.get((message, field.name)) or _field(field, hints[field.name], message)
            for field in dataclasses.fields(kind)
        )
    return found


def _field(field: dataclasses.Field[Any], hint: Any, message: type[Message]) -> _Field:
    """A field by its name, with what its type says: None, several, messages inside it."""
    name = field.name
    there = message.DESCRIPTOR.fields_by_name
    wire = name if name in there else _CALLED.get(name, name)
    found = there.get(wire)
    if found is None:
        unsaid = None if field.default is MISSING else field.default
        return _Field(name, lambda value, told: None, lambda message: unsaid)
    get = attrgetter(wire)
    many = get_origin(hint) is tuple and hint != _TOKENS
    maybe = NoneType in get_args(hint)
    to_wire, of_wire = _converters(get_args(hint)[0] if many or maybe else hint, found.message_type)

    def tell(value: Any, told: Told) -> None:
        told[wire] = [to_wire(part) for part in value] if many else to_wire(value)

    if many:
        return _Field(name, tell, lambda message: tuple(map(of_wire, get(message))))
    if maybe and found.has_presence:
        return _Field(
            name,
            tell,
            lambda message: of_wire(get(message)) if message.HasField(wire) else None,
        )
    if name in _ZERO_IS_UNSAID:
        return _Field(name, tell, lambda message: get(message) or None)
    return _Field(name, tell, get if of_wire is _same else lambda message: of_wire(get(message)))


def _converters(kind: Any, inner: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """One value to the wire, and back. inner: the wire's descriptor where it is a message."""
    if kind == _TOKENS:
        special = "is_special" in inner.fields_by_name
        return partial(_columns, special=special), partial(_tokens, special=special)
    if isinstance(kind, type) and is_dataclass(kind):
        return partial(_told, message=GetMessageClass(inner)), partial(_read, kind)
    return _same, (kind if issubclass(kind, IntEnum) else _same)


def _same(value: Any) -> Any:
    return value


def _columns(tokens: tuple[m.Token, ...], special: bool) -> Told:
    """Tokens as the wire has them, a list a field. special: whether this message says it."""
    told: Told = {
        "ids": [token.id for token in tokens],
        "logprobs": [token.logprob for token in tokens],
        "texts": [token.text for token in tokens],
    }
    return told | {"is_special": [token.special for token in tokens]} if special else told


def _tokens(said: Any, special: bool) -> tuple[m.Token, ...]:
    # A shard leaves is_special empty for the prompt's tokens, in every version.
    marks = (special and said.is_special) or (False,) * len(said.ids)
    columns = zip(said.ids, said.logprobs, said.texts, marks, strict=True)
    return tuple(m.Token(*fields) for fields in columns)


# What a client sends.


def encode_prefill(protocol: Protocol, batch: m.Batch) -> bytes:
    """PrefillRequest."""
    module = _MODULES[protocol]
    return _bytes(module.PrefillRequest(batch=_told(batch, module.Batch)))


def encode_decode(protocol: Protocol, batches: Iterable[m.CachedBatch]) -> bytes:
    """DecodeRequest; several batches are joined by the shard, in this order."""
    module = _MODULES[protocol]
    told = [_told(batch, module.CachedBatch) for batch in batches]
    return _bytes(module.DecodeRequest(batches=told))


def encode_filter(protocol: Protocol, batch_id: int, request_ids: Iterable[int]) -> bytes:
    """FilterBatchRequest: keep these requests of the batch."""
    return _bytes(_MODULES[protocol].FilterBatchRequest(batch_id=batch_id, request_ids=request_ids))


def encode_clear_cache(protocol: Protocol, batch_id: int | None) -> bytes:
    """ClearCacheRequest; None clears every batch."""
    return _bytes(_MODULES[protocol].ClearCacheRequest(id=batch_id))


def encode_warmup(protocol: Protocol, warmup: m.Warmup) -> bytes:
    """WarmupRequest."""
    return _encoded(warmup, _MODULES[protocol].WarmupRequest)


# What a client reads.


def decode_step_reply(protocol: Protocol, payload: bytes) -> m.StepReply:
    """PrefillResponse or DecodeResponse: the two have one layout in every version."""
    return _read(m.StepReply, _MODULES[protocol].DecodeResponse.FromString(payload))


def decode_filter_reply(protocol: Protocol, payload: bytes) -> m.CachedBatch:
    """FilterBatchResponse."""
    return _read(m.CachedBatch, _MODULES[protocol].FilterBatchResponse.FromString(payload).batch)


def decode_discovery(protocol: Protocol, payload: bytes) -> tuple[str, ...]:
    """ServiceDiscoveryResponse: one url a rank, "unix:///tmp/text-generation-server-0"."""
    return tuple(_MODULES[protocol].ServiceDiscoveryResponse.FromString(payload).urls)


def decode_info(protocol: Protocol, payload: bytes) -> m.ShardInfo:
    """InfoResponse. v3 before 2.4.0 says nothing of attention: block_size is 0 there."""
    info = _read(m.ShardInfo, _MODULES[protocol].InfoResponse.FromString(payload))
    if info.block_size:
        return info
    return replace(
        info,
        support_chunking=None,
        use_prefix_caching=None,
        attention_impl=None,
        block_size=None,
    )


def decode_warmup_reply(protocol: Protocol, payload: bytes) -> m.WarmupReply:
    """WarmupResponse."""
    return _read(m.WarmupReply, _MODULES[protocol].WarmupResponse.FromString(payload))


# What a shard reads.


def decode_prefill(protocol: Protocol, payload: bytes) -> m.Batch:
    """PrefillRequest."""
    return _read(m.Batch, _MODULES[protocol].PrefillRequest.FromString(payload).batch)


def decode_decode(protocol: Protocol, payload: bytes) -> tuple[m.CachedBatch, ...]:
    """DecodeRequest."""
    batches = _MODULES[protocol].DecodeRequest.FromString(payload).batches
    return tuple(_read(m.CachedBatch, batch) for batch in batches)


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
    if protocol is Protocol.V1:
        batch = _read(m.Batch, request.batch)
        return m.Warmup(batch, None, sum(r.truncate for r in batch.requests), None)
    return _read(m.Warmup, request)


# What a shard answers.


def encode_step_reply(protocol: Protocol, reply: m.StepReply) -> bytes:
    """PrefillResponse or DecodeResponse."""
    return _encoded(reply, _MODULES[protocol].DecodeResponse)


def encode_filter_reply(protocol: Protocol, batch: m.CachedBatch) -> bytes:
    """FilterBatchResponse."""
    module = _MODULES[protocol]
    return _bytes(module.FilterBatchResponse(batch=_told(batch, module.CachedBatch)))


def encode_discovery(protocol: Protocol, urls: Iterable[str]) -> bytes:
    """ServiceDiscoveryResponse."""
    return _bytes(_MODULES[protocol].ServiceDiscoveryResponse(urls=urls))


def encode_info(protocol: Protocol, info: m.ShardInfo) -> bytes:
    """InfoResponse."""
    return _encoded(info, _MODULES[protocol].InfoResponse)


def encode_warmup_reply(protocol: Protocol, reply: m.WarmupReply) -> bytes:
    """WarmupResponse."""
    return _encoded(reply, _MODULES[protocol].WarmupResponse)


def _encoded(value: object, message: type[Message]) -> bytes:
    return _bytes(message(**_told(value, message)))


def _bytes(message: Message) -> bytes:
    payload: bytes = message.SerializeToString()
    return payload

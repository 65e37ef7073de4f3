"""Round trips through the bytes of each version: what it carries comes back, and what it
lacks comes back as `messages` says."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from types import ModuleType
from typing import TypeVar

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from tgi_bench.wire import codec
from tgi_bench.wire import generate_v1_pb2 as v1
from tgi_bench.wire import generate_v2_pb2 as v2
from tgi_bench.wire import generate_v3_pb2 as v3
from tgi_bench.wire import messages as m
from tgi_bench.wire.messages import Protocol

ALL = tuple(Protocol)
MODULES: dict[Protocol, ModuleType] = {Protocol.V1: v1, Protocol.V2: v2, Protocol.V3: v3}
STEADY = settings(deadline=None, derandomize=True, max_examples=60)
T = TypeVar("T")

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
f32 = st.floats(width=32, allow_nan=False)
texts = st.text(st.characters(codec="utf-8"), max_size=20)


def maybe(strategy: st.SearchStrategy[T]) -> st.SearchStrategy[T | None]:
    return st.none() | strategy


def tuples(strategy: st.SearchStrategy[T], least: int = 0) -> st.SearchStrategy[tuple[T, ...]]:
    return st.lists(strategy, min_size=least, max_size=3).map(tuple)


choices = st.builds(m.TokenChoice, f32, u32, f32, f32, st.booleans(), u64, f32, f32, st.booleans())
stoppings = st.builds(m.Stopping, u32, tuples(texts), st.booleans())
requests = st.builds(
    m.Request, u64, texts, u32, choices, stoppings, st.booleans(), u32, st.booleans()
)
batches = st.builds(m.Batch, u64, tuples(requests), u32, u32)
cached = st.builds(m.CachedBatch, u64, tuples(u64), u32, u32, maybe(st.integers(1, 2**32 - 1)))
tokens = st.builds(m.Token, u32, f32, texts, st.booleans())
generated = st.builds(m.GeneratedText, texts, u32, st.sampled_from(m.FinishReason), maybe(u64))
generations = st.builds(
    m.Generation,
    u64,
    tuples(tokens, least=1),
    maybe(generated),
    tuples(tokens),
    tuples(tuples(tokens)),
)
durations = st.builds(m.Durations, u64, u64, st.integers(1, 2**64 - 1), maybe(u64))
replies = st.builds(m.StepReply, tuples(generations), maybe(cached), maybe(durations))


def batch_in(protocol: Protocol, batch: m.Batch) -> m.Batch:
    """The batch as a shard of that version reads it."""
    return replace(batch, requests=tuple(_request_in(protocol, r) for r in batch.requests))


def _request_in(protocol: Protocol, request: m.Request) -> m.Request:
    if protocol is not Protocol.V3:
        request = replace(request, add_special_tokens=True)
    if protocol is Protocol.V1:
        request = replace(request, choice=replace(request.choice, frequency_penalty=0.0))
    return request


def cached_in(protocol: Protocol, batch: m.CachedBatch) -> m.CachedBatch:
    return batch if protocol is Protocol.V3 else replace(batch, current_tokens=None)


def _generation_in(protocol: Protocol, generation: m.Generation) -> m.Generation:
    if protocol is not Protocol.V1:
        return generation
    return replace(
        generation,
        tokens=generation.tokens[:1],
        prefill_tokens=tuple(replace(t, special=False) for t in generation.prefill_tokens),
        top_tokens=generation.top_tokens[:1],
    )


@pytest.mark.parametrize("protocol", ALL)
@STEADY
@given(batch=batches)
def test_prefill(protocol: Protocol, batch: m.Batch) -> None:
    payload = codec.encode_prefill(protocol, batch)
    assert codec.decode_prefill(protocol, payload) == batch_in(protocol, batch)


@pytest.mark.parametrize("protocol", ALL)
@STEADY
@given(held=tuples(cached))
def test_decode(protocol: Protocol, held: tuple[m.CachedBatch, ...]) -> None:
    payload = codec.encode_decode(protocol, held)
    expected = tuple(cached_in(protocol, batch) for batch in held)
    assert codec.decode_decode(protocol, payload) == expected


@pytest.mark.parametrize("protocol", ALL)
@STEADY
@given(reply=replies)
def test_step_reply(protocol: Protocol, reply: m.StepReply) -> None:
    payload = codec.encode_step_reply(protocol, reply)
    assert codec.decode_step_reply(protocol, payload) == m.StepReply(
        generations=tuple(_generation_in(protocol, g) for g in reply.generations),
        cached=None if reply.cached is None else cached_in(protocol, reply.cached),
        durations=None if protocol is Protocol.V1 else reply.durations,
    )


@pytest.mark.parametrize("protocol", ALL)
def test_the_first_prompt_token_has_no_log_probability(protocol: Protocol) -> None:
    first = m.Token(1, math.nan, "<s>", False)
    generation = m.Generation(0, (m.Token(2, -0.5, "a", False),), prefill_tokens=(first,))
    payload = codec.encode_step_reply(protocol, m.StepReply((generation,), None, None))
    read = codec.decode_step_reply(protocol, payload).generations[0].prefill_tokens[0]
    assert math.isnan(read.logprob)
    assert (read.id, read.text) == (1, "<s>")


@pytest.mark.parametrize(("protocol", "module"), MODULES.items())
def test_what_there_is_none_of_is_not_sent(protocol: Protocol, module: ModuleType) -> None:
    """A shard tells a prompt's tokens, alternatives, texts and batches only where it has some."""
    generation = m.Generation(1, (m.Token(2, -0.5, "a", False),))
    payload = codec.encode_step_reply(protocol, m.StepReply((generation,), None, None))
    reply = module.DecodeResponse.FromString(payload)
    assert [field.name for field, _ in reply.ListFields()] == ["generations"]
    told = {field.name for field, _ in reply.generations[0].ListFields()}
    new = {"token_id", "token_logprob", "token_text"} if protocol is Protocol.V1 else {"tokens"}
    assert told == {"request_id"} | new


@pytest.mark.parametrize("protocol", ALL)
@STEADY
@given(batch_id=u64, request_ids=tuples(u64))
def test_filter(protocol: Protocol, batch_id: int, request_ids: tuple[int, ...]) -> None:
    payload = codec.encode_filter(protocol, batch_id, request_ids)
    assert codec.decode_filter(protocol, payload) == (batch_id, request_ids)


@pytest.mark.parametrize("protocol", ALL)
@STEADY
@given(batch=cached)
def test_filter_reply(protocol: Protocol, batch: m.CachedBatch) -> None:
    payload = codec.encode_filter_reply(protocol, batch)
    assert codec.decode_filter_reply(protocol, payload) == cached_in(protocol, batch)


@pytest.mark.parametrize("protocol", ALL)
@STEADY
@given(batch_id=maybe(u64))
def test_clear_cache_tells_batch_0_from_every_batch(
    protocol: Protocol, batch_id: int | None
) -> None:
    payload = codec.encode_clear_cache(protocol, batch_id)
    assert codec.decode_clear_cache(protocol, payload) == batch_id


@pytest.mark.parametrize("protocol", ALL)
def test_clear_cache_of_batch_0(protocol: Protocol) -> None:
    assert codec.encode_clear_cache(protocol, 0) == b"\x08\x00"
    assert codec.encode_clear_cache(protocol, None) == b""


@pytest.mark.parametrize("protocol", ALL)
@STEADY
@given(urls=tuples(texts))
def test_discovery(protocol: Protocol, urls: tuple[str, ...]) -> None:
    assert codec.decode_discovery(protocol, codec.encode_discovery(protocol, urls)) == urls


positive = st.integers(1, 2**32 - 1)


@pytest.mark.parametrize("protocol", ALL)
@STEADY
@given(info=st.builds(m.ShardInfo, st.booleans(), texts, texts, maybe(u32), u32))
def test_info_of_a_server_that_names_no_attention(protocol: Protocol, info: m.ShardInfo) -> None:
    """v1 does not say speculate; v3 before 2.4.0 sends no field after it."""
    expected = replace(info, speculate=None) if protocol is Protocol.V1 else info
    assert codec.decode_info(protocol, codec.encode_info(protocol, info)) == expected


@STEADY
@given(
    info=st.builds(
        m.ShardInfo,
        st.booleans(),
        texts,
        texts,
        maybe(u32),
        u32,
        st.booleans(),
        st.booleans(),
        texts,
        positive,
    )
)
def test_info_of_a_server_that_names_its_attention(info: m.ShardInfo) -> None:
    assert codec.decode_info(Protocol.V3, codec.encode_info(Protocol.V3, info)) == info


@STEADY
@given(batch=batches, input_=maybe(positive), prefill=u32, total=maybe(positive))
def test_warmup(batch: m.Batch, input_: int | None, prefill: int, total: int | None) -> None:
    warmup = m.Warmup(batch, input_, prefill, total)
    for protocol in (Protocol.V2, Protocol.V3):
        read = codec.decode_warmup(protocol, codec.encode_warmup(protocol, warmup))
        assert read == replace(warmup, batch=batch_in(protocol, batch))
    first = codec.decode_warmup(Protocol.V1, codec.encode_warmup(Protocol.V1, warmup))
    assert first == m.Warmup(
        batch_in(Protocol.V1, batch), None, sum(r.truncate for r in batch.requests), None
    )


@pytest.mark.parametrize("protocol", ALL)
@STEADY
@given(supported=maybe(u32), input_=maybe(positive), total=maybe(positive))
def test_warmup_reply(
    protocol: Protocol, supported: int | None, input_: int | None, total: int | None
) -> None:
    reply = m.WarmupReply(supported, input_, total)
    expected = reply if protocol is Protocol.V3 else m.WarmupReply(supported)
    payload = codec.encode_warmup_reply(protocol, reply)
    assert codec.decode_warmup_reply(protocol, payload) == expected


def test_v3_carries_the_prompt_as_a_chunk() -> None:
    """A shard of v3 ignores `inputs`."""
    request = m.Request(0, "a prompt", 2, m.TokenChoice(), m.Stopping(1))
    payload = codec.encode_prefill(Protocol.V3, m.Batch(1, (request,), 3, 1))
    sent = v3.PrefillRequest.FromString(payload).batch.requests[0]
    assert sent.inputs == ""
    assert [chunk.text for chunk in sent.input_chunks.chunks] == ["a prompt"]


def test_neutral_choice_holds_none_of_the_wire_s_refused_zeros() -> None:
    neutral = m.TokenChoice()
    assert (neutral.temperature, neutral.top_p, neutral.typical_p) == (1.0, 1.0, 1.0)
    assert neutral.repetition_penalty == 1.0
    assert (neutral.top_k, neutral.frequency_penalty, neutral.seed) == (0, 0.0, 0)


@pytest.mark.parametrize("protocol", ALL)
def test_bytes_that_are_no_message(protocol: Protocol) -> None:
    for decode in (codec.decode_step_reply, codec.decode_prefill, codec.decode_info):
        with pytest.raises(DecodeError):
            decode(protocol, b"\xff\xff\xff")


@pytest.mark.parametrize("protocol", ALL)
def test_method_path(protocol: Protocol) -> None:
    number = protocol.name[1:]
    expected = f"/generate.v{number}.TextGenerationService/Decode"
    assert protocol.method("Decode") == expected


def test_messages_are_frozen_and_slotted() -> None:
    for cls in vars(m).values():
        if dataclasses.is_dataclass(cls) and isinstance(cls, type):
            assert hasattr(cls, "__slots__"), cls

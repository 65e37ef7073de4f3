"""What every engine does alike: the batches that it keeps, what it refuses, what it answers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.server.batches import batch, cached, request
from tests.server.configs import engine_config
from tests.torch_engine.needs_torch import needs_torch
from tests.torch_engine.tiny import loaded
from tgi_bench.server.behaviour import Behaviour
from tgi_bench.server.config import Version
from tgi_bench.server.engine import StepEngine
from tgi_bench.server.simulated_engine import SimulatedEngine
from tgi_bench.wire.messages import Batch, CachedBatch, FinishReason

every_engine = pytest.mark.parametrize(
    "name", ["simulated", pytest.param("transformers", marks=needs_torch)]
)


def engine(name: str, version: Version = (3, 3, 7)) -> StepEngine:
    """An engine of the padded class."""
    if name == "simulated":
        return SimulatedEngine(engine_config(), Behaviour(version))
    from tgi_bench.server.transformers_engine import TransformersEngine

    return TransformersEngine(loaded("llama"), Behaviour(version))


@every_engine
def test_prefill_then_decodes_to_the_end(name: str) -> None:
    shard = engine(name)
    reply = shard.prefill(batch(7, request(1, words=10), request(2, words=4)))
    assert [g.request_id for g in reply.generations] == [1, 2]
    assert all(g.generated_text is None for g in reply.generations)
    assert all(g.prefill_tokens == () and g.top_tokens == () for g in reply.generations)
    assert cached(reply) == CachedBatch(7, (1, 2), 2, 2 * (10 + 2 * 3), 2)
    texts = [reply.generations[0].tokens[0].text]
    for _ in range(2):
        reply = shard.decode([cached(reply)])
        texts.append(reply.generations[0].tokens[0].text)
    assert reply.cached is None
    text = reply.generations[0].generated_text
    assert text is not None
    assert (text.text, text.generated_tokens) == ("".join(texts), 3)
    assert (text.finish_reason, text.seed) == (FinishReason.LENGTH, None)


@every_engine
def test_one_new_token_leaves_no_batch(name: str) -> None:
    reply = engine(name).prefill(batch(0, request(new=1)))
    assert reply.cached is None
    text = reply.generations[0].generated_text
    assert text is not None
    assert (text.generated_tokens, text.finish_reason, text.seed) == (1, FinishReason.LENGTH, None)


@every_engine
def test_decode_pops_its_batch(name: str) -> None:
    shard = engine(name)
    first = cached(shard.prefill(batch(5, request(new=9))))
    shard.clear_cache(99)
    second = cached(shard.decode([first]))
    third = cached(shard.decode([second]))
    assert third.id == 5
    shard.clear_cache(5)
    with pytest.raises(ValueError, match=r"^Batch ID 5 not found in cache\.$"):
        shard.decode([third])
    with pytest.raises(ValueError, match=r"^Must provide at least one batch$"):
        shard.decode([])
    shard.prefill(batch(6, request(new=9)))
    shard.clear_cache(None)
    with pytest.raises(ValueError, match="Batch ID 6 not found"):
        shard.filter_batch(6, [0])


@every_engine
def test_joined_batches_keep_the_first_id_and_the_order(name: str) -> None:
    shard = engine(name)
    first = cached(shard.prefill(batch(1, request(10, new=9), request(11, new=9))))
    second = cached(shard.prefill(batch(2, request(12, new=2))))
    reply = shard.decode([first, second])
    assert [g.request_id for g in reply.generations] == [10, 11, 12]
    # Rooms of 2 x (10 + 18) and 10 + 2, both with a longest context of 11 by now.
    assert cached(reply) == CachedBatch(1, (10, 11, 12), 3, 56 + 12, 3)
    with pytest.raises(ValueError, match="Batch ID 2 not found"):
        shard.decode([second])


@every_engine
def test_a_joined_batch_has_room_for_every_row_at_the_longest(name: str) -> None:
    shard = engine(name)
    long = cached(shard.prefill(batch(1, request(1, words=20, new=5))))
    short = cached(shard.prefill(batch(2, request(2, words=4, new=5), request(3, words=8, new=5))))
    assert (long.max_tokens, short.max_tokens) == (20 + 5, 2 * (8 + 10))
    # 12 columns of padding for each of the two short rows.
    assert cached(shard.decode([long, short])).max_tokens == 25 + 36 + 2 * 12


@every_engine
def test_who_has_ended_stays_until_it_is_filtered_out(name: str) -> None:
    shard = engine(name)
    shard.prefill(batch(1, request(1, new=2), request(2, new=9)))
    for made in (2, 3):
        reply = shard.decode([CachedBatch(1, (), 0, 0)])
        ended, going_on = reply.generations
        assert cached(reply).request_ids == (1, 2)
        assert ended.generated_text is not None
        assert ended.generated_text.generated_tokens == made
        assert going_on.generated_text is None
    kept = shard.filter_batch(1, [2])
    assert kept == CachedBatch(1, (2,), 1, 13 + 6, 1)  # 10 + 3 tokens, 6 to come
    assert [g.request_id for g in shard.decode([cached(reply)]).generations] == [2]


@every_engine
def test_a_filter_that_keeps_all_changes_nothing(name: str) -> None:
    shard = engine(name)
    held = cached(shard.prefill(batch(1, request(1), request(2))))
    assert shard.filter_batch(1, [2, 1]) == held
    assert [g.request_id for g in shard.decode([held]).generations] == [1, 2]


@every_engine
def test_filter_keeps_and_orders(name: str) -> None:
    shard = engine(name)
    shard.prefill(batch(1, *(request(i, new=9) for i in (1, 2, 3))))
    kept = shard.filter_batch(1, [3, 1])
    assert kept.request_ids == (3, 1)
    assert [g.request_id for g in shard.decode([kept]).generations] == [3, 1]


@every_engine
def test_a_bad_filter_loses_the_batch(name: str) -> None:
    shard = engine(name)
    shard.prefill(batch(1, request(1, new=9), request(2, new=9)))
    with pytest.raises(KeyError):
        shard.filter_batch(1, [3])
    with pytest.raises(ValueError, match="Batch ID 1 not found in cache"):
        shard.filter_batch(1, [2])
    shard.prefill(batch(1, request(1, new=9)))
    with pytest.raises(ValueError, match="at least one request"):
        shard.filter_batch(1, [])


@every_engine
def test_durations_and_current_tokens_by_version(name: str) -> None:
    old = engine(name, (1, 3, 2)).prefill(batch(0, request()))
    assert (old.durations, cached(old).current_tokens) == (None, None)
    assert engine(name, (1, 3, 3)).prefill(batch(0, request())).durations is not None
    shard = engine(name)
    first, second = (shard.prefill(batch(n, request(n, new=5))) for n in range(2))
    assert first.durations is not None
    assert first.durations.concat_ns is None
    told = shard.decode([cached(first), cached(second)]).durations
    assert told is not None
    assert told.concat_ns is not None
    assert told.forward_ns + told.decode_ns + told.concat_ns == told.total_ns


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        (batch(0), IndexError, r"^list index out of range$"),
        (batch(0, replace(request(), text="")), NotImplementedError, "^Request without a text"),
        (batch(0, replace(request(), truncate=0)), TypeError, "new_zeros"),
        (
            replace(batch(0, request()), size=2),
            RuntimeError,
            r"expanded size of the tensor \(2\).* \[1, 10\]$",
        ),
        (
            batch(0, request(temperature=0.0)),
            ValueError,
            r"`temperature` \(=0\.0\) has to be a strictly positive float",
        ),
        (batch(0, request(temperature=math.nan)), ValueError, "strictly positive float"),
        (batch(0, request(top_p=0.0)), ValueError, "`top_p` has to be a float > 0 and < 1"),
        (batch(0, request(typical_p=0.0)), ValueError, "`typical_p` has to be a float > 0"),
        (batch(0, request(repetition_penalty=0.0)), ValueError, "`penalty` has to be a strictly"),
    ],
)
@every_engine
def test_a_batch_that_a_shard_refuses(
    name: str, asked: Batch, error: type[Exception], message: str
) -> None:
    shard = engine(name)
    with pytest.raises(error, match=message):
        shard.prefill(asked)
    assert shard.prefill(batch(0, request())).generations


@every_engine
def test_top_tokens_fall_and_greedy_takes_the_first(name: str) -> None:
    generation = engine(name).prefill(batch(0, replace(request(), top_n_tokens=3))).generations[0]
    (top,) = generation.top_tokens
    assert len({t.id for t in top}) == 3
    assert [t.logprob for t in top] == sorted((t.logprob for t in top), reverse=True)
    (taken,) = generation.tokens
    assert taken.logprob == pytest.approx(top[0].logprob, abs=1e-4)
    assert replace(taken, logprob=top[0].logprob) == top[0]
    assert top[0].logprob < 0


@every_engine
def test_before_0_9_every_prompt_token_is_told(name: str) -> None:
    reply = engine(name, (0, 8, 2)).prefill(batch(0, request(words=7)))
    told = reply.generations[0].prefill_tokens
    assert len(told) == 7
    assert math.isnan(told[0].logprob)


@every_engine
@pytest.mark.parametrize(
    ("version", "named"), [((2, 0, 4), False), ((2, 3, 0), False), ((2, 4, 0), True)]
)
def test_attention_is_named_by_version(name: str, version: Version, named: bool) -> None:
    info = engine(name, version).info()
    assert info.requires_padding
    assert (info.attention_impl, info.block_size) == (("paged", 16) if named else (None, None))
    assert info.support_chunking is info.use_prefix_caching is (False if named else None)

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.server.batches import batch, cached, request
from tests.server.configs import FLASH, PADDED, engine_config
from tgi_bench.errors import InputError
from tgi_bench.estimate.step_time import decode_time, prefill_time
from tgi_bench.server.behaviour import Behaviour
from tgi_bench.server.config import EngineConfig, Version
from tgi_bench.server.device import setup_of
from tgi_bench.server.simulated_engine import Clock, SimulatedEngine
from tgi_bench.wire.messages import (
    FinishReason,
    Stopping,
    TokenChoice,
    Warmup,
    WarmupReply,
)


class FakeTime:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 1_000

    def clock(self) -> Clock:
        return Clock(now_ns=lambda: self.now, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += round(seconds * 1e9)


def engine(
    version: Version = (3, 3, 7), config: EngineConfig | None = None, time: FakeTime | None = None
) -> SimulatedEngine:
    return SimulatedEngine(
        config or engine_config(), Behaviour(version), (time or FakeTime()).clock()
    )


def test_steps_take_the_estimates_time() -> None:
    time, config = FakeTime(), engine_config()
    shard, setup = engine(time=time, config=config), setup_of(config)
    start = time.now
    reply = shard.prefill(batch(0, request(1, words=10), request(2, words=6)))
    assert time.now - start == int(prefill_time(setup, 2, 10).total_s * 1e9)
    start = time.now
    reply = shard.decode([cached(reply)])
    assert time.now - start == int(decode_time(setup, 2, 11).total_s * 1e9)
    assert reply.durations is not None
    assert reply.durations.total_ns == time.now - start
    assert reply.durations.forward_ns + reply.durations.decode_ns == reply.durations.total_ns
    assert reply.durations.concat_ns is None


def test_tokens_do_not_depend_on_the_batch() -> None:
    alone = engine().prefill(batch(0, request(3)))
    together = engine().prefill(batch(9, request(2), request(3)))
    assert alone.generations[0].tokens == together.generations[1].tokens


def test_sampling_depends_on_the_seed() -> None:
    def sampled(seed: int) -> int:
        asked = replace(request(), choice=TokenChoice(do_sample=True, seed=seed))
        return engine().prefill(batch(0, asked)).generations[0].tokens[0].id

    assert sampled(1) == sampled(1)
    assert len({sampled(seed) for seed in range(8)}) > 1


def test_truncate_counts_from_the_end() -> None:
    asked = replace(request(words=10), truncate=4, prefill_logprobs=True)
    generation = engine().prefill(batch(0, asked)).generations[0]
    assert [t.text for t in generation.prefill_tokens] == [f" w0x{i}" for i in range(6, 10)]
    assert math.isnan(generation.prefill_tokens[0].logprob)
    assert all(t.logprob < 0 for t in generation.prefill_tokens[1:])


def test_stop_sequence() -> None:
    greedy = request(new=50)
    shard = engine()
    first = shard.prefill(batch(0, greedy))
    word = shard.decode([cached(first)]).generations[0].tokens[0].text
    stopping = Stopping(max_new_tokens=50, stop_sequences=("never", word))
    reply = shard.prefill(batch(1, replace(greedy, stopping=stopping)))
    reply = shard.decode([cached(reply)])
    text = reply.generations[0].generated_text
    assert text is not None
    assert (text.finish_reason, text.generated_tokens) == (FinishReason.STOP_SEQUENCE, 2)
    assert reply.cached is None


def test_padded_info_and_warmup() -> None:
    shard = engine(config=engine_config(PADDED))
    assert shard.info().requires_padding
    assert shard.info().device_type == "simulated"
    assert shard.info().block_size == 16
    reply = shard.warmup(Warmup(batch(0, request()), 64, 128, 128))
    assert reply == WarmupReply(None, 64, 128)
    with pytest.raises(ValueError, match="not found"):
        shard.filter_batch(0, [0])


@pytest.mark.parametrize(
    ("version", "block_size"), [((2, 0, 4), None), ((2, 3, 0), None), ((2, 4, 0), 16)]
)
def test_flash_info(version: Version, block_size: int | None) -> None:
    info = engine(version, engine_config(FLASH)).info()
    assert not info.requires_padding
    assert info.block_size == block_size
    assert info.dtype == "torch.float16"


# Weights of 16.06e9 bytes: a quarter of 79.4 GiB leaves a pool of a few thousand tokens.
TIGHT = engine_config(FLASH, memory_fraction=0.25)


def warmed(version: Version) -> tuple[SimulatedEngine, int]:
    shard = engine(version, TIGHT)
    reply = shard.warmup(Warmup(batch(0, request(words=16)), 64, 128, 128))
    pool = reply.max_supported_total_tokens
    assert pool is not None
    assert pool % 16 == 0
    return shard, pool


@pytest.mark.parametrize(
    ("version", "error", "message"),
    [
        ((0, 9, 4), AssertionError, r"^Out of available cache blocks: asked \d+, only \d+ free"),
        ((1, 4, 5), AssertionError, r"^Out of available cache blocks"),
        ((2, 0, 4), RuntimeError, r"^Out of available cache blocks"),
        ((2, 1, 0), RuntimeError, r"^CUDA out of memory\. Tried to allocate"),
        ((3, 3, 7), RuntimeError, r"^CUDA out of memory\. Tried to allocate"),
    ],
)
def test_more_blocks_than_the_pool_has(
    version: Version, error: type[Exception], message: str
) -> None:
    shard, pool = warmed(version)
    asked = request(new=pool)  # 10 prompt tokens and pool - 1 new ones that are cached
    with pytest.raises(error, match=message):
        shard.prefill(batch(3, asked))
    fits = request(new=pool - 9)
    first = cached(shard.prefill(batch(4, fits)))
    with pytest.raises(error, match=message):
        shard.prefill(batch(5, request(6)))
    shard.clear_cache(first.id)
    assert shard.prefill(batch(5, request(6))).cached is not None


@pytest.mark.parametrize(("version", "error"), [((1, 4, 5), RuntimeError), ((3, 3, 7), IndexError)])
def test_flash_needs_its_warmup(version: Version, error: type[Exception]) -> None:
    with pytest.raises(error):
        engine(version, engine_config(FLASH)).prefill(batch(0, request()))


def test_warmup_that_does_not_fit() -> None:
    shard = engine((2, 0, 4), engine_config(FLASH, memory_fraction=0.205))
    # 0.8e9 bytes are left beside the weights, 3.3e9 are needed for hidden tensors alone.
    with pytest.raises(RuntimeError, match=r"^Not enough memory to handle 100000 prefill tokens"):
        shard.warmup(Warmup(batch(0, request()), 64, 100_000, 128))


def test_warmup_names_limits_from_3_0() -> None:
    shard = engine((3, 3, 7), TIGHT)
    reply = shard.warmup(Warmup(batch(0, request()), None, 128, None))
    assert reply.max_total_tokens == reply.max_supported_total_tokens
    assert reply.max_total_tokens is not None
    assert reply.max_input_tokens == reply.max_total_tokens - 1


# 2.13e9 bytes of weights and 1.26e9 of runtime and logits: 8 GB leave room for some batches.
SMALL = engine_config(PADDED, accelerator="T4", memory_fraction=0.4)


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (
            (0, 9, 4),
            r"^CUDA out of memory\. Tried to allocate [\d.]+ GiB \(GPU 0; [\d.]+ GiB total",
        ),
        ((2, 0, 4), r"^CUDA out of memory\. Tried to allocate [\d.]+ GiB\. GPU 0 has a total"),
    ],
)
def test_padded_prefill_out_of_memory(version: Version, message: str) -> None:
    shard = engine(version, SMALL)
    with pytest.raises(RuntimeError, match=message):
        shard.prefill(batch(1, *(request(i, words=1000) for i in range(16))))
    assert shard.prefill(batch(1, request(words=10))).cached is not None


def test_held_batches_count() -> None:
    shard = engine((0, 9, 4), SMALL)

    def hold_many() -> None:
        for batch_id in range(100):
            shard.prefill(batch(batch_id, request(words=1000, new=2)))

    with pytest.raises(RuntimeError, match="CUDA out of memory"):
        hold_many()
    shard.clear_cache(None)
    assert shard.prefill(batch(0, request(words=1000))).cached is not None


def test_weights_that_do_not_fit() -> None:
    with pytest.raises(RuntimeError, match="CUDA out of memory"):
        engine(config=engine_config(FLASH, accelerator="T4"))


@pytest.mark.parametrize(
    "config",
    [
        engine_config("bigscience/blomz-1b1"),
        engine_config(accelerator="A100"),
        engine_config(num_shard=3),
        engine_config(num_shard=0),
    ],
)
def test_bad_names(config: EngineConfig) -> None:
    with pytest.raises(InputError):
        engine(config=config)

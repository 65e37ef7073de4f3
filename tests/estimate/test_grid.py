"""Configurations: one by one and many at once, and what must hold for all."""

from __future__ import annotations

import dataclasses
from math import isfinite

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.estimate.setups import bloomz, llama
from tests.estimate.test_step_time import setups
from tgi_bench.errors import InputError
from tgi_bench.estimate.grid import FEW, MANY, Estimate, Sizes, estimate, estimates
from tgi_bench.estimate.setup import ABSENT, LARGEST_SIZE, RANGES, UNCALIBRATED, Constants, Setup
from tgi_bench.estimate.step_time import (
    decode_context,
    decode_limit_s,
    decode_time,
    generate_limit_s,
    generate_s,
    prefill_limit_s,
    prefill_time,
)
from tgi_bench.estimate.tables import accelerator, model_shape

sizes = st.integers(1, 2048)
HALF = LARGEST_SIZE // 2
EXTREME = st.one_of(st.sampled_from([1, 2, HALF - 1, HALF]), st.integers(1, HALF))


@st.composite
def constants(draw: st.DrawFn) -> Constants:
    """A few constants anywhere in their ranges, the others uncalibrated."""
    names = draw(st.lists(st.sampled_from(sorted(RANGES)), max_size=5, unique=True))
    return dataclasses.replace(UNCALIBRATED, **{n: draw(st.floats(*RANGES[n])) for n in names})


@st.composite
def any_setups(draw: st.DrawFn) -> Setup:
    """Setups of both generators, one device or several of either kind, calibrated or not."""
    setup = draw(setups())
    split = draw(st.sampled_from([1, 2, 8])) if setup.num_shard == 1 else 1
    return dataclasses.replace(
        setup,
        constants=draw(constants()),
        generator=draw(st.sampled_from(["tgi", "transformers"])),
        split_devices=split,
    )


def summed_s(setup: Setup, batch: int, prompt: int, new: int) -> float:
    """A generate, step by step."""
    steps = (decode_time(setup, batch, prompt + step).total_s for step in range(1, new))
    return prefill_time(setup, batch, prompt).total_s + sum(steps)


@given(any_setups(), sizes, sizes, st.integers(1, 60))
@settings(deadline=None)
def test_a_generate_is_the_sum_of_its_steps(
    setup: Setup, batch: int, prompt: int, new: int
) -> None:
    looped = summed_s(setup, batch, prompt, new)
    assert generate_s(setup, batch, prompt, new) == pytest.approx(looped, rel=1e-9)


@pytest.mark.parametrize("prompt", [10, 500, 523, 524, 600])
def test_steps_that_the_host_bounds_are_told_from_others(prompt: int) -> None:
    """Batch 32 of bloomz-7b1-mt on two devices: up to 523 tokens of context the host is slower."""
    bounds = [decode_time(bloomz(2), 32, context).bound for context in (523, 524)]
    assert bounds == ["host", "memory"]
    summed = summed_s(bloomz(2), 32, prompt, 50)
    assert generate_s(bloomz(2), 32, prompt, 50) == pytest.approx(summed, rel=1e-12)


def test_no_step_is_hidden_where_launching_waits_for_the_device() -> None:
    waits = dataclasses.replace(llama(quantize="bitsandbytes"), generator="transformers")
    assert decode_time(waits, 4, 100).waits
    assert generate_s(waits, 4, 100, 60) == pytest.approx(summed_s(waits, 4, 100, 60), rel=1e-12)


@given(any_setups(), sizes, sizes, st.integers(1, 20))
@settings(deadline=None)
def test_nothing_below_the_limit_of_the_hardware(
    setup: Setup, batch: int, prompt: int, new: int
) -> None:
    rounding = 1 + 1e-9
    assert prefill_limit_s(setup, batch, prompt) > 0
    assert prefill_limit_s(setup, batch, prompt) <= (
        prefill_time(setup, batch, prompt).total_s * rounding
    )
    assert decode_limit_s(setup, batch, prompt) <= (
        decode_time(setup, batch, prompt).total_s * rounding
    )
    assert generate_limit_s(setup, batch, prompt, new) <= (
        generate_s(setup, batch, prompt, new) * rounding
    )


@given(any_setups(), sizes, sizes, sizes, sizes)
@settings(deadline=None)
def test_latency_and_memory_grow(
    setup: Setup, batch: int, prompt: int, new: int, more: int
) -> None:
    one = estimate(setup, Sizes(batch, prompt, new))
    wider = estimate(setup, Sizes(batch + more, prompt, new))
    longer = estimate(setup, Sizes(batch, prompt + more, new))
    for less, wide, long in zip(*map(seconds, (one, wider, longer)), strict=True):
        assert wide > less
        # Not above: a step may hide its context behind the host.
        assert long >= less * (1 - 1e-12)
    assert wider.memory.total_bytes > one.memory.total_bytes
    assert longer.memory.total_bytes >= one.memory.total_bytes
    newer = estimate(setup, Sizes(batch, prompt, new + more))
    assert newer.generate_s >= one.generate_s * (1 - 1e-12)
    assert newer.memory.total_bytes >= one.memory.total_bytes * (1 - 1e-12)


def seconds(found: Estimate) -> tuple[float, float, float]:
    return found.prefill.time.total_s, found.decode.time.total_s, found.generate_s


def test_latency_grows_with_context_where_the_device_is_the_bound() -> None:
    one, other = (decode_time(bloomz(), 32, context) for context in (1000, 1001))
    assert one.bound == other.bound == "memory"
    assert other.total_s > one.total_s
    assert prefill_time(bloomz(), 8, 1001).total_s > prefill_time(bloomz(), 8, 1000).total_s


@given(any_setups(), EXTREME, EXTREME, EXTREME)
@settings(max_examples=150, deadline=None)
def test_every_figure_is_finite_and_above_zero(
    setup: Setup, batch: int, prompt: int, new: int
) -> None:
    found = estimate(setup, Sizes(batch, prompt, new))
    memory = found.memory
    for figure in (
        *seconds(found),
        found.prefill.limit_s,
        found.decode.limit_s,
        found.prompt_tokens_per_s,
        found.decode_tokens_per_s,
        found.new_tokens_per_s,
        found.energy_j_per_token,
        memory.weights_bytes,
        memory.kv_cache_bytes,
        memory.activations_bytes,
        memory.runtime_bytes,
        memory.total_bytes,
        memory.largest_block_bytes,
    ):
        assert isfinite(figure)
        assert figure > 0
    for step in (found.prefill, found.decode):
        assert 0 < step.time.bound_share <= 1
        assert 0 < step.roofline_share <= 1 + 1e-9


@pytest.mark.parametrize(
    "setup",
    [
        bloomz(2),
        llama(),
        dataclasses.replace(llama(quantize="bitsandbytes"), generator="transformers"),
        dataclasses.replace(bloomz(), split_devices=4),
        Setup(model_shape("facebook/opt-6.7b"), accelerator("L4"), 8, dtype="float32"),
    ],
    ids=["padded", "flash", "waiting", "split", "links"],
)
def test_many_at_once_are_what_they_are_one_by_one(setup: Setup) -> None:
    """To the last bit: a matrix of MANY says of each row what the row alone does."""
    asked = [(setup, Sizes(1 + i % 7, 1 + 13 * i, 1 + i % 50)) for i in range(MANY)]
    few = [(llama(2), Sizes(1 + i, 10, 10)) for i in range(FEW - 1)]
    asked[10:10] = few
    assert estimates(asked) == tuple(estimate(*one) for one in asked)


def test_experts_touched_are_many_at_once_what_they_are_one_by_one() -> None:
    """Powers of arrays and of numbers may differ in the last bit."""
    mixtral = Setup(model_shape("mistralai/Mixtral-8x7B-v0.1"), accelerator("H100-SXM"), 2)
    asked = [(mixtral, Sizes(1 + i % 20, 1 + i, 2)) for i in range(MANY)]
    for one, found in zip(asked, estimates(asked), strict=True):
        assert seconds(found) == pytest.approx(seconds(estimate(*one)), rel=1e-14)


def test_throughput_and_energy_by_hand() -> None:
    setup = bloomz(8)
    found = estimate(setup, Sizes(4, 1024, 8))
    whole = summed_s(setup, 4, 1024, 8)
    assert found.prompt_tokens_per_s == pytest.approx(
        4 * 1024 / prefill_time(setup, 4, 1024).total_s
    )
    step = decode_time(setup, 4, 1028).total_s
    assert found.decode.time.total_s == step
    assert found.decode_tokens_per_s == pytest.approx(4 / step)
    assert found.new_tokens_per_s == pytest.approx(4 * 8 / whole)
    # Eight A100 of 400 W, all of them; 32 new tokens.
    assert found.energy_j_per_token == pytest.approx(8 * 400 * whole / 32)


def test_one_new_token_has_a_decode_step_of_its_own() -> None:
    found = estimate(llama(), Sizes(2, 100, 1))
    assert found.generate_s == found.prefill.time.total_s
    assert found.decode_tokens_per_s == pytest.approx(2 / decode_time(llama(), 2, 101).total_s)
    # Beyond the largest size there is no step to count.
    assert estimate(llama(), Sizes(2, LARGEST_SIZE, 1)).generate_s > 0


def test_energy_counts_devices_that_take_turns() -> None:
    split = estimate(dataclasses.replace(bloomz(), split_devices=4), Sizes(1, 10, 2))
    assert split.energy_j_per_token == pytest.approx(4 * 400 * split.generate_s / 2)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ((0, 8, 8), "batch_size is 0; it must be from 1"),
        ((8, -1, 8), "prompt_tokens is -1; it must be from 1"),
        ((8, 8, 10**8), "new_tokens is 100000000; it must be from 1"),
    ],
)
def test_sizes_are_checked(size: tuple[int, int, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Sizes(*size)


def test_the_context_of_a_decode_figure() -> None:
    # Without new tokens the step is one alone, which attends to the prompt's.
    assert [decode_context(100, new) for new in (1, 2, 8, 9)] == [100, 101, 104, 105]
    assert decode_context(LARGEST_SIZE, 8) == LARGEST_SIZE


def test_a_generate_beyond_the_largest_size() -> None:
    assert generate_s(bloomz(), 1, LARGEST_SIZE - 1, 2) > 0
    with pytest.raises(InputError, match="context_tokens is 10000001; it must be from 1"):
        generate_s(bloomz(), 1, LARGEST_SIZE, 2)


@pytest.mark.parametrize("times", [1, MANY])
def test_sizes_of_the_last_step_are_checked(times: int) -> None:
    with pytest.raises(InputError, match="context_tokens is 10000002; it must be from 1"):
        estimates([(bloomz(), Sizes(1, LARGEST_SIZE, 2))] * times)


def test_absent_constants_are_those_that_are_zero() -> None:
    assert {name for name, value in UNCALIBRATED.values().items() if value == 0} == set(ABSENT)

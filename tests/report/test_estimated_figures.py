"""One configuration's figures: equal to the step formulas, finite and above 0 everywhere."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tgi_bench.errors import InputError
from tgi_bench.estimate.calibration import published
from tgi_bench.estimate.setup import (
    DTYPE_BYTES,
    GENERATORS,
    LARGEST_SIZE,
    UNCALIBRATED,
    WEIGHT_BYTES,
    Setup,
)
from tgi_bench.estimate.step_time import generate_time_s
from tgi_bench.estimate.tables import accelerator, accelerator_names, model_names, model_shape
from tgi_bench.report.estimated_figures import (
    MANY,
    Estimate,
    Sizes,
    estimate,
    estimates,
    generate_s,
)

BLOOMZ = Setup(model_shape("bigscience/bloomz-7b1-mt"), accelerator("A100-40GB-SXM"), 2)


@st.composite
def setups(draw: st.DrawFn) -> Setup:
    model = model_shape(draw(st.sampled_from(model_names())))
    device = accelerator(draw(st.sampled_from(accelerator_names())))
    shards = [
        n
        for n in (1, 2, 4, 8, 16, model.heads)
        if model.heads % n == 0 and (model.kv_heads % n == 0 or n % model.kv_heads == 0)
    ]
    dtypes = [d for d in DTYPE_BYTES if d != "bfloat16" or device.bfloat16]
    return Setup(
        model=model,
        accelerator=device,
        num_shard=draw(st.sampled_from(shards)),
        quantize=draw(st.sampled_from([None, *WEIGHT_BYTES])),
        dtype=draw(st.sampled_from(dtypes)),
        prompt_logprobs=draw(st.booleans()),
        constants=draw(st.sampled_from([UNCALIBRATED, *(c.constants for c in published())])),
        generator=draw(st.sampled_from(GENERATORS)),
    )


HALF = LARGEST_SIZE // 2
EXTREME = st.one_of(st.sampled_from([1, 2, HALF - 1, HALF]), st.integers(1, HALF))


def figures(found: Estimate) -> dict[str, float]:
    memory = found.memory
    return {
        "prefill": found.prefill.seconds,
        "prefill limit": found.prefill.limit_s,
        "decode": found.decode.seconds,
        "decode limit": found.decode.limit_s,
        "generate": found.generate_s,
        "prompt tokens/s": found.prompt_tokens_per_s,
        "decode tokens/s": found.decode_tokens_per_s,
        "new tokens/s": found.new_tokens_per_s,
        "energy": found.energy_j_per_token,
        "weights": memory.weights_bytes,
        "KV cache": memory.kv_cache_bytes,
        "activations": memory.activations_bytes,
        "runtime": memory.runtime_bytes,
        "memory": memory.total_bytes,
    }


@settings(max_examples=150, deadline=None)
@given(setups(), EXTREME, EXTREME, EXTREME)
def test_no_figure_is_nan_negative_or_zero(setup: Setup, batch: int, prompt: int, new: int) -> None:
    found = estimate(setup, Sizes(batch, prompt, new))
    for name, value in figures(found).items():
        assert isfinite(value), name
        assert value > 0, name
    for step in (found.prefill, found.decode):
        assert 0 < step.bound_share <= 1
        assert 0 < step.roofline_share <= 1 + 1e-9


@settings(max_examples=100, deadline=None)
@given(setups(), st.integers(1, 64), st.integers(1, 3000), st.integers(1, 60))
def test_a_generate_is_the_sum_of_its_steps(
    setup: Setup, batch: int, prompt: int, new: int
) -> None:
    looped = generate_time_s(setup, batch, prompt, new)
    assert generate_s(setup, Sizes(batch, prompt, new)) == pytest.approx(looped, rel=1e-9)


@settings(max_examples=50, deadline=None)
@given(setups(), st.integers(1, 64), st.integers(1, 2000), st.integers(2, 100))
def test_more_of_anything_is_not_less(setup: Setup, batch: int, prompt: int, new: int) -> None:
    small = estimate(setup, Sizes(batch, prompt, new))
    for sizes in (
        Sizes(batch + 1, prompt, new),
        Sizes(batch, prompt + 1, new),
        Sizes(batch, prompt, new + 1),
    ):
        large = estimate(setup, sizes)
        assert large.generate_s >= small.generate_s * (1 - 1e-12)
        assert large.memory.total_bytes >= small.memory.total_bytes * (1 - 1e-12)


def test_many_at_once_are_what_they_are_one_by_one() -> None:
    asked = [(BLOOMZ, Sizes(1 + i % 7, 1 + 13 * i, 1 + i % 50)) for i in range(MANY)]
    for (setup, sizes), found in zip(asked, estimates(asked), strict=True):
        alone = estimate(setup, sizes)
        assert figures(found) == pytest.approx(figures(alone), rel=1e-9)
        assert (found.decode.bound, found.memory.fits) == (alone.decode.bound, alone.memory.fits)


def test_energy_is_of_all_devices() -> None:
    found = estimate(BLOOMZ, Sizes(4, 100, 10))
    # Two devices of 400 W; 40 new tokens.
    assert found.energy_j_per_token == pytest.approx(2 * 400 * found.generate_s / 40)
    split = estimate(replace(BLOOMZ, num_shard=1, split_devices=8), Sizes(4, 100, 10))
    assert split.energy_j_per_token == pytest.approx(8 * 400 * split.generate_s / 40)


@pytest.mark.parametrize("sizes", [(0, 1, 1), (1, -1, 1), (1, 1, LARGEST_SIZE + 1)])
def test_sizes_that_no_server_takes(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(InputError, match="must be from 1 to"):
        Sizes(*sizes)

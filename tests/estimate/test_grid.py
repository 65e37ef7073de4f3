"""Arrays of configurations: equal to the scalar functions, and what must hold for all."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.estimate.setups import bloomz, llama
from tests.estimate.test_roofline import setups
from tgi_bench.errors import InputError
from tgi_bench.estimate.grid import Grid, grid_of
from tgi_bench.estimate.grid_estimate import GridEstimate, grid_estimate
from tgi_bench.estimate.memory import fits, prefill_memory
from tgi_bench.estimate.memory_arrays import energy_j, memory_arrays
from tgi_bench.estimate.setup import ABSENT, RANGES, UNCALIBRATED, Constants, Setup
from tgi_bench.estimate.step_arrays import BOUNDS, decode_arrays, generate_s, prefill_arrays
from tgi_bench.estimate.step_time import (
    decode_limit_s,
    decode_time,
    generate_limit_s,
    generate_time_s,
    prefill_limit_s,
    prefill_time,
)

sizes = st.integers(1, 2048)


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


@given(any_setups(), sizes, sizes, st.integers(1, 20))
@settings(deadline=None)
def test_arrays_equal_the_scalar_functions(setup: Setup, batch: int, prompt: int, new: int) -> None:
    grid = grid_of([setup], [(batch, prompt, new)])
    for arrays, scalar in (
        (prefill_arrays(grid), prefill_time(setup, batch, prompt)),
        (decode_arrays(grid), decode_time(setup, batch, prompt)),
    ):
        assert arrays.compute_s[0] == pytest.approx(scalar.compute_s, rel=1e-9)
        assert arrays.memory_s[0] == pytest.approx(scalar.memory_s, rel=1e-9)
        assert arrays.interconnect_s[0] == pytest.approx(scalar.interconnect_s, rel=1e-9)
        assert arrays.host_s[0] == pytest.approx(scalar.host_s, rel=1e-9)
        assert arrays.total_s[0] == pytest.approx(scalar.total_s, rel=1e-9)
        assert 0 < arrays.bound_share[0] <= 1
        if BOUNDS[arrays.bound[0]] == scalar.bound:
            assert arrays.bound_share[0] == pytest.approx(scalar.bound_share, rel=1e-9)
        else:  # two within a rounding of each other
            two = sorted([scalar.compute_s, scalar.memory_s, scalar.interconnect_s])[-2:]
            assert two[0] == pytest.approx(two[1], rel=1e-6) or "host" in (
                scalar.bound,
                BOUNDS[arrays.bound[0]],
            )
    whole = generate_time_s(setup, batch, prompt, new)
    assert generate_s(grid)[0] == pytest.approx(whole, rel=1e-9)


@given(any_setups(), sizes, sizes, st.integers(1, 100))
def test_memory_arrays_equal_the_scalar_functions(
    setup: Setup, batch: int, prompt: int, new: int
) -> None:
    found = memory_arrays(grid_of([setup], [(batch, prompt, new)]))
    need = prefill_memory(setup, batch, prompt, new)
    assert found.total_bytes[0] == pytest.approx(need.total_bytes)
    assert found.weights_bytes[0] == pytest.approx(need.weights_bytes)
    assert found.kv_cache_bytes[0] == pytest.approx(need.kv_cache_bytes)
    assert found.activations_bytes[0] == pytest.approx(need.activations_bytes)
    assert found.runtime_bytes[0] == pytest.approx(need.runtime_bytes)
    assert found.fits[0] == fits(setup, need)


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
        generate_time_s(setup, batch, prompt, new) * rounding
    )


@given(any_setups(), sizes, sizes, sizes, sizes)
@settings(deadline=None)
def test_latency_and_memory_grow(
    setup: Setup, batch: int, prompt: int, new: int, more: int
) -> None:
    wider, longer = (batch + more, prompt, new), (batch, prompt + more, new)
    found = grid_estimate(grid_of([setup] * 3, [(batch, prompt, new), wider, longer]))
    for step in (found.prefill.total_s, found.decode.total_s, found.generate_s):
        assert step[1] > step[0]
        # Not above: a step may hide its context behind the host.
        assert step[2] >= step[0] * (1 - 1e-12)
    assert found.memory.total_bytes[1] > found.memory.total_bytes[0]
    assert found.memory.total_bytes[2] >= found.memory.total_bytes[0]


def test_latency_grows_with_context_where_the_device_is_the_bound() -> None:
    one, other = (decode_time(bloomz(), 32, context) for context in (1000, 1001))
    assert one.bound == other.bound == "memory"
    assert other.total_s > one.total_s
    assert prefill_time(bloomz(), 8, 1001).total_s > prefill_time(bloomz(), 8, 1000).total_s


@given(st.lists(st.tuples(any_setups(), sizes, sizes, sizes), min_size=1, max_size=5))
@settings(deadline=None)
def test_every_figure_is_finite_and_above_zero(
    rows: list[tuple[Setup, int, int, int]],
) -> None:
    found = grid_estimate(grid_of([row[0] for row in rows], [row[1:] for row in rows]))
    figures = [
        found.prefill.total_s,
        found.decode.total_s,
        found.generate_s,
        found.prefill_tokens_per_s,
        found.decode_tokens_per_s,
        found.generate_tokens_per_s,
        found.energy_j_per_token,
        found.memory.total_bytes,
    ]
    for figure in figures:
        assert figure.shape == (len(rows),)
        assert np.isfinite(figure).all()
        assert (figure > 0).all()


def _by_hand() -> GridEstimate:
    return grid_estimate(grid_of([bloomz(8)], [(4, 1024, 8)]))


def test_throughput_and_energy_by_hand() -> None:
    found, setup = _by_hand(), bloomz(8)
    prefill = prefill_time(setup, 4, 1024).total_s
    whole = generate_time_s(setup, 4, 1024, 8)
    assert found.prefill_tokens_per_s[0] == pytest.approx(4 * 1024 / prefill)
    assert found.decode_tokens_per_s[0] == pytest.approx(4 * 7 / (whole - prefill))
    assert found.generate_tokens_per_s[0] == pytest.approx(4 * 8 / whole)
    # Eight A100 of 400 W, all of them.
    assert found.energy_j_per_token[0] == pytest.approx(8 * 400 * whole / 32)
    assert found.decode.total_s[0] == pytest.approx(decode_time(setup, 4, 1028).total_s)


def test_one_new_token_has_a_decode_step_of_its_own() -> None:
    found = grid_estimate(grid_of([llama()], [(2, 100, 1)]))
    assert found.generate_s[0] == found.prefill.total_s[0]
    assert found.decode_tokens_per_s[0] == pytest.approx(2 / decode_time(llama(), 2, 101).total_s)


def test_energy_counts_devices_that_take_turns() -> None:
    split = dataclasses.replace(bloomz(), split_devices=4)
    grid = grid_of([bloomz(), split], [(1, 10, 2), (1, 10, 2)])
    assert energy_j(grid, np.ones(2)).tolist() == [400.0, 1600.0]


def test_one_setup_is_held_once() -> None:
    grid = grid_of([bloomz(), llama(), bloomz()], [(1, 1, 1)] * 3)
    assert len(grid.setups) == 2
    assert grid.setup_index.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ((0, 8, 8), "batch_size must be from 1"),
        ((8, -1, 8), "prompt_tokens must be from 1"),
        ((8, 8, 10**8), "new_tokens must be from 1"),
    ],
)
def test_sizes_are_checked(size: tuple[int, int, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        grid_of([bloomz()], [size])


def test_shapes_are_checked() -> None:
    one, two, none = np.ones(1), np.ones(2), np.array([], dtype=np.int64)
    with pytest.raises(InputError, match="empty"):
        Grid((bloomz(),), none, one, one, one)
    with pytest.raises(InputError, match=r"batch_size has shape \(2,\)"):
        Grid((bloomz(),), np.array([0]), two, one, one)
    with pytest.raises(InputError, match="setup_index must be from 0 to 0"):
        Grid((bloomz(),), np.array([1]), one, one, one)
    with pytest.raises(InputError, match="prompt_tokens must be from 1"):
        Grid((bloomz(),), np.array([0]), one, one * np.nan, one)


def test_absent_constants_are_those_that_are_zero() -> None:
    assert {name for name, value in UNCALIBRATED.values().items() if value == 0} == set(ABSENT)

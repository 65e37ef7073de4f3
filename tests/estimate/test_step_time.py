"""Step times: by hand for one model, and what must hold for all."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.estimate.setups import bloomz, llama
from tgi_bench.errors import InputError
from tgi_bench.estimate import overheads
from tgi_bench.estimate.setup import UNCALIBRATED, WEIGHT_BYTES, Setup
from tgi_bench.estimate.step_time import (
    StepTime,
    decode_time,
    generate_s,
    prefill_time,
    touched_linear_parameters,
)
from tgi_bench.estimate.tables import (
    accelerator,
    accelerator_names,
    active_linear_parameters,
    model_names,
    model_shape,
)


@st.composite
def setups(draw: st.DrawFn) -> Setup:
    model = model_shape(draw(st.sampled_from(model_names())))
    device = accelerator(draw(st.sampled_from(accelerator_names())))
    degrees = [n for n in (1, 2, 4, 8) if model.heads % n == 0]
    degrees = [n for n in degrees if model.kv_heads % n == 0 or n % model.kv_heads == 0]
    quantize = draw(st.sampled_from([None, *WEIGHT_BYTES]))
    dtype = draw(st.sampled_from(["float16", "float32"]))
    return Setup(
        model, device, draw(st.sampled_from(degrees)), quantize, dtype, draw(st.booleans())
    )


sizes = st.integers(1, 4096)


def check(setup: Setup, time: StepTime[float], tokens: int) -> None:
    parts = (time.compute_s, time.memory_s, time.interconnect_s, time.host_s)
    assert all(math.isfinite(part) and part >= 0 for part in parts)
    assert time.total_s >= max(parts) > 0
    flop = 2 * active_linear_parameters(setup.model) * tokens / setup.num_shard
    peak = max(setup.accelerator.flop_per_s, setup.accelerator.int8_op_per_s or 0.0)
    assert time.total_s > flop / peak
    linear = touched_linear_parameters(setup, tokens) * setup.linear_weight_bytes
    assert time.total_s > linear / setup.num_shard / setup.accelerator.bytes_per_s
    assert (time.interconnect_s == 0) == (setup.num_shard == 1)


@given(setups(), sizes, sizes, sizes)
def test_nothing_below_the_roofline(setup: Setup, batch: int, tokens: int, more: int) -> None:
    prefill = prefill_time(setup, batch, tokens)
    decode = decode_time(setup, batch, tokens)
    check(setup, prefill, batch * tokens)
    check(setup, decode, batch)
    slack = 1 + 1e-12
    assert prefill.total_s <= prefill_time(setup, batch + more, tokens).total_s * slack
    assert prefill.total_s <= prefill_time(setup, batch, tokens + more).total_s * slack
    assert decode.total_s <= decode_time(setup, batch + more, tokens).total_s * slack
    assert decode.total_s <= decode_time(setup, batch, tokens + more).total_s * slack


def test_decode_by_hand() -> None:
    """Llama 3 8B, one H100, batch 2, 1000 tokens of context."""
    time = decode_time(llama(), 2, 1000)
    linear = 32 * (4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14336)
    head = 128256 * 4096
    attention = 4 * 2 * 1000 * 32 * 128 * 32
    flop = 2 * 2 * linear + 2 * 2 * head + attention
    assert time.compute_s == pytest.approx(flop / (989e12 * 0.63))
    values = linear + 2 * 32 * (8 * 4096 + 3 * 14336)  # weights, norms and activations
    values += 2 * 1000 * 2 * 32 * 8 * 128  # keys and values
    values += head + 2 * 128256 * (1 + 3)  # logits written, and their softmax
    assert time.memory_s == pytest.approx(2 * values / (3350e9 * 0.85))
    assert time.host_s == pytest.approx(1e-3 + 32 * 15 * 10e-6 + 2 * 2 * 10e-6)
    assert time.interconnect_s == 0
    # 16 GB of weights at 2.8 TB/s: 5.5 ms; launching 480 operations and a step: 5.8 ms.
    assert time.bound == "host"
    assert time.total_s == pytest.approx(time.host_s)


def test_bounds() -> None:
    assert prefill_time(bloomz(), 8, 1024).bound == "compute"
    assert decode_time(bloomz(), 32, 1024).bound == "memory"
    assert decode_time(bloomz(8), 1, 1024).bound == "host"
    opt = Setup(model_shape("facebook/opt-6.7b"), accelerator("L4"), 8)
    assert prefill_time(opt, 16, 1024).bound == "interconnect"


def test_collectives_by_hand() -> None:
    # 1 MB, 8 devices, NVLink at 300 GB/s a direction: launch, 14 hops, 7/4 of the message.
    expected = 10e-6 + 14 * 1.5e-6 + 1.75 * 1e6 / (300e9 * 0.75)
    assert overheads.all_reduce_s(bloomz(8), 1e6) == pytest.approx(expected)
    expected = 10e-6 + 7 * 1.5e-6 + 0.875 * 1e6 / (300e9 * 0.75)
    assert overheads.all_gather_s(bloomz(8), 1e6) == pytest.approx(expected)
    assert overheads.all_reduce_s(bloomz(), 1e6) == 0
    assert overheads.all_gather_s(bloomz(), 1e6) == 0


def test_a_bridge_joins_two_devices_only() -> None:
    model = model_shape("facebook/opt-6.7b")
    two, four = (Setup(model, accelerator("RTX-A6000"), n) for n in (2, 4))
    assert overheads.uses_nvlink(two)
    assert not overheads.uses_nvlink(four)


def test_parallel_residual_reduces_once() -> None:
    neox = Setup(model_shape("EleutherAI/gpt-neox-20b"), accelerator("H100-SXM"), 2)
    assert overheads.reduces_per_step(neox) == 44 + 1
    assert overheads.reduces_per_step(bloomz(2)) == 2 * 30 + 1


def test_experts_touched() -> None:
    mixtral = Setup(model_shape("mistralai/Mixtral-8x7B-v0.1"), accelerator("H100-SXM"))
    one = touched_linear_parameters(mixtral, 1)
    assert one == pytest.approx(active_linear_parameters(mixtral.model))
    everything = 32 * (4096 * (2 * 4096 + 2 * 1024) + 8 * 3 * 4096 * 14336)
    assert touched_linear_parameters(mixtral, 1000) == pytest.approx(everything)
    assert one < touched_linear_parameters(mixtral, 2) < everything


def test_int8_costs_the_host() -> None:
    plain, int8 = bloomz(8), bloomz(8, "bitsandbytes")
    added = overheads.launch_s(int8) - overheads.launch_s(plain)
    assert added == pytest.approx(30 * 4 * 55 * 10e-6)
    assert decode_time(int8, 1, 100).memory_s < decode_time(plain, 1, 100).memory_s


def test_transformers_generate() -> None:
    """What differs from TGI's padded class, by hand: a decode step of bloomz-7b1-mt."""
    tgi = bloomz()
    generate = dataclasses.replace(tgi, generator="transformers")
    cache = 4 * 1000 * tgi.kv_bytes_per_token
    one, other = decode_time(tgi, 4, 1000), decode_time(generate, 4, 1000)
    # Elements of 2 bytes are copied, read and written, at the price of 4.
    assert other.memory_s - one.memory_s == pytest.approx(2 * cache / (1555e9 * 0.85))
    # 25 operations a sequence one by one, 2 for the whole batch's.
    assert one.host_s - other.host_s == pytest.approx(4 * 23 * 10e-6)
    wide = dataclasses.replace(tgi, dtype="float32")
    same = dataclasses.replace(wide, generator="transformers")
    assert decode_time(wide, 4, 1000).memory_s == decode_time(same, 4, 1000).memory_s
    # Every model is padded, and a gated MLP has 7 linear layers.
    flash = dataclasses.replace(llama(quantize="bitsandbytes"), generator="transformers")
    assert flash.padded
    assert not llama().padded
    assert overheads.layer_operations(flash) == 40 + 7 * 55


def test_int8_of_transformers_waits_for_the_device() -> None:
    """Launching and the device's work overlap in TGI's count, and follow one another here."""
    model, device = model_shape("facebook/opt-6.7b"), accelerator("L4")
    overlaps = Setup(model, device, quantize="bitsandbytes")
    waits = dataclasses.replace(overlaps, generator="transformers")
    one, other = decode_time(overlaps, 1, 10), decode_time(waits, 1, 10)
    assert one.total_s == pytest.approx(one.host_s)
    # Memory bound in every group of kernels: the device's seconds are its memory's.
    assert other.total_s == pytest.approx(other.host_s + other.memory_s)
    assert other.bound == "host"
    assert other.bound_share == pytest.approx(other.host_s / other.total_s)


def test_kernels_and_devices_in_turn() -> None:
    setup = dataclasses.replace(bloomz(), split_devices=8)
    assert setup.devices == 8
    assert setup.weights_bytes == bloomz().weights_bytes / 8
    assert decode_time(setup, 4, 100) == decode_time(bloomz(), 4, 100)
    constants = dataclasses.replace(UNCALIBRATED, kernel_s=5e-6, split_operations=3.0)
    setup = dataclasses.replace(setup, constants=constants)
    assert overheads.layer_operations(setup) == 43
    assert overheads.kernels_s(setup) == pytest.approx(30 * 43 * 5e-6)
    assert prefill_time(setup, 8, 1024).total_s - prefill_time(
        bloomz(), 8, 1024
    ).total_s == pytest.approx(30 * 43 * 5e-6)


def test_prompt_logprobs_cost_prefill_only() -> None:
    with_texts = bloomz()
    without = dataclasses.replace(with_texts, prompt_logprobs=False)
    added = prefill_time(with_texts, 2, 500).total_s - prefill_time(without, 2, 500).total_s
    assert added > 2 * 500 * 10e-6
    assert decode_time(with_texts, 2, 500) == decode_time(without, 2, 500)


@pytest.mark.parametrize("size", [0, -5])
def test_sizes_are_checked(size: int) -> None:
    for call in (prefill_time, decode_time):
        with pytest.raises(InputError, match="batch_size"):
            call(bloomz(), size, 8)
        with pytest.raises(InputError, match="_tokens"):
            call(bloomz(), 8, size)
    with pytest.raises(InputError, match="new_tokens"):
        generate_s(bloomz(), 8, 8, size)

"""One forward pass with loss, by hand, and what must hold."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.estimate.setups import bloomz
from tgi_bench.errors import InputError
from tgi_bench.estimate.forward import WORKSPACE_BYTES, forward_memory, forward_time
from tgi_bench.estimate.setup import Setup
from tgi_bench.estimate.tables import accelerator, model_shape

MODELS = ("facebook/opt-1.3b", "facebook/opt-6.7b", "AICrossSim/clm-60m", "AICrossSim/clm-1.1b")


def setup(model: str) -> Setup:
    return Setup(model_shape(model), accelerator("RTX-A5000"), generator="transformers")


def test_opt_time_by_hand() -> None:
    time = forward_time(setup("facebook/opt-1.3b"), 2, 100)
    tokens, hidden, ffn, vocab = 200, 2048, 8192, 50272
    weights = 24 * (4 * hidden * hidden + 2 * hidden * ffn) + vocab * hidden
    assert time.matrix_s == pytest.approx(2 * tokens * weights / (111.1e12 * 0.63))
    # All pairs of query and key, two products of 2 flop.
    assert time.attention_s == pytest.approx(4 * 2 * 100**2 * hidden * 24 / (111.1e12 * 0.4))
    # Two norms of 2 passes, two sums of 3, the queries' scale 2, ReLU 2.
    passes = 2 * 2 * hidden + 6 * hidden + 2 * hidden + 2 * ffn
    assert time.elementwise_s == pytest.approx(tokens * 24 * passes * 2 / (768e9 * 0.85))
    assert time.loss_s == pytest.approx(tokens * vocab * 4 * 2 / (768e9 * 0.85))
    assert time.interconnect_s == 0
    parts = (time.matrix_s, time.attention_s, time.elementwise_s, time.loss_s)
    assert time.total_s == pytest.approx(sum(parts))


def test_llama_kind_takes_its_loss_in_32_bits_and_half_the_pairs() -> None:
    time = forward_time(setup("AICrossSim/clm-60m"), 2, 100)
    assert time.loss_s == pytest.approx(200 * 49152 * (4 * 4 + 6) / (768e9 * 0.85))
    assert time.attention_s == pytest.approx(4 * 100**2 * 384 * 22 / (111.1e12 * 0.4))


def test_a_shared_mlp_sums_over_pcie() -> None:
    alone = forward_time(setup("facebook/opt-1.3b"), 16, 1024)
    two = forward_time(setup("facebook/opt-1.3b"), 16, 1024, mlp_degree=2)
    mlp = 24 * 2 * 2048 * 8192
    saved = 2 * 16384 * mlp / 2 / (111.1e12 * 0.63)
    assert alone.matrix_s - two.matrix_s == pytest.approx(saved)
    assert two.interconnect_s == pytest.approx(24 * 16384 * 2048 * 2 / (32e9 * 0.75))


def test_memory_by_hand() -> None:
    """OPT-6.7b, 16 x 1024: every matrix is a multiple of 2 MiB; the logits are 1571 MiB."""
    need = forward_memory(setup("facebook/opt-6.7b"), 16, 1024)
    assert need.weights_bytes == pytest.approx(2 * 6658473984, rel=1e-4)
    # An odd number of MiB takes a segment of one more, too little to split off.
    assert need.logits_bytes == 2 * 1572 * 2**20
    assert need.workspace_bytes == WORKSPACE_BYTES == 2 * 4 * 2**20 + 8 * 16 * 2**10
    clm = forward_memory(setup("AICrossSim/clm-60m"), 16, 1024)
    assert clm.logits_bytes == 2 * 16384 * 49152 * 4
    assert clm.weights_bytes == pytest.approx(2 * 82101120, rel=1e-3)
    assert clm.total_bytes == clm.weights_bytes + clm.logits_bytes + WORKSPACE_BYTES


@given(st.sampled_from(MODELS), st.integers(1, 64), st.integers(1, 2048), st.integers(1, 512))
def test_time_and_memory_grow_and_stay_above_the_roofline(
    model: str, batch: int, sequence: int, more: int
) -> None:
    one = setup(model)
    small = forward_time(one, batch, sequence).total_s
    assert forward_time(one, batch + more, sequence).total_s > small
    assert forward_time(one, batch, sequence + more).total_s > small
    device = one.accelerator
    weights = forward_memory(one, batch, sequence).weights_bytes / 2
    input_embedding = 0 if one.model.tied else one.model.vocab * one.model.hidden
    flop = 2 * batch * sequence * (weights - input_embedding) * 0.99
    assert small > flop / device.flop_per_s
    need = forward_memory(one, batch, sequence).total_bytes
    # Not above: blocks of the allocator round up.
    assert forward_memory(one, batch + more, sequence).total_bytes >= need


def test_bad_input() -> None:
    with pytest.raises(InputError, match="mlp_degree 3 does not divide the 8192"):
        forward_time(setup("facebook/opt-1.3b"), 1, 1, mlp_degree=3)
    with pytest.raises(InputError, match="not by num_shard"):
        forward_time(bloomz(2), 1, 1)
    with pytest.raises(InputError, match="for one device"):
        forward_memory(dataclasses.replace(bloomz(), split_devices=2), 1, 1)
    with pytest.raises(InputError, match="sequence_tokens is 0"):
        forward_time(setup("facebook/opt-1.3b"), 1, 0)
    with pytest.raises(InputError, match="batch_size is -1"):
        forward_memory(setup("facebook/opt-1.3b"), -1, 1)

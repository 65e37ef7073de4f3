"""Memory: by hand, against two published tables, and what must hold for all."""

from __future__ import annotations

import math

import pytest
from hypothesis import given

from tests.estimate.setups import bloomz, llama
from tests.estimate.test_step_time import setups, sizes
from tgi_bench.errors import InputError
from tgi_bench.estimate.memory import (
    TRANSIENT_UTILISATION,
    MemoryNeed,
    decode_memory,
    fits,
    kv_capacity_tokens,
    prefill_memory,
    prefill_step_memory,
)
from tgi_bench.estimate.setup import Setup
from tgi_bench.estimate.tables import GIB, accelerator, model_shape


def test_prefill_by_hand() -> None:
    """bloomz-7b1-mt, num_shard 4, 16 prompts of 1024 tokens."""
    need = prefill_step_memory(bloomz(4), 16, 1024)
    logits = 16 * 1024 * 250880 * 2
    assert need.weights_bytes == 2 * 7069016064 / 4
    assert need.kv_cache_bytes == 16 * 1024 * 2 * 30 * 8 * 128 * 2
    assert need.activations_bytes == pytest.approx(3.25 * logits / TRANSIENT_UTILISATION)
    assert need.runtime_bytes == pytest.approx(1.1 * GIB)
    assert need.largest_block_bytes == logits
    assert f"{need.largest_block_bytes / GIB:.2f} GiB" == "7.66 GiB"


def test_attention_scores_outgrow_the_logits() -> None:
    opt = Setup(model_shape("facebook/opt-1.3b"), accelerator("A100-40GB-SXM"))
    need = prefill_step_memory(opt, 1, 2048)
    scores = 32 * 2048 * 2048
    expected = 4 * 2048 * 2048 * 2 + scores * (2 * 2 + 4)
    assert need.activations_bytes == pytest.approx(expected / TRANSIENT_UTILISATION)
    assert need.largest_block_bytes == scores * 4


def test_decode_holds_the_padded_cache_twice() -> None:
    cache = 8 * 100 * bloomz().kv_bytes_per_token
    assert decode_memory(bloomz(), 8, 100).kv_cache_bytes == 2 * cache
    assert decode_memory(llama(), 8, 100).kv_cache_bytes == 8 * 100 * llama().kv_bytes_per_token


def test_the_step_that_needs_most() -> None:
    setup = bloomz()
    assert prefill_memory(setup, 4, 1024, 1) == prefill_step_memory(setup, 4, 1024)
    assert prefill_memory(setup, 4, 1024, 8) == prefill_step_memory(setup, 4, 1024)
    assert prefill_memory(setup, 4, 8, 1000) == decode_memory(setup, 4, 1008)


TGI_FITS = [
    *((2, 1024, b, b <= 8) for b in (1, 2, 4, 8, 16, 32)),
    *((4, 1024, b, b <= 8) for b in (1, 2, 4, 8, 16, 32)),
    *((8, 1024, b, b <= 16) for b in (1, 2, 4, 8, 16, 32)),
    *((8, 100, b, True) for b in (1, 2, 4, 8, 16, 32)),
]


@pytest.mark.parametrize(("num_shard", "prompt", "batch", "fit"), TGI_FITS)
def test_published_tgi_table(num_shard: int, prompt: int, batch: int, fit: bool) -> None:
    setup = bloomz(num_shard)
    assert fits(setup, prefill_memory(setup, batch, prompt, 8)) is fit


BIGCODE_BATCHES = [1, 2, 4, 8, 16, 32, 64, *(128 * i for i in range(1, 16))]
BIGCODE_FITS = [
    *(("float32", b, b <= 896) for b in BIGCODE_BATCHES),
    *(("bfloat16", b, b <= 1792) for b in BIGCODE_BATCHES),
]


@pytest.mark.parametrize(("dtype", "batch", "fit"), BIGCODE_FITS)
def test_published_bigcode_table(dtype: str, batch: int, fit: bool) -> None:
    model = model_shape("bigcode-inference-benchmark BLOOM")
    setup = Setup(model, accelerator("A100-80GB-SXM"), dtype=dtype)
    assert fits(setup, prefill_memory(setup, batch, 9, 100)) is fit


def test_bigcode_table_has_44_cells() -> None:
    assert len(BIGCODE_FITS) == 44


def check(need: MemoryNeed[float]) -> None:
    parts = (
        need.weights_bytes,
        need.kv_cache_bytes,
        need.activations_bytes,
        need.runtime_bytes,
        need.largest_block_bytes,
    )
    assert all(math.isfinite(part) and part > 0 for part in parts)
    assert need.total_bytes == pytest.approx(sum(parts[:4]))
    assert need.largest_block_bytes <= need.activations_bytes


@given(setups(), sizes, sizes, sizes)
def test_memory_grows(setup: Setup, batch: int, prompt: int, more: int) -> None:
    need = prefill_memory(setup, batch, prompt, more)
    check(need)
    check(decode_memory(setup, batch, prompt))
    assert need.total_bytes < prefill_memory(setup, batch + 1, prompt, more).total_bytes
    assert need.total_bytes < prefill_memory(setup, batch, prompt + 1, more).total_bytes
    assert need.total_bytes <= prefill_memory(setup, batch, prompt, more + 1).total_bytes


def test_kv_capacity_by_hand() -> None:
    setup = llama()
    warmup = 4096 * (4 * 4096 + 2 * 14336) * 2 / TRANSIENT_UTILISATION
    left = 79.4 * GIB - 0.6 * GIB - 2 * 8030261248 - warmup
    capacity = kv_capacity_tokens(setup, 1.0, 4096)
    assert capacity == int(left / (2 * 32 * 8 * 128 * 2))


def test_kv_capacity_is_what_is_left() -> None:
    whole, half = kv_capacity_tokens(llama()), kv_capacity_tokens(llama(), 0.5)
    assert whole is not None
    assert half is not None
    assert 0 < half < whole
    assert kv_capacity_tokens(llama(), 0.1) == 0
    assert kv_capacity_tokens(bloomz()) is None


def test_bad_sizes() -> None:
    with pytest.raises(InputError, match="batch_size is 0"):
        prefill_memory(bloomz(), 0, 1, 1)
    with pytest.raises(InputError, match="prompt_tokens is -1"):
        prefill_memory(bloomz(), 1, -1, 1)
    with pytest.raises(InputError, match="new_tokens is 0"):
        prefill_memory(bloomz(), 1, 1, 0)
    with pytest.raises(InputError, match="context_tokens is 0"):
        decode_memory(bloomz(), 1, 0)
    with pytest.raises(InputError, match="memory_fraction is 2"):
        kv_capacity_tokens(llama(), 2)
    with pytest.raises(InputError, match="max_batch_prefill_tokens is 0"):
        kv_capacity_tokens(llama(), 1.0, 0)

"""What a Setup accepts, and its weights and KV bytes by hand."""

from __future__ import annotations

import pytest

from tests.estimate.setups import bloomz, llama
from tgi_bench.errors import InputError
from tgi_bench.estimate.setup import Setup, check_fraction, check_sizes
from tgi_bench.estimate.tables import accelerator, model_shape


def test_weights_by_hand() -> None:
    assert bloomz().weights_bytes == 2 * 7069016064
    assert bloomz(8).weights_bytes == 2 * 7069016064 / 8
    linear = 30 * 12 * 4096 * 4096
    assert bloomz(quantize="bitsandbytes").weights_bytes == linear + 2 * (7069016064 - linear)


def test_kv_bytes_by_hand() -> None:
    assert bloomz(2).kv_bytes_per_token == 2 * 30 * 16 * 128 * 2
    # 8 KV heads of 128 on 8 devices: one each.
    assert llama(8).kv_bytes_per_token == 2 * 32 * 1 * 128 * 2
    # One KV head is kept by every device.
    coder = Setup(model_shape("bigcode/starcoder"), accelerator("H100-SXM"), 4)
    assert coder.kv_bytes_per_token == 2 * 40 * 1 * 128 * 2


@pytest.mark.parametrize(
    ("model", "device", "num_shard", "quantize", "dtype", "message"),
    [
        ("bigscience/bloom", "T4", 3, None, "float16", "num_shard 3 does not divide the 112 heads"),
        ("tiiuae/falcon-7b", "T4", 2, None, "float16", "does not divide the 71 heads"),
        ("AICrossSim/clm-60m", "T4", 3, None, "float16", "does not divide the 2 KV heads"),
        ("bigscience/bloom", "T4", 0, None, "float16", "num_shard is 0"),
        ("bigscience/bloom", "T4", -1, None, "float16", "num_shard is -1"),
        ("bigscience/bloom", "T4", 1, "gtpq", "float16", "nearest: gptq"),
        ("bigscience/bloom", "T4", 1, "zzz", "float16", "no estimate for quantize 'zzz'; known"),
        ("bigscience/bloom", "T4", 1, None, "float8", "unknown dtype 'float8'"),
        ("bigscience/bloom", "T4", 1, None, "bfloat16", "T4 has no bfloat16"),
    ],
)
def test_refused(
    model: str, device: str, num_shard: int, quantize: str | None, dtype: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Setup(model_shape(model), accelerator(device), num_shard, quantize, dtype)


@pytest.mark.parametrize("size", [0, -1, 10**7 + 1])
def test_sizes_out_of_range(size: int) -> None:
    with pytest.raises(InputError, match=f"batch_size is {size};"):
        check_sizes(batch_size=size)


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.01, float("nan")])
def test_fractions_out_of_range(fraction: float) -> None:
    with pytest.raises(InputError, match="memory_fraction is"):
        check_fraction(fraction)


def test_generators_and_devices_in_turn_are_checked() -> None:
    model, device = model_shape("facebook/opt-1.3b"), accelerator("L4")
    with pytest.raises(InputError, match="unknown generator 'vllm'; known: tgi, transformers"):
        Setup(model, device, generator="vllm")
    with pytest.raises(InputError, match="num_shard 2 and 4 devices that hold the layers in turn"):
        Setup(model, device, 2, split_devices=4)
    with pytest.raises(InputError, match="split_devices is 0"):
        Setup(model, device, split_devices=0)

from __future__ import annotations

import pytest

from tgi_bench.errors import InputError
from tgi_bench.torch_engine.spec import ModelSpec, WeightType


@pytest.mark.parametrize(
    ("text", "kind", "bits"),
    [
        ("fp32", WeightType.FLOAT32, 32),
        ("bf16", WeightType.BFLOAT16, 16),
        ("float16", WeightType.FLOAT16, 16),
        ("8bit", WeightType.INT8, 8),
        ("4bit", WeightType.NF4, 4),
        ("fp4", WeightType.FP4, 4),
    ],
)
def test_types_of_weights(text: str, kind: WeightType, bits: int) -> None:
    assert WeightType.from_text(text) is kind
    assert (kind.bits, kind.quantized) == (bits, bits < 16)


def test_an_unknown_type() -> None:
    with pytest.raises(InputError, match="unknown type of weights 'fp8'; known: float32"):
        WeightType.from_text("fp8")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_shard": 0}, "num_shard is 0"),
        ({"num_shard": 2, "layer_split": True}, "exclude each other"),
        ({"memory_fraction": 0.0}, "memory_fraction is 0.0"),
        ({"memory_fraction": 1.5}, "memory_fraction is 1.5"),
    ],
)
def test_what_cannot_be_combined(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ModelSpec("m", **changes)  # type: ignore[arg-type]

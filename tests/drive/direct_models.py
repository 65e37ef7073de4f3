"""A tiny model with random weights for direct mode."""

from __future__ import annotations

from pathlib import Path

from tests.torch_engine.tiny import write_config
from tgi_bench.plan.task_trial import DirectModel, Dtype, TaskDevice


def tiny(folder: Path, family: str = "llama", **changes: object) -> Path:
    return write_config(folder / family, family, **changes)


def direct_model(model: Path | str, *, limit_bytes: int | None = None) -> DirectModel:
    return DirectModel(
        model_id="fp32",
        model=str(model),
        random_weights=True,
        weights_seed=0,
        dtype=Dtype.FP32,
        device=TaskDevice.CPU,
        num_shard=1,
        layer_split=1,
        memory_limit_bytes=limit_bytes,
        load_timeout_s=60.0,
    )

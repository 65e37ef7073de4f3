"""Which device a model goes to, and whether it is there."""

from __future__ import annotations

from importlib.util import find_spec

import torch

from tgi_bench.errors import InputError
from tgi_bench.torch_engine.process_memory import available_bytes, limit_data
from tgi_bench.torch_engine.spec import DeviceChoice, ModelSpec, Rank, WeightType

_DTYPES = {
    WeightType.FLOAT32: torch.float32,
    WeightType.BFLOAT16: torch.bfloat16,
    WeightType.FLOAT16: torch.float16,
}


def device_of(spec: ModelSpec, rank: Rank | None) -> torch.device:
    """The device of this process; raises InputError, in one sentence, where it is not there."""
    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    wanted = spec.device
    if wanted is DeviceChoice.AUTO:
        wanted = DeviceChoice.CUDA if devices or _splits(spec) else DeviceChoice.CPU
    if wanted is DeviceChoice.CUDA and not devices and not _splits(spec):
        raise InputError("device cuda: torch finds no CUDA device here; choose device cpu")
    if spec.layer_split and (devices < 2 or wanted is DeviceChoice.CPU):
        raise InputError(
            f"layer_split lays layers on at least 2 CUDA devices; this machine has {devices}"
        )
    if spec.num_shard > 1:
        _check_ranks(spec, rank, devices)
    if wanted is DeviceChoice.CPU:
        return torch.device("cpu")
    return torch.device("cuda", rank.shard_rank if rank is not None else 0)


def _splits(spec: ModelSpec) -> bool:
    return spec.num_shard > 1 or spec.layer_split


def _check_ranks(spec: ModelSpec, rank: Rank | None, devices: int) -> None:
    if spec.device is DeviceChoice.CPU:
        if devices:
            raise InputError(
                f"num_shard {spec.num_shard} with device cpu: transformers puts ranks on the CUDA "
                "devices of a machine that has some; hide them with CUDA_VISIBLE_DEVICES="
            )
    elif devices < spec.num_shard:
        raise InputError(
            f"num_shard {spec.num_shard} needs as many CUDA devices; this machine has {devices} "
            "(device cpu runs the ranks on the CPU)"
        )
    if rank is None or rank.num_shard != spec.num_shard:
        raise InputError(
            f"num_shard {spec.num_shard}: tensor parallelism needs a process for each rank"
        )


def weight_type_of(spec: ModelSpec, device: torch.device) -> WeightType:
    """The type in effect; raises InputError for bits that cannot be had here."""
    chosen = spec.weights.weight_type
    if chosen is None:
        return WeightType.FLOAT16 if device.type == "cuda" else WeightType.FLOAT32
    if chosen.quantized:
        if device.type != "cuda":
            raise InputError(f"{chosen.value} weights need a CUDA device; this model is on the CPU")
        if find_spec("bitsandbytes") is None:
            raise InputError(
                f"{chosen.value} weights need bitsandbytes, not installed here: "
                "pip install 'tgi-bench[quantized]'"
            )
        if spec.num_shard > 1:
            raise InputError(
                f"{chosen.value} weights cannot be divided over num_shard {spec.num_shard} ranks"
            )
    return chosen


def compute_dtype(weight_type: WeightType) -> torch.dtype:
    """Of activations and KV cache: the weights' own, float16 where they are quantized."""
    return _DTYPES.get(weight_type, torch.float16)


def limit_memory(spec: ModelSpec, device: torch.device) -> None:
    """Let this process take `memory_fraction` of the device's memory, of the CPU's what is
    available now: an allocation beyond it fails."""
    if device.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(spec.memory_fraction, device)
        return
    available = available_bytes()
    if available is not None:
        limit_data(int(available * spec.memory_fraction / spec.num_shard))

"""A model from its specification to a device: which one, the ranks that meet, the weights."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec

import torch
from torch import distributed
from transformers import (
    AutoModelForCausalLM,
    BitsAndBytesConfig,
    PretrainedConfig,
    PreTrainedModel,
)

from tgi_bench.errors import InputError
from tgi_bench.torch_engine.architecture import model_config
from tgi_bench.torch_engine.memory import available_bytes, limit_data
from tgi_bench.torch_engine.model import LoadedModel, Placed, guarded
from tgi_bench.torch_engine.spec import DeviceChoice, ModelSpec, Rank, WeightType, require_extra
from tgi_bench.torch_engine.tokenizers import tokenizer_of


@dataclass(frozen=True, slots=True)
class _Order:
    """What is to be made: a model's configuration, how its weights are kept, and where."""

    spec: ModelSpec
    rank: Rank | None
    config: PretrainedConfig
    device: torch.device
    weight_type: WeightType

    @property
    def dtype(self) -> torch.dtype:
        """Of weights that are not quantized."""
        return compute_dtype(self.weight_type)


def load(spec: ModelSpec, rank: Rank | None = None) -> LoadedModel:
    """The model with its weights on its device, ready to be run.

    rank: needed where spec.num_shard > 1; every rank's process calls this at once.
    Raises InputError for what cannot be run here, and OutOfMemory.
    """
    require_extra()
    device = device_of(spec, rank)
    weight_type = weight_type_of(spec, device)
    config = model_config(spec)
    order = _Order(spec, rank, config, device, weight_type)
    _check_ability(order)
    tokenizer = tokenizer_of(spec.model, config, spec.weights.random)
    limit_memory(spec, device)
    if device.type == "cpu":
        torch.set_num_threads(max(1, torch.get_num_threads() // spec.num_shard))
    if rank is not None and spec.num_shard > 1:
        meet(rank, device)
    network = guarded(lambda: _network(order))
    network.eval()
    return LoadedModel(spec, Placed(network, device, weight_type), tokenizer)


def _check_ability(order: _Order) -> None:
    """Raise InputError for a model that generates no text, or cannot be divided."""
    config, spec = order.config, order.spec
    if type(config) not in AutoModelForCausalLM._model_mapping or config.is_encoder_decoder:
        raise InputError(
            f"{spec.model} is a {config.model_type} model: the engine runs causal language models"
        )
    if spec.num_shard > 1 and not config.base_model_tp_plan:
        raise InputError(
            f"num_shard {spec.num_shard}: transformers has no tensor-parallel plan for "
            f"{config.model_type} models"
        )
    if spec.num_shard > 1 and config.num_attention_heads % spec.num_shard:
        raise InputError(
            f"num_shard {spec.num_shard} does not divide the {config.num_attention_heads} heads "
            f"of {spec.model}"
        )


def _network(order: _Order) -> PreTrainedModel:
    spec = order.spec
    if not spec.weights.random:
        return _read(spec.model, order)
    if not (order.weight_type.quantized or spec.layer_split or spec.num_shard > 1):
        return _drawn(order)
    # Only a checkpoint is quantized and divided on its way to the devices.
    with _checkpoint(order) as folder:
        return _read(folder, order)


def _drawn(order: _Order) -> PreTrainedModel:
    """Random weights on the device, a function of the seed and the device's kind."""
    torch.manual_seed(order.spec.weights.seed)
    with order.device:
        network = AutoModelForCausalLM.from_config(order.config, dtype=order.dtype)
    return network.to(order.device)


def _read(model: str, order: _Order) -> PreTrainedModel:
    spec = order.spec
    wanted: dict[str, object] = {"dtype": order.dtype}
    if spec.num_shard > 1:
        wanted["tp_plan"] = "auto"
    elif spec.layer_split:
        wanted["device_map"] = "balanced"
    elif order.device.type == "cuda":
        wanted["device_map"] = {"": order.device.index}
    if order.weight_type.quantized:
        wanted["quantization_config"] = _quantization(order)
    try:
        return AutoModelForCausalLM.from_pretrained(model, **wanted)
    except (OSError, ValueError, ImportError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise InputError(f"{spec.model} cannot be loaded: {reason}") from error


def _quantization(order: _Order) -> BitsAndBytesConfig:
    if order.weight_type is WeightType.INT8:
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type=order.weight_type.value,
        bnb_4bit_compute_dtype=order.dtype,
    )


@contextmanager
def _checkpoint(order: _Order) -> Iterator[str]:
    """A folder with random weights, written by rank 0 and removed when all have read it.

    It lies where temporary files do (TMPDIR) and takes as much room as 16-bit weights.
    """
    alone = order.spec.num_shard == 1
    first = alone or (order.rank is not None and order.rank.shard_rank == 0)
    with tempfile.TemporaryDirectory(prefix="tgi-bench-weights-") as own:
        if first:
            try:
                _drawn(order).save_pretrained(own)
            except OSError as error:
                raise InputError(
                    f"random weights cannot be written to {os.path.dirname(own)}: {error}"
                ) from error
            if order.device.type == "cuda":
                torch.cuda.empty_cache()
        folder = own if alone else from_first(own)
        yield folder
        if not alone:
            wait_for_all()


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


_MEETING = timedelta(minutes=10)
"""How long a rank waits for the others, at the start and in a step."""

_HOST = "127.0.0.1"


def meet(rank: Rank, device: torch.device) -> None:
    """Returns when every rank has called it; raises RuntimeError where one does not come."""
    # transformers reads these, as torchrun sets them.
    os.environ.update(
        RANK=str(rank.shard_rank),
        LOCAL_RANK=str(rank.shard_rank),
        WORLD_SIZE=str(rank.num_shard),
        MASTER_ADDR=_HOST,
        MASTER_PORT=str(rank.master_port),
    )
    if device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.init_process_group(
        backend="nccl" if device.type == "cuda" else "gloo",
        rank=rank.shard_rank,
        world_size=rank.num_shard,
        timeout=_MEETING,
    )


def from_first(text: str) -> str:
    """What rank 0 says, on every rank."""
    told = [text]
    distributed.broadcast_object_list(told, src=0)
    return told[0]


def wait_for_all() -> None:
    """Returns when every rank has called it."""
    distributed.barrier()

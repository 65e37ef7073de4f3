"""A model from its specification to a device."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from transformers import (
    AutoModelForCausalLM,
    BitsAndBytesConfig,
    PretrainedConfig,
    PreTrainedModel,
)

from tgi_bench.errors import InputError
from tgi_bench.torch_engine import ranks
from tgi_bench.torch_engine.allocation import guarded
from tgi_bench.torch_engine.extra import require_extra
from tgi_bench.torch_engine.file_tokenizer import tokenizer_of
from tgi_bench.torch_engine.loaded_model import LoadedModel, Placed
from tgi_bench.torch_engine.model_config import model_config
from tgi_bench.torch_engine.placement import (
    compute_dtype,
    device_of,
    limit_memory,
    weight_type_of,
)
from tgi_bench.torch_engine.spec import ModelSpec, Rank, WeightType


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
        ranks.meet(rank, device)
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
        folder = own if alone else ranks.from_first(own)
        yield folder
        if not alone:
            ranks.wait_for_all()

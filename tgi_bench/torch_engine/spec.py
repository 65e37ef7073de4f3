"""Which model is to be run, with what weights, on what device; and whether torch is installed.

Imports neither torch nor transformers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from tgi_bench.errors import InputError


class WeightType(StrEnum):
    """How a weight of a linear layer is kept; the rest of a quantized model is in 16 bits."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    INT8 = "int8"
    """LLM.int8() of bitsandbytes."""
    NF4 = "nf4"
    FP4 = "fp4"

    @property
    def bits(self) -> int:
        """Bits of one weight of a linear layer."""
        match self:
            case WeightType.FLOAT32:
                return 32
            case WeightType.BFLOAT16 | WeightType.FLOAT16:
                return 16
            case WeightType.INT8:
                return 8
            case WeightType.NF4 | WeightType.FP4:
                return 4

    @property
    def quantized(self) -> bool:
        """Whether bitsandbytes keeps the weights."""
        return self.bits < 16

    @classmethod
    def from_text(cls, text: str) -> WeightType:
        """By its name or a short one ("fp32", "bf16", "fp16", "8bit", "4bit").

        Raises InputError for any other.
        """
        name = _SHORT.get(text, text)
        if name not in {kind.value for kind in cls}:
            known = ", ".join([*(kind.value for kind in cls), *_SHORT])
            raise InputError(f"unknown type of weights {text!r}; known: {known}")
        return cls(name)


_SHORT = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "8bit": "int8", "4bit": "nf4"}


class DeviceChoice(StrEnum):
    """On what a model runs; `auto` is CUDA where there is such a device, else the CPU."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


@dataclass(frozen=True, slots=True)
class Weights:
    """Where weights come from and how they are kept.

    weight_type: None is float16 on CUDA and float32 on the CPU.
    random: drawn from `seed` instead of read; steps take as long as with the real ones.
    """

    weight_type: WeightType | None = None
    random: bool = False
    seed: int = 0


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model as it is to be run.

    model: an id of the Hugging Face hub, or a folder; with random weights also the path of a
        config.json, or a row of the estimate's table of models.
    layer_split: whole layers are laid on several CUDA devices (accelerate's device_map), which
        then work one after the other. It is not tensor parallelism.
    memory_fraction: share of the device's memory that may be taken; of the CPU's what is
        available when the model is loaded.
    num_shard: the tensor-parallel degree; above 1 every rank is a process of its own.
    """

    model: str
    weights: Weights = Weights()
    device: DeviceChoice = DeviceChoice.AUTO
    layer_split: bool = False
    memory_fraction: float = 1.0
    num_shard: int = 1

    def __post_init__(self) -> None:
        """InputError for what cannot be combined."""
        if self.num_shard < 1:
            raise InputError(f"num_shard is {self.num_shard}; it must be at least 1")
        if self.layer_split and self.num_shard > 1:
            raise InputError(
                f"layer_split and num_shard {self.num_shard} exclude each other: the one lays "
                "whole layers on devices, the other a part of every layer"
            )
        if not 0 < self.memory_fraction <= 1:
            raise InputError(
                f"memory_fraction is {self.memory_fraction}; it must be above 0 and at most 1"
            )


@dataclass(frozen=True, slots=True)
class Rank:
    """One process of a tensor-parallel model. master_port: of 127.0.0.1, where ranks meet."""

    shard_rank: int
    num_shard: int
    master_port: int


_NEEDED = ("torch", "transformers", "accelerate")
PIP_COMMAND = "pip install 'tgi-bench[transformers]'"


def require_extra() -> None:
    """Raise InputError, with the command that mends it, where a package is missing."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise InputError(
            f"the transformers engine needs {' and '.join(missing)}, not installed here: "
            f"{PIP_COMMAND}"
        )
    major = version_of("transformers").partition(".")[0]
    if major != "4":
        raise InputError(
            f"the transformers engine needs transformers 4, not {version_of('transformers')}: "
            f"{PIP_COMMAND}"
        )


def version_of(package: str) -> str:
    """The version of an installed package; "" where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""

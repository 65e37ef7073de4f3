"""What is estimated: a model on num_shard devices, and what its weights look like there."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from tgi_bench.errors import InputError
from tgi_bench.estimate.accelerator import Accelerator
from tgi_bench.estimate.constants import UNCALIBRATED, Constants
from tgi_bench.estimate.model import ModelShape, linear_parameters, parameters

DTYPE_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}

WEIGHT_BYTES = {
    "bitsandbytes": 1.0,
    "eetq": 1.0,
    "fp8": 1.0,
    # 4 bits; absmax of 64 weights in 8 bits, and of 256 of those in 32 bits.
    "bitsandbytes-nf4": 0.5 + 1 / 64 + 4 / (64 * 256),
    "bitsandbytes-fp4": 0.5 + 1 / 64 + 4 / (64 * 256),
    # 4 bits; a 16-bit scale and a 4-bit zero point for a group of 128 weights.
    "gptq": 0.5 + 2.5 / 128,
    "awq": 0.5 + 2.5 / 128,
    # 4 bits; a 16-bit scale for a group of 128 weights.
    "marlin": 0.5 + 2 / 128,
    # The checkpoint decides (2 to 8 bits); 4 bits are taken.
    "exl2": 0.5,
}
"""Bytes of one weight of a linear layer, by text-generation-launcher's `quantize`."""

GENERATORS = ("tgi", "transformers")
"""What generates: a shard of text-generation-inference, or transformers' generate()."""

LARGEST_SIZE = 10**7
"""Batch sizes and token counts above it are taken for a slip."""


@dataclass(frozen=True, slots=True)
class Setup:
    """A model on `num_shard` devices, tensor-parallel.

    quantize: a key of WEIGHT_BYTES; None where the weights keep their dtype.
    dtype: of weights, activations and KV cache; a key of DTYPE_BYTES.
    prompt_logprobs: prefill answers with the log-probability and text of every prompt token, as
        TGI did before 0.9.0 for every request, and does since where a request asks for it.
    constants: a calibration's, for the stack and accelerator that it was fitted on.
    generator: one of GENERATORS. transformers' generate() grows its KV cache by concatenation for
        every model, and chooses the next tokens of the whole batch at once.
    split_devices: devices that hold the layers in turn and work one after the other
        (transformers' device_map), each of them a rank of its own where num_shard is 1.
    InputError where the heads cannot be divided, or a name is unknown.
    """

    model: ModelShape
    accelerator: Accelerator
    num_shard: int = 1
    quantize: str | None = None
    dtype: str = "float16"
    prompt_logprobs: bool = False
    constants: Constants = UNCALIBRATED
    generator: str = "tgi"
    split_devices: int = 1

    def __post_init__(self) -> None:
        check_sizes(num_shard=self.num_shard, split_devices=self.split_devices)
        if self.generator not in GENERATORS:
            raise InputError(
                f"unknown generator {self.generator!r}; known: {', '.join(GENERATORS)}"
            )
        if self.split_devices > 1 and self.num_shard > 1:
            raise InputError(
                f"num_shard {self.num_shard} and {self.split_devices} devices that hold the layers "
                "in turn exclude each other"
            )
        _check_heads(self.model, self.num_shard)
        if self.dtype not in DTYPE_BYTES:
            raise InputError(f"unknown dtype {self.dtype!r}; known: {', '.join(DTYPE_BYTES)}")
        if self.dtype == "bfloat16" and not self.accelerator.bfloat16:
            raise InputError(f"{self.accelerator.name} has no bfloat16; use dtype float16")
        if self.quantize is not None and self.quantize not in WEIGHT_BYTES:
            raise InputError(_unknown_quantize(self.quantize))

    @property
    def devices(self) -> int:
        """Devices in all."""
        return self.num_shard * self.split_devices

    @property
    def padded(self) -> bool:
        """Whether sequences are padded to one length and the KV cache is concatenated."""
        return self.model.padded or self.generator == "transformers"

    @property
    def dtype_bytes(self) -> int:
        """Bytes of one activation, KV entry or unquantized weight."""
        return DTYPE_BYTES[self.dtype]

    @property
    def linear_weight_bytes(self) -> float:
        """Bytes of one weight of a linear layer."""
        return float(self.dtype_bytes if self.quantize is None else WEIGHT_BYTES[self.quantize])

    @property
    def weights_bytes(self) -> float:
        """Weights of one device: (linear * bytes each + the rest * dtype) / devices.

        Norms and learned positions are replicated in truth; they are below 0.1 % of the sum.
        """
        linear = linear_parameters(self.model)
        rest = parameters(self.model) - linear
        total = linear * self.linear_weight_bytes + rest * self.dtype_bytes
        return total / self.devices

    @property
    def kv_bytes_per_token(self) -> float:
        """KV cache of one token on one device: 2 * layers * kv heads there * head_dim * dtype.

        Fewer KV heads than devices: each device keeps a copy of one.
        """
        heads = max(1, self.model.kv_heads // self.num_shard)
        return float(2 * self.model.layers * heads * self.model.head_dim * self.dtype_bytes)


def _check_heads(model: ModelShape, num_shard: int) -> None:
    if model.heads % num_shard:
        raise InputError(
            f"num_shard {num_shard} does not divide the {model.heads} heads of {model.name}"
        )
    if model.kv_heads % num_shard and num_shard % model.kv_heads:
        raise InputError(
            f"num_shard {num_shard} does not divide the {model.kv_heads} KV heads of {model.name}"
        )


def _unknown_quantize(name: str) -> str:
    near = get_close_matches(name, WEIGHT_BYTES, n=1)
    hint = f"nearest: {near[0]}; " if near else ""
    return f"no estimate for quantize {name!r}; {hint}known: {', '.join(WEIGHT_BYTES)}"


def check_sizes(**sizes: int) -> None:
    """InputError in one sentence for the first size that is not in 1..LARGEST_SIZE."""
    for name, size in sizes.items():
        if not 1 <= size <= LARGEST_SIZE:
            raise InputError(f"{name} is {size}; it must be from 1 to {LARGEST_SIZE}")


def check_fraction(memory_fraction: float) -> None:
    """InputError in one sentence for a share of memory that is not in (0, 1]."""
    if not 0 < memory_fraction <= 1:
        raise InputError(f"memory_fraction is {memory_fraction}; it must be above 0 and at most 1")

"""What is estimated: a model on num_shard devices, with the constants that a calibration fits.

A constant belongs to one accelerator and one software stack (the server, its version, the class
that serves the model). UNCALIBRATED stands in for every stack that was not fitted.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from operator import attrgetter
from typing import TYPE_CHECKING

from tgi_bench.errors import InputError
from tgi_bench.estimate.arithmetic import extremes
from tgi_bench.estimate.tables import Accelerator, ModelShape, linear_parameters, parameters

MOST_FITTED = 5
"""Constants that one calibration may fit."""

_SHARE = (0.001, 1.0)
_SECONDS = (1e-8, 1.0)
_OPERATIONS = (0.1, 1000.0)


@dataclass(frozen=True, slots=True)
class Constants:
    """What is fitted, of which one calibration fits at most MOST_FITTED.

    compute_efficiency: share of the data sheet's matrix rate that large products reach.
        TorchCAP's microbenchmark: 70 of 111 TFLOP/s on an RTX A5000.
    bandwidth_efficiency: share of the data sheet's memory bandwidth that long reads reach.
    kv_bandwidth_efficiency: the same for the KV cache in decode, which the padded class
        concatenates in strided rows.
    vocabulary_bandwidth_efficiency: the same for a loss over logits, rows as long as the
        vocabulary that a softmax reads three times.
    dispatch_s: one operation from Python to the device's queue; eager PyTorch's order of magnitude.
    step_s: a step outside the model: RPC, batch bookkeeping, input tensors.
    choice_dispatch_s: one operation of choosing a sequence's next token.
    prompt_token_s: detokenising one prompt token; order of magnitude of a tokenizer's call.
    prompt_position_s: host time of one prefill for each position of its prompts, whatever the
        batch size. 0 (not modelled) unless calibrated. The term was added after seeing the errors
        of the published TGI table's prefill, where 25 to 40 us a position do not grow with the
        batch; what the server does in that time is not known.
    rank_skew_s: waiting in one step for the slowest rank, for each doubling of num_shard.
        0 (not modelled) unless calibrated. The term was added after seeing the decode column of
        that table rise from 17.6 to 19.6 ms at batch 1 from num_shard 2 to 8.
    kernel_s: ramp and gap of one operation on the device, however small. 0 (not modelled) unless
        calibrated. The term was added after seeing the bigcode table, whose device-bound steps
        keep 5 to 10 ms as the batch shrinks.
    collective_launch_s: from the launch of a collective's kernel to its first message.
    link_efficiency: share of a link's data sheet rate that a ring of large messages reaches.
    int8_operations: operations that LLM.int8 adds to one linear layer: row maxima, outlier search
        with a synchronisation, layout changes, int8 product, dequantization, outlier product.
        55 is set to the published TGI table of bloomz-7b1-mt (num_shard 8: 87 ms with
        bitsandbytes, 18 ms without, 30 layers of 4 linears: 0.57 ms each), not counted in code.
    four_bit_operations: the same of bitsandbytes' 4 bits. 0 (not modelled) unless calibrated.
    split_operations: operations that moving to the next of several devices which hold the layers
        in turn adds to one layer. 0 (not modelled) unless calibrated.
    InputError for a value outside RANGES.
    """

    compute_efficiency: float = 0.63
    bandwidth_efficiency: float = 0.85
    kv_bandwidth_efficiency: float = 0.85
    vocabulary_bandwidth_efficiency: float = 0.85
    dispatch_s: float = 10e-6
    step_s: float = 1e-3
    choice_dispatch_s: float = 10e-6
    prompt_token_s: float = 10e-6
    prompt_position_s: float = 0.0
    rank_skew_s: float = 0.0
    kernel_s: float = 0.0
    collective_launch_s: float = 10e-6
    link_efficiency: float = 0.75
    int8_operations: float = 55.0
    four_bit_operations: float = 0.0
    split_operations: float = 0.0

    def __post_init__(self) -> None:
        for name, value in self.values().items():
            lowest, highest = RANGES[name]
            modelled = value != 0 or name not in ABSENT
            if modelled and not lowest <= value <= highest:
                raise InputError(
                    f"the constant {name} is {value:g}; it must be from {lowest:g} to {highest:g}"
                )

    def values(self) -> dict[str, float]:
        """Every constant by its name."""
        return dict(zip(RANGES, _ALL(self), strict=True))


ABSENT = frozenset(
    {"prompt_position_s", "rank_skew_s", "kernel_s", "four_bit_operations", "split_operations"}
)
"""Constants that are 0 where they are not calibrated."""


def _range(name: str) -> tuple[float, float]:
    if name.endswith("_efficiency"):
        return _SHARE
    return _OPERATIONS if name.endswith("_operations") else _SECONDS


RANGES = {field.name: _range(field.name) for field in fields(Constants)}
"""What each constant may be: a share of a peak is never above it."""

_ALL = attrgetter(*RANGES)  # asdict takes five times as long, of which a fit makes thousands

UNCALIBRATED = Constants()
"""Orders of magnitude and code counts; none is fitted to a table of times."""

PRIOR = replace(
    UNCALIBRATED,
    prompt_position_s=10e-6,
    rank_skew_s=3e-4,
    kernel_s=3e-6,
    four_bit_operations=3.0,
    split_operations=2.0,
)
"""Where a fit starts, and what it stays at where the measurements say little.

A call a position; a few percent of a step of 10 ms; an empty kernel on an A100 with the gap to the
next; dequantization beside the product; a hidden state's copy and its bookkeeping. The last two
were chosen after a look at the h2oGPT table.
"""


def check_names(names: tuple[str, ...]) -> None:
    """InputError for an unknown constant, one named twice, none, or more than MOST_FITTED."""
    for name in names:
        if name not in RANGES:
            raise InputError(f"unknown constant {name!r}; known: {', '.join(RANGES)}")
    if not names or len(set(names)) != len(names) or len(names) > MOST_FITTED:
        raise InputError(
            f"a calibration fits from 1 to {MOST_FITTED} constants, each once; "
            f"{len(names)} are named: {', '.join(names)}"
        )


if TYPE_CHECKING:
    from tgi_bench.estimate.arithmetic import FloatArray

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


def check_sizes(**sizes: float | FloatArray) -> None:
    """InputError in one sentence for the first size that is not in 1..LARGEST_SIZE."""
    for name, size in sizes.items():
        for extreme in extremes(size):
            if not 1 <= extreme <= LARGEST_SIZE:
                raise InputError(f"{name} is {extreme}; it must be from 1 to {LARGEST_SIZE}")


def check_fraction(memory_fraction: float) -> None:
    """InputError in one sentence for a share of memory that is not in (0, 1]."""
    if not 0 < memory_fraction <= 1:
        raise InputError(f"memory_fraction is {memory_fraction}; it must be above 0 and at most 1")

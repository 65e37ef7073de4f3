"""The constants that a calibration fits, and what they are where nothing is calibrated.

A constant belongs to one accelerator and one software stack (the server, its version, the class
that serves the model). UNCALIBRATED stands in for every stack that was not fitted.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from tgi_bench.errors import InputError

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
        return {
            "compute_efficiency": self.compute_efficiency,
            "bandwidth_efficiency": self.bandwidth_efficiency,
            "kv_bandwidth_efficiency": self.kv_bandwidth_efficiency,
            "vocabulary_bandwidth_efficiency": self.vocabulary_bandwidth_efficiency,
            "dispatch_s": self.dispatch_s,
            "step_s": self.step_s,
            "choice_dispatch_s": self.choice_dispatch_s,
            "prompt_token_s": self.prompt_token_s,
            "prompt_position_s": self.prompt_position_s,
            "rank_skew_s": self.rank_skew_s,
            "kernel_s": self.kernel_s,
            "collective_launch_s": self.collective_launch_s,
            "link_efficiency": self.link_efficiency,
            "int8_operations": self.int8_operations,
            "four_bit_operations": self.four_bit_operations,
            "split_operations": self.split_operations,
        }


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

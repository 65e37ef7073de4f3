"""What the host does in one step: it launches kernels, then picks the next tokens.

The times of one operation are `setup.constants`'. The counts are of operations in the eager
PyTorch code of one transformer layer; CUDA graphs (TGI 1.4 and newer capture decode steps of
flash models) are not modelled, so that flash decode steps of those versions are faster than
estimated.
"""

from __future__ import annotations

from math import log2

from tgi_bench.estimate.setup import Setup

LAYER_OPERATIONS_PADDED = 40
"""One layer of the padded class: norms, linears, views, concatenations, masked softmax, GELU."""

LAYER_OPERATIONS_FLASH = 15
"""One layer of the flash class: fused norms, rotary embedding, paged attention, activation."""

COLLECTIVE_OPERATIONS = 5
"""One collective through torch.distributed."""

LINEARS_PER_LAYER = 4
"""Fused q/k/v, attention output, MLP in (gate and up fused), MLP out."""

LINEARS_PER_LAYER_APART = 7
"""transformers keeps q, k, v, gate and up apart where the MLP is gated."""

SEQUENCE_OPERATIONS_PADDED = 25
"""Next token of one sequence in the padded class, which loops over requests: log-softmax,
choice, a copy to the host, detokenising."""

SEQUENCE_OPERATIONS_BATCH = 2
"""Next token of one sequence where they are chosen for the whole batch at once: in the flash
class, and in transformers' generate()."""


def _quantized_operations(setup: Setup) -> float:
    """Operations that quantization adds to one layer."""
    apart = setup.generator == "transformers" and setup.model.gated_mlp
    linears = LINEARS_PER_LAYER_APART if apart else LINEARS_PER_LAYER
    if setup.quantize == "bitsandbytes":
        return setup.constants.int8_operations * linears
    if setup.quantize in ("bitsandbytes-nf4", "bitsandbytes-fp4"):
        return setup.constants.four_bit_operations * linears
    return 0.0


def layer_operations(setup: Setup) -> float:
    """Operations launched for one layer on one device; experts launch their own."""
    count = float(LAYER_OPERATIONS_PADDED if setup.padded else LAYER_OPERATIONS_FLASH)
    if setup.num_shard > 1:
        count += COLLECTIVE_OPERATIONS * (1 if setup.model.parallel_residual else 2)
    if setup.split_devices > 1:
        count += setup.constants.split_operations
    return count + _quantized_operations(setup)


def launch_s(setup: Setup) -> float:
    """Launching one step's kernels: step_s + layers * operations * dispatch_s.

    The device works meanwhile, so that it overlaps with the device's time.
    """
    constants = setup.constants
    operations = setup.model.layers * layer_operations(setup)
    return constants.step_s + operations * constants.dispatch_s


def waits_for_device(setup: Setup) -> bool:
    """Whether launching stops in every linear layer until the device is done.

    LLM.int8 does: it asks the device where the outliers are. Launching and the device's work then
    follow one another. Chosen after seeing the h2oGPT table, where 8 bits cost slower hosts less
    in proportion than faster ones. In TGI int8_operations holds the wait: it is set to its table.
    """
    return setup.quantize == "bitsandbytes" and setup.generator == "transformers"


def kernels_s(setup: Setup) -> float:
    """The device's ramps and gaps between one step's operations: operations * kernel_s."""
    return setup.model.layers * layer_operations(setup) * setup.constants.kernel_s


def token_choice_s(setup: Setup, batch_size: int) -> float:
    """Choosing and detokenising the next tokens, after the device is done: it does not overlap."""
    each = setup.padded and setup.generator == "tgi"
    per_sequence = SEQUENCE_OPERATIONS_PADDED if each else SEQUENCE_OPERATIONS_BATCH
    return batch_size * per_sequence * setup.constants.choice_dispatch_s


def prompt_text_s(setup: Setup, tokens: int) -> float:
    """Detokenising `tokens` prompt tokens one by one, where prefill answers with their texts."""
    return tokens * setup.constants.prompt_token_s if setup.prompt_logprobs else 0.0


def prompt_positions_s(setup: Setup, prompt_tokens: int) -> float:
    """Host time of one prefill that does not grow with the batch: positions * constant."""
    return prompt_tokens * setup.constants.prompt_position_s


def rank_skew_s(setup: Setup) -> float:
    """Waiting for the slowest of num_shard ranks in one step: log2(num_shard) * constant."""
    return log2(setup.num_shard) * setup.constants.rank_skew_s

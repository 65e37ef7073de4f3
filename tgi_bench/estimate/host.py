"""What the host does in one step: it launches kernels, then picks the next tokens.

Nothing here is calibrated. The counts are of operations in the eager PyTorch code of one
transformer layer; CUDA graphs (TGI 1.4 and newer capture decode steps of flash models)
are not modelled, so that flash decode steps of those versions are faster than estimated.
"""

from __future__ import annotations

from tgi_bench.estimate.setup import Setup

DISPATCH_S = 10e-6
"""One operation from Python to the device's queue, seconds: eager PyTorch's order of magnitude."""

LAYER_OPERATIONS_PADDED = 40
"""One layer of the padded class: norms, linears, views, concatenations, masked softmax, GELU."""

LAYER_OPERATIONS_FLASH = 15
"""One layer of the flash class: fused norms, rotary embedding, paged attention, activation."""

COLLECTIVE_OPERATIONS = 5
"""One collective through torch.distributed."""

INT8_LINEAR_OPERATIONS = 55
"""Added to one linear layer by LLM.int8: row maxima, outlier search with a synchronisation,
layout changes, int8 product, dequantization, outlier product.

The count is set to the published TGI table of bloomz-7b1-mt (num_shard 8: 87 ms with
bitsandbytes, 18 ms without, 30 layers of 4 linears: 0.57 ms each), not counted in code.
"""

LINEARS_PER_LAYER = 4
"""Fused q/k/v, attention output, MLP in (gate and up fused), MLP out."""

STEP_S = 1e-3
"""A step outside the model: RPC, batch bookkeeping, input tensors, seconds."""

SEQUENCE_OPERATIONS_PADDED = 25
"""Next token of one sequence in the padded class, which loops over requests: log-softmax,
choice, a copy to the host, detokenising."""

SEQUENCE_OPERATIONS_FLASH = 2
"""Next token of one sequence in the flash class, which chooses for the whole batch at once."""

PROMPT_TOKEN_S = 10e-6
"""Detokenising one prompt token by itself, seconds; order of magnitude of a tokenizer's call."""


def layer_operations(setup: Setup) -> int:
    """Operations launched for one layer on one device; experts launch their own."""
    count = LAYER_OPERATIONS_PADDED if setup.model.padded else LAYER_OPERATIONS_FLASH
    if setup.num_shard > 1:
        count += COLLECTIVE_OPERATIONS * (1 if setup.model.parallel_residual else 2)
    if setup.quantize == "bitsandbytes":
        count += INT8_LINEAR_OPERATIONS * LINEARS_PER_LAYER
    return count


def launch_s(setup: Setup) -> float:
    """Launching one step's kernels: STEP_S + layers * operations * DISPATCH_S.

    The device works meanwhile, so that it overlaps with the device's time.
    """
    return STEP_S + setup.model.layers * layer_operations(setup) * DISPATCH_S


def token_choice_s(setup: Setup, batch_size: int) -> float:
    """Choosing and detokenising the next tokens, after the device is done: it does not overlap."""
    per_sequence = SEQUENCE_OPERATIONS_PADDED if setup.model.padded else SEQUENCE_OPERATIONS_FLASH
    return batch_size * per_sequence * DISPATCH_S


def prompt_text_s(setup: Setup, tokens: int) -> float:
    """Detokenising `tokens` prompt tokens one by one, where prefill answers with their texts."""
    return tokens * PROMPT_TOKEN_S if setup.prompt_logprobs else 0.0

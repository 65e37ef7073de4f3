"""What a step waits for beside its kernels: links between devices, and the host.

Times and shares are `setup.constants`'; a hop is an order of magnitude. The host launches kernels,
then picks the next tokens. The counts are of operations in the eager PyTorch code of one
transformer layer; CUDA graphs (TGI 1.4 and newer capture decode steps of flash models) are not
modelled, so that flash decode steps of those versions are faster than estimated.
"""

from __future__ import annotations

from math import log2

from tgi_bench.estimate.arithmetic import N
from tgi_bench.estimate.setup import Setup

NVLINK_HOP_S = 1.5e-6
PCIE_HOP_S = 5e-6
"""One message from a device to its neighbour in the ring, seconds."""


def uses_nvlink(setup: Setup) -> bool:
    """Whether all devices lie in one NVLink domain; else the ring crosses PCIe."""
    return 1 < setup.num_shard <= setup.accelerator.nvlink_devices


def link_bytes_per_s(setup: Setup) -> float:
    """The data sheet's rate of the link that the ring crosses."""
    device = setup.accelerator
    return device.nvlink_bytes_per_s if uses_nvlink(setup) else device.pcie_bytes_per_s


def _link_bytes_per_s(setup: Setup) -> float:
    return link_bytes_per_s(setup) * setup.constants.link_efficiency


def _hop_s(setup: Setup) -> float:
    return NVLINK_HOP_S if uses_nvlink(setup) else PCIE_HOP_S


def all_reduce_s(setup: Setup, message_bytes: N) -> N:
    """Ring all-reduce: launch + 2(N-1) hops + 2(N-1)/N * bytes / link rate; 0 for N = 1."""
    n = setup.num_shard
    if n == 1:
        return 0.0 * message_bytes
    transfer = 2 * (n - 1) / n * message_bytes / _link_bytes_per_s(setup)
    return setup.constants.collective_launch_s + 2 * (n - 1) * _hop_s(setup) + transfer


def all_gather_s(setup: Setup, gathered_bytes: N) -> N:
    """Ring all-gather: launch + (N-1) hops + (N-1)/N * gathered bytes / link rate; 0 for N = 1."""
    n = setup.num_shard
    if n == 1:
        return 0.0 * gathered_bytes
    transfer = (n - 1) / n * gathered_bytes / _link_bytes_per_s(setup)
    return setup.constants.collective_launch_s + (n - 1) * _hop_s(setup) + transfer


def reduces_per_step(setup: Setup) -> int:
    """All-reduces of one step: 2 a layer (1 with a parallel residual) and 1 of the embedding."""
    per_layer = 1 if setup.model.parallel_residual else 2
    return setup.model.layers * per_layer + 1


def collectives_s(setup: Setup, tokens: N, logits_tokens: N) -> N:
    """Collectives of one step: hidden states of `tokens`, then logits of `logits_tokens`."""
    hidden_bytes = tokens * setup.model.hidden * setup.dtype_bytes
    logits_bytes = logits_tokens * setup.model.vocab * setup.dtype_bytes
    reduces = reduces_per_step(setup) * all_reduce_s(setup, hidden_bytes)
    return reduces + all_gather_s(setup, logits_bytes)


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


def token_choice_s(setup: Setup, batch_size: N) -> N:
    """Choosing and detokenising the next tokens, after the device is done: it does not overlap."""
    each = setup.padded and setup.generator == "tgi"
    per_sequence = SEQUENCE_OPERATIONS_PADDED if each else SEQUENCE_OPERATIONS_BATCH
    return batch_size * per_sequence * setup.constants.choice_dispatch_s


def prompt_text_s(setup: Setup, tokens: N) -> N:
    """Detokenising `tokens` prompt tokens one by one, where prefill answers with their texts."""
    return tokens * (setup.constants.prompt_token_s if setup.prompt_logprobs else 0.0)


def prompt_positions_s(setup: Setup, prompt_tokens: N) -> N:
    """Host time of one prefill that does not grow with the batch: positions * constant."""
    return prompt_tokens * setup.constants.prompt_position_s


def rank_skew_s(setup: Setup) -> float:
    """Waiting for the slowest of num_shard ranks in one step: log2(num_shard) * constant."""
    return log2(setup.num_shard) * setup.constants.rank_skew_s

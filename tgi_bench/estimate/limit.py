"""What the hardware allows one step at best: data sheet rates, no host, nothing twice.

"Percent of the roofline" of a measured step is this / measured. No estimate is below it.
"""

from __future__ import annotations

from tgi_bench.estimate import interconnect
from tgi_bench.estimate.model import (
    active_linear_parameters,
    linear_parameters,
    vocabulary_parameters,
)
from tgi_bench.estimate.roofline import touched_linear_parameters
from tgi_bench.estimate.setup import LARGEST_SIZE, Setup, check_sizes


def _seconds(setup: Setup, flop: tuple[float, float], moved_bytes: float, tokens: int) -> float:
    """max(compute, memory, interconnect), seconds. flop: of linear layers, of everything else."""
    device = setup.accelerator
    peak = device.fp32_flop_per_s if setup.dtype == "float32" else device.flop_per_s
    int8 = device.int8_op_per_s if setup.quantize == "bitsandbytes" else None
    compute_s = flop[0] / (int8 or peak) + flop[1] / peak
    n = setup.num_shard
    ring_bytes = 2 * (n - 1) / n * tokens * setup.model.hidden * setup.dtype_bytes
    nvlink = interconnect.uses_nvlink(setup)
    link = device.nvlink_bytes_per_s if nvlink else device.pcie_bytes_per_s
    link_s = interconnect.reduces_per_step(setup) * ring_bytes / link
    return max(compute_s, moved_bytes / device.bytes_per_s, link_s)


def _weights_bytes(setup: Setup, tokens: int) -> float:
    """Touched weights of the linear layers and of the logits, read once."""
    linear = min(touched_linear_parameters(setup, tokens), linear_parameters(setup.model))
    head = vocabulary_parameters(setup.model) * setup.dtype_bytes
    return (linear * setup.linear_weight_bytes + head) / setup.num_shard


def _flop(setup: Setup, tokens: int, rows: int, pairs: float) -> tuple[float, float]:
    """Of linear layers; of logits and attention. All of one device."""
    model = setup.model
    linear = 2.0 * active_linear_parameters(model) * tokens
    head = 2.0 * vocabulary_parameters(model) * rows
    attention = 4.0 * pairs * model.heads * model.head_dim * model.layers
    return linear / setup.num_shard, (head + attention) / setup.num_shard


def prefill_limit_s(setup: Setup, batch_size: int, prompt_tokens: int) -> float:
    """One prefill step: the causal half of attention, logits of each prompt's last token."""
    check_sizes(batch_size=batch_size, prompt_tokens=prompt_tokens)
    tokens = batch_size * prompt_tokens
    pairs = batch_size * prompt_tokens * (prompt_tokens + 1) / 2
    moved = _weights_bytes(setup, tokens) + tokens * setup.kv_bytes_per_token
    return _seconds(setup, _flop(setup, tokens, batch_size, pairs), moved, tokens)


def decode_limit_s(setup: Setup, batch_size: int, context_tokens: int) -> float:
    """One decode step: weights and KV cache read once."""
    check_sizes(batch_size=batch_size, context_tokens=context_tokens)
    context = batch_size * context_tokens
    moved = _weights_bytes(setup, batch_size) + context * setup.kv_bytes_per_token
    return _seconds(setup, _flop(setup, batch_size, batch_size, float(context)), moved, batch_size)


def middle_context(prompt_tokens: int, new_tokens: int) -> int:
    """Tokens that a decode step in the middle of a generate attends to."""
    return min(prompt_tokens + -(-new_tokens // 2), LARGEST_SIZE)


def mean_decode_limit_s(
    setup: Setup, batch_size: int, prompt_tokens: int, new_tokens: int
) -> float:
    """The mean of a generate's decode steps: that of the one in the middle."""
    context = prompt_tokens if new_tokens == 1 else middle_context(prompt_tokens, new_tokens)
    return decode_limit_s(setup, batch_size, context)


def generate_limit_s(setup: Setup, batch_size: int, prompt_tokens: int, new_tokens: int) -> float:
    """One prefill step and new_tokens - 1 decode steps."""
    check_sizes(new_tokens=new_tokens)
    decode = sum(
        decode_limit_s(setup, batch_size, prompt_tokens + step) for step in range(1, new_tokens)
    )
    return prefill_limit_s(setup, batch_size, prompt_tokens) + decode

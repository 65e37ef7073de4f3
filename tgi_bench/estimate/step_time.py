"""How long one step takes: the hardware's rates times the efficiencies of `setup.constants`.

A step is a few groups of kernels that run one after the other. Within a group computing and
reading memory overlap, so that it takes the longer of the two; groups do not overlap.
A limit is what the hardware allows at best: data sheet rates, no host, nothing twice. "Percent of
the roofline" of a measured step is its limit / measured. No estimate is below it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tgi_bench.estimate import overheads
from tgi_bench.estimate.setup import LARGEST_SIZE, Setup, check_sizes
from tgi_bench.estimate.tables import (
    active_linear_parameters,
    attention_matrix_parameters,
    linear_parameters,
    mlp_matrix_parameters,
    vocabulary_parameters,
)

HIDDEN_PASSES_PADDED = 16
"""Reads and writes of a hidden-sized tensor in one eager layer: 2 norms (4), 2 residual
sums (6), splitting and reordering q, k and v (6)."""

HIDDEN_PASSES_FLASH = 8
"""The same with fused norm and residual (2 x 3) and in-place rotary embedding (2)."""

FFN_PASSES_PADDED = 16
"""Reads and writes of an ffn-sized tensor in one eager layer: GELU as 8 operations."""

FFN_PASSES_FLASH = 3
"""The same with a fused activation: gate and up read, product written."""

SCORE_PASSES = 6
"""Reads and writes of the attention scores in one eager layer: product, mask, softmax, product."""

CONCAT_PASSES = 2
"""The padded class copies the KV cache to grow it: read, write. Attention reads it once more."""

CONCAT_ELEMENT_BYTES = 4
"""The least that an element of that copy costs in transformers' generate(): rows of odd length are
copied element by element.

Chosen after seeing the bigcode table, where steps of 2-byte elements take nearly as long as those
of 4-byte ones. TGI's padded class is counted in bytes: of one dtype, its table cannot tell.
"""

LOGITS_PASSES_GATHERED = 5
"""Passes over gathered logits: written, copied to a list (2), concatenated (2)."""

SOFTMAX_PASSES = 3
"""Passes of a log-softmax over the logits."""

Bound = Literal["compute", "memory", "interconnect", "host"]


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step, seconds.

    compute_s, memory_s: of the device at its achievable rates, if only they counted.
    interconnect_s: collectives. host_s: launching kernels and choosing tokens.
    total_s: max(sum over groups of max(compute, memory) + interconnect + the operations' ramps and
        gaps, launching), or the sum of both where launching waits, + choosing + prompt texts
        + waiting for the slowest rank; at least each of the others.
    bound: "host" where launching outlasts the device, else the largest of the three.
    bound_share: the bound's own seconds / total_s, in (0, 1].
    """

    compute_s: float
    memory_s: float
    interconnect_s: float
    host_s: float
    total_s: float
    bound: Bound

    @property
    def bound_share(self) -> float:
        match self.bound:
            case "compute":
                own_s = self.compute_s
            case "memory":
                own_s = self.memory_s
            case "interconnect":
                own_s = self.interconnect_s
            case "host":
                own_s = self.host_s
        return own_s / self.total_s


@dataclass(frozen=True, slots=True)
class Kernels:
    """A group of kernels on one device: seconds of computing, seconds of memory traffic."""

    compute_s: float
    memory_s: float

    @property
    def total_s(self) -> float:
        return max(self.compute_s, self.memory_s)


def matrix_flop_per_s(setup: Setup) -> float:
    """Achievable rate of activations' products (attention, logits): dtype's peak * efficiency."""
    device = setup.accelerator
    peak = device.fp32_flop_per_s if setup.dtype == "float32" else device.flop_per_s
    return peak * setup.constants.compute_efficiency


def linear_flop_per_s(setup: Setup) -> float:
    """Achievable rate of the linear layers.

    Only LLM.int8 multiplies in int8; all others dequantize and multiply in dtype. (fp8 doubles
    the rate on Hopper and Ada; the table of accelerators has no figure for it.)
    """
    int8 = setup.accelerator.int8_op_per_s
    if setup.quantize == "bitsandbytes" and int8 is not None:
        return int8 * setup.constants.compute_efficiency
    return matrix_flop_per_s(setup)


def _kernels(setup: Setup, flop: float, flop_per_s: float, bytes_moved: float) -> Kernels:
    bytes_per_s = setup.accelerator.bytes_per_s * setup.constants.bandwidth_efficiency
    return Kernels(compute_s=flop / flop_per_s, memory_s=bytes_moved / bytes_per_s)


def touched_linear_parameters(setup: Setup, tokens: int) -> float:
    """Linear weights that one step reads, all devices together.

    With E experts, k a token, chosen evenly: E * (1 - (1 - k/E)^tokens) experts are touched.
    """
    model = setup.model
    missed = (1 - model.experts_per_token / model.experts) ** tokens
    experts = model.experts * (1 - missed)
    per_layer = attention_matrix_parameters(model) + experts * mlp_matrix_parameters(model)
    return model.layers * per_layer


def linears(setup: Setup, tokens: int) -> Kernels:
    """2 flop a weight and token; every touched weight read once."""
    flop = 2.0 * active_linear_parameters(setup.model) * tokens / setup.num_shard
    weights = touched_linear_parameters(setup, tokens) * setup.linear_weight_bytes
    return _kernels(setup, flop, linear_flop_per_s(setup), weights / setup.num_shard)


def elementwise(setup: Setup, tokens: int) -> Kernels:
    """Norms, residuals and activations: memory traffic only. ffn tensors are sharded."""
    model = setup.model
    hidden_passes = HIDDEN_PASSES_PADDED if setup.padded else HIDDEN_PASSES_FLASH
    ffn_passes = FFN_PASSES_PADDED if setup.padded else FFN_PASSES_FLASH
    ffn = model.ffn * model.experts_per_token / setup.num_shard
    per_token = model.layers * (hidden_passes * model.hidden + ffn_passes * ffn)
    return _kernels(setup, 0.0, matrix_flop_per_s(setup), tokens * per_token * setup.dtype_bytes)


def _attention_flop(setup: Setup, query_key_pairs: float) -> float:
    """2 products of 2 flop for each pair, head dimension and layer, on one device."""
    model = setup.model
    width = model.heads * model.head_dim / setup.num_shard
    return 4.0 * query_key_pairs * width * model.layers


def prefill_attention(setup: Setup, batch_size: int, prompt_tokens: int) -> Kernels:
    """Padded: all S*S pairs, scores written to memory. Flash: the causal half, scores are not."""
    model = setup.model
    pairs = float(batch_size * prompt_tokens * prompt_tokens)
    kv = batch_size * prompt_tokens * setup.kv_bytes_per_token
    if not setup.padded:
        queries_and_outputs = 2 * batch_size * prompt_tokens * model.layers * setup.dtype_bytes
        width = model.heads * model.head_dim / setup.num_shard
        moved = 2 * kv + queries_and_outputs * width
        causal_pairs = (pairs + batch_size * prompt_tokens) / 2
        return _kernels(
            setup, _attention_flop(setup, causal_pairs), matrix_flop_per_s(setup), moved
        )
    heads = model.heads / setup.num_shard
    scores = pairs * heads * model.layers * setup.dtype_bytes
    moved = 2 * kv + SCORE_PASSES * scores
    return _kernels(setup, _attention_flop(setup, pairs), matrix_flop_per_s(setup), moved)


def decode_attention(setup: Setup, batch_size: int, context_tokens: int) -> Kernels:
    """One query a sequence; the KV cache read once, and copied first by the padded class."""
    kv = batch_size * context_tokens * setup.kv_bytes_per_token
    passes = 1.0
    if setup.padded:
        by_element = setup.generator == "transformers"
        widened = max(1.0, CONCAT_ELEMENT_BYTES / setup.dtype_bytes) if by_element else 1.0
        passes += CONCAT_PASSES * widened
    flop = _attention_flop(setup, float(batch_size * context_tokens))
    bytes_per_s = setup.accelerator.bytes_per_s * setup.constants.kv_bandwidth_efficiency
    return Kernels(flop / matrix_flop_per_s(setup), passes * kv / bytes_per_s)


@dataclass(frozen=True, slots=True)
class Step:
    """Sizes of one step: tokens go through the layers, prompt_tokens of them are prompts'."""

    batch_size: int
    tokens: int
    logits_tokens: int
    prompt_tokens: int


def head(setup: Setup, step: Step) -> Kernels:
    """The product that gives the rank's part of the logits; the matrix read once."""
    weights = vocabulary_parameters(setup.model) / setup.num_shard
    logits = step.logits_tokens * setup.model.vocab / setup.num_shard
    flop = 2.0 * weights * step.logits_tokens
    moved = (weights + logits) * setup.dtype_bytes
    return _kernels(setup, flop, matrix_flop_per_s(setup), moved)


def after_head(setup: Setup, step: Step) -> Kernels:
    """Copies of the gathered logits and the log-softmax: memory traffic only.

    The softmax is of each sequence's last logits, or of all where prompt_logprobs asks for them.
    """
    softmax_tokens = step.logits_tokens if setup.prompt_logprobs else step.batch_size
    gathered = LOGITS_PASSES_GATHERED if setup.num_shard > 1 else 0
    rows = gathered * step.logits_tokens + SOFTMAX_PASSES * softmax_tokens
    moved = float(rows * setup.model.vocab * setup.dtype_bytes)
    return _kernels(setup, 0.0, matrix_flop_per_s(setup), moved)


def _step_time(setup: Setup, step: Step, attention: Kernels) -> StepTime:
    groups = (
        linears(setup, step.tokens),
        elementwise(setup, step.tokens),
        attention,
        head(setup, step),
        after_head(setup, step),
    )
    compute_s = sum(group.compute_s for group in groups)
    memory_s = sum(group.memory_s for group in groups)
    interconnect_s = overheads.collectives_s(setup, step.tokens, step.logits_tokens)
    device_s = sum(group.total_s for group in groups) + interconnect_s + overheads.kernels_s(setup)
    launch_s = overheads.launch_s(setup)
    choice_s = overheads.token_choice_s(setup, step.batch_size)
    choice_s += overheads.prompt_text_s(setup, step.prompt_tokens) + overheads.rank_skew_s(setup)
    choice_s += overheads.prompt_positions_s(setup, step.prompt_tokens // step.batch_size)
    waits = overheads.waits_for_device(setup)
    busy_s = device_s + launch_s if waits else max(device_s, launch_s)
    device: tuple[tuple[float, Bound], ...] = (
        (compute_s, "compute"),
        (memory_s, "memory"),
        (interconnect_s, "interconnect"),
    )
    bound: Bound = max(device)[1] if device_s > launch_s else "host"
    return StepTime(
        compute_s=compute_s,
        memory_s=memory_s,
        interconnect_s=interconnect_s,
        host_s=launch_s + choice_s,
        total_s=busy_s + choice_s,
        bound=bound,
    )


def prefill_time(setup: Setup, batch_size: int, prompt_tokens: int) -> StepTime:
    """One prefill step of `batch_size` prompts of `prompt_tokens` each."""
    check_sizes(batch_size=batch_size, prompt_tokens=prompt_tokens)
    tokens = batch_size * prompt_tokens
    # The padded class computes the logits of every prompt token, the flash class of the last
    # unless the others are asked for.
    logits_tokens = tokens if setup.padded or setup.prompt_logprobs else batch_size
    attention = prefill_attention(setup, batch_size, prompt_tokens)
    return _step_time(setup, Step(batch_size, tokens, logits_tokens, tokens), attention)


def decode_time(setup: Setup, batch_size: int, context_tokens: int) -> StepTime:
    """One decode step of `batch_size` sequences, each attending to `context_tokens`."""
    check_sizes(batch_size=batch_size, context_tokens=context_tokens)
    attention = decode_attention(setup, batch_size, context_tokens)
    return _step_time(setup, Step(batch_size, batch_size, batch_size, 0), attention)


def generate_time_s(setup: Setup, batch_size: int, prompt_tokens: int, new_tokens: int) -> float:
    """One prefill step and new_tokens - 1 decode steps, seconds."""
    check_sizes(new_tokens=new_tokens)
    decode = sum(
        decode_time(setup, batch_size, prompt_tokens + step).total_s
        for step in range(1, new_tokens)
    )
    return prefill_time(setup, batch_size, prompt_tokens).total_s + decode


def _limit_s(setup: Setup, flop: tuple[float, float], moved_bytes: float, tokens: int) -> float:
    """max(compute, memory, interconnect), seconds. flop: of linear layers, of everything else."""
    device = setup.accelerator
    peak = device.fp32_flop_per_s if setup.dtype == "float32" else device.flop_per_s
    int8 = device.int8_op_per_s if setup.quantize == "bitsandbytes" else None
    compute_s = flop[0] / (int8 or peak) + flop[1] / peak
    n = setup.num_shard
    ring_bytes = 2 * (n - 1) / n * tokens * setup.model.hidden * setup.dtype_bytes
    nvlink = overheads.uses_nvlink(setup)
    link = device.nvlink_bytes_per_s if nvlink else device.pcie_bytes_per_s
    link_s = overheads.reduces_per_step(setup) * ring_bytes / link
    return max(compute_s, moved_bytes / device.bytes_per_s, link_s)


def _limit_bytes(setup: Setup, tokens: int) -> float:
    """Touched weights of the linear layers and of the logits, read once."""
    linear = min(touched_linear_parameters(setup, tokens), linear_parameters(setup.model))
    head = vocabulary_parameters(setup.model) * setup.dtype_bytes
    return (linear * setup.linear_weight_bytes + head) / setup.num_shard


def _limit_flop(setup: Setup, tokens: int, rows: int, pairs: float) -> tuple[float, float]:
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
    moved = _limit_bytes(setup, tokens) + tokens * setup.kv_bytes_per_token
    return _limit_s(setup, _limit_flop(setup, tokens, batch_size, pairs), moved, tokens)


def decode_limit_s(setup: Setup, batch_size: int, context_tokens: int) -> float:
    """One decode step: weights and KV cache read once."""
    check_sizes(batch_size=batch_size, context_tokens=context_tokens)
    context = batch_size * context_tokens
    moved = _limit_bytes(setup, batch_size) + context * setup.kv_bytes_per_token
    return _limit_s(
        setup, _limit_flop(setup, batch_size, batch_size, float(context)), moved, batch_size
    )


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

"""How long one step takes: the hardware's rates times the efficiencies of `setup.constants`.

A step is a few groups of kernels that run one after the other. Within a group computing and
reading memory overlap, so that it takes the longer of the two; groups do not overlap.
A limit is what the hardware allows at best: data sheet rates, no host, nothing twice. "Percent of
the roofline" of a measured step is its limit / measured. No estimate is below it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal

from tgi_bench.estimate import overheads
from tgi_bench.estimate.arithmetic import N, chosen, larger, smaller
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
class StepTime(Generic[N]):
    """One step, seconds; of n configurations arrays of shape (n,).

    compute_s, memory_s: of the device at its achievable rates, if only they counted.
    interconnect_s: collectives.
    device_s: sum over groups of max(compute, memory) + interconnect + the operations' ramps and
        gaps.
    launch_s: launching kernels; waits: whether launching waits for the device.
    choice_s: choosing tokens + prompt texts + waiting for the slowest rank.
    """

    compute_s: N
    memory_s: N
    interconnect_s: N
    device_s: N
    launch_s: float
    waits: bool
    choice_s: N

    @property
    def host_s(self) -> N:
        """Launching kernels and choosing tokens."""
        return self.launch_s + self.choice_s

    @property
    def total_s(self) -> N:
        """max(device, launching), or their sum where launching waits, + choosing.

        At least each of compute_s, memory_s, interconnect_s and host_s.
        """
        if self.waits:
            return self.device_s + self.launch_s + self.choice_s
        return larger(self.device_s, self.launch_s) + self.choice_s

    @property
    def bound(self: StepTime[float]) -> Bound:
        """ "host" where launching outlasts the device, else the largest of the three others."""
        return self._bound()[1]

    @property
    def bound_share(self: StepTime[float]) -> float:
        """The bound's own seconds / total_s, in (0, 1]."""
        return self._bound()[0] / self.total_s

    def _bound(self: StepTime[float]) -> tuple[float, Bound]:
        if self.device_s <= self.launch_s:
            return self.host_s, "host"
        device: tuple[tuple[float, Bound], ...] = (
            (self.compute_s, "compute"),
            (self.memory_s, "memory"),
            (self.interconnect_s, "interconnect"),
        )
        return max(device)


@dataclass(frozen=True, slots=True)
class Kernels(Generic[N]):
    """Kernels on one device, seconds: computing, memory traffic, and both as they overlap."""

    compute_s: N
    memory_s: N
    total_s: N

    def __add__(self, other: Kernels[N]) -> Kernels[N]:
        """Another group after this one: groups do not overlap."""
        return Kernels(
            self.compute_s + other.compute_s,
            self.memory_s + other.memory_s,
            self.total_s + other.total_s,
        )


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


def _kernels(setup: Setup, flop: N, flop_per_s: float, bytes_moved: N) -> Kernels[N]:
    bytes_per_s = setup.accelerator.bytes_per_s * setup.constants.bandwidth_efficiency
    return _group(flop / flop_per_s, bytes_moved / bytes_per_s)


def _group(compute_s: N, memory_s: N) -> Kernels[N]:
    return Kernels(compute_s, memory_s, larger(compute_s, memory_s))


def touched_linear_parameters(setup: Setup, tokens: N) -> N:
    """Linear weights that one step reads, all devices together.

    With E experts, k a token, chosen evenly: E * (1 - (1 - k/E)^tokens) experts are touched.
    """
    model = setup.model
    missed = (1 - model.experts_per_token / model.experts) ** tokens
    experts: N = model.experts * (1 - missed)
    per_layer = attention_matrix_parameters(model) + experts * mlp_matrix_parameters(model)
    return model.layers * per_layer


def linears(setup: Setup, tokens: N) -> Kernels[N]:
    """2 flop a weight and token; every touched weight read once."""
    flop = 2.0 * active_linear_parameters(setup.model) * tokens / setup.num_shard
    weights = touched_linear_parameters(setup, tokens) * setup.linear_weight_bytes
    return _kernels(setup, flop, linear_flop_per_s(setup), weights / setup.num_shard)


def elementwise(setup: Setup, tokens: N) -> Kernels[N]:
    """Norms, residuals and activations: memory traffic only. ffn tensors are sharded."""
    model = setup.model
    hidden_passes = HIDDEN_PASSES_PADDED if setup.padded else HIDDEN_PASSES_FLASH
    ffn_passes = FFN_PASSES_PADDED if setup.padded else FFN_PASSES_FLASH
    ffn = model.ffn * model.experts_per_token / setup.num_shard
    per_token = model.layers * (hidden_passes * model.hidden + ffn_passes * ffn)
    moved = tokens * per_token * setup.dtype_bytes
    return _kernels(setup, 0.0 * moved, matrix_flop_per_s(setup), moved)


def _attention_flop(setup: Setup, query_key_pairs: N) -> N:
    """2 products of 2 flop for each pair, head dimension and layer, on one device."""
    model = setup.model
    width = model.heads * model.head_dim / setup.num_shard
    return 4.0 * query_key_pairs * width * model.layers


def prefill_attention(setup: Setup, batch_size: N, prompt_tokens: N) -> Kernels[N]:
    """Padded: all S*S pairs, scores written to memory. Flash: the causal half, scores are not."""
    model, tokens = setup.model, batch_size * prompt_tokens
    pairs = tokens * prompt_tokens
    kv = tokens * setup.kv_bytes_per_token
    if setup.padded:
        heads = model.heads / setup.num_shard
        moved = 2 * kv + SCORE_PASSES * (pairs * heads * model.layers * setup.dtype_bytes)
    else:
        queries_and_outputs = 2 * tokens * model.layers * setup.dtype_bytes
        width = model.heads * model.head_dim / setup.num_shard
        moved = 2 * kv + queries_and_outputs * width
        pairs = (pairs + tokens) / 2
    return _kernels(setup, _attention_flop(setup, pairs), matrix_flop_per_s(setup), moved)


def decode_attention(setup: Setup, batch_size: N, context_tokens: N) -> Kernels[N]:
    """One query a sequence; the KV cache read once, and copied first by the padded class."""
    context = batch_size * context_tokens
    passes = 1.0
    if setup.padded:
        by_element = setup.generator == "transformers"
        widened = max(1.0, CONCAT_ELEMENT_BYTES / setup.dtype_bytes) if by_element else 1.0
        passes += CONCAT_PASSES * widened
    flop = _attention_flop(setup, context)
    bytes_per_s = setup.accelerator.bytes_per_s * setup.constants.kv_bandwidth_efficiency
    moved = passes * (context * setup.kv_bytes_per_token)
    return _group(flop / matrix_flop_per_s(setup), moved / bytes_per_s)


@dataclass(frozen=True, slots=True)
class StepSizes(Generic[N]):
    """Sizes of one step: `tokens` go through the layers, each prompt has `prompt_tokens`."""

    batch_size: N
    tokens: N
    logits_tokens: N
    prompt_tokens: N


def head(setup: Setup, step: StepSizes[N]) -> Kernels[N]:
    """The product that gives the rank's part of the logits; the matrix read once."""
    weights = vocabulary_parameters(setup.model) / setup.num_shard
    logits = step.logits_tokens * setup.model.vocab / setup.num_shard
    flop = 2.0 * weights * step.logits_tokens
    moved = (weights + logits) * setup.dtype_bytes
    return _kernels(setup, flop, matrix_flop_per_s(setup), moved)


def after_head(setup: Setup, step: StepSizes[N]) -> Kernels[N]:
    """Copies of the gathered logits and the log-softmax: memory traffic only.

    The softmax is of each sequence's last logits, or of all where prompt_logprobs asks for them.
    """
    softmax_tokens = step.logits_tokens if setup.prompt_logprobs else step.batch_size
    gathered = LOGITS_PASSES_GATHERED if setup.num_shard > 1 else 0
    rows = gathered * step.logits_tokens + SOFTMAX_PASSES * softmax_tokens
    moved = rows * setup.model.vocab * setup.dtype_bytes
    return _kernels(setup, 0.0 * moved, matrix_flop_per_s(setup), moved)


def _step_time(setup: Setup, step: StepSizes[N], attention: Kernels[N]) -> StepTime[N]:
    kernels = linears(setup, step.tokens) + elementwise(setup, step.tokens) + attention
    kernels = kernels + head(setup, step) + after_head(setup, step)
    interconnect_s = overheads.collectives_s(setup, step.tokens, step.logits_tokens)
    prompts = step.batch_size * step.prompt_tokens
    choice_s = overheads.token_choice_s(setup, step.batch_size)
    choice_s = choice_s + (overheads.prompt_text_s(setup, prompts) + overheads.rank_skew_s(setup))
    choice_s = choice_s + overheads.prompt_positions_s(setup, step.prompt_tokens)
    return StepTime(
        compute_s=kernels.compute_s,
        memory_s=kernels.memory_s,
        interconnect_s=interconnect_s,
        device_s=kernels.total_s + interconnect_s + overheads.kernels_s(setup),
        launch_s=overheads.launch_s(setup),
        waits=overheads.waits_for_device(setup),
        choice_s=choice_s,
    )


def prefill_time(setup: Setup, batch_size: N, prompt_tokens: N) -> StepTime[N]:
    """One prefill step of `batch_size` prompts of `prompt_tokens` each."""
    check_sizes(batch_size=batch_size, prompt_tokens=prompt_tokens)
    tokens = batch_size * prompt_tokens
    # The padded class computes the logits of every prompt token, the flash class of the last
    # unless the others are asked for.
    logits_tokens = tokens if setup.padded or setup.prompt_logprobs else batch_size
    attention = prefill_attention(setup, batch_size, prompt_tokens)
    return _step_time(setup, StepSizes(batch_size, tokens, logits_tokens, prompt_tokens), attention)


def decode_time(setup: Setup, batch_size: N, context_tokens: N) -> StepTime[N]:
    """One decode step of `batch_size` sequences, each attending to `context_tokens`."""
    check_sizes(batch_size=batch_size, context_tokens=context_tokens)
    return _decode_time(setup, batch_size, context_tokens)


def _decode_time(setup: Setup, batch_size: N, context_tokens: N) -> StepTime[N]:
    sizes = StepSizes(batch_size, batch_size, batch_size, 0 * batch_size)
    return _step_time(setup, sizes, decode_attention(setup, batch_size, context_tokens))


def generate_s(setup: Setup, batch_size: N, prompt_tokens: N, new_tokens: N) -> N:
    """One prefill step and new_tokens - 1 decode steps, seconds.

    Steps that the host bounds all take the same; from the first one that it does not, each takes
    the same more than the one before.
    """
    check_sizes(new_tokens=new_tokens)
    prefill_s = prefill_time(setup, batch_size, prompt_tokens).total_s
    steps = new_tokens - 1
    check_sizes(context_tokens=prompt_tokens + steps)
    # The device's time grows by as much with each token of context: hidden steps are the host's.
    slope_s = decode_attention(setup, batch_size, 1 + 0 * batch_size).total_s
    empty = _decode_time(setup, batch_size, 0 * batch_size)
    crossing = (empty.launch_s - empty.device_s) / slope_s // 1 - prompt_tokens
    hidden = 0 * steps if empty.waits else smaller(larger(crossing, 0), steps)
    same_s = hidden * _decode_time(setup, batch_size, prompt_tokens + hidden).total_s
    first = _decode_time(setup, batch_size, prompt_tokens + hidden + 1).total_s
    last = _decode_time(setup, batch_size, prompt_tokens + steps).total_s
    return prefill_s + same_s + (steps - hidden) * (first + last) / 2


def mean_decode_s(setup: Setup, batch_size: int, prompt_tokens: int, new_tokens: int) -> float:
    """The mean of a generate's decode steps, seconds; new_tokens above 1."""
    decoding_s = generate_s(setup, batch_size, prompt_tokens, new_tokens)
    decoding_s -= prefill_time(setup, batch_size, prompt_tokens).total_s
    return decoding_s / (new_tokens - 1)


def _limit_s(setup: Setup, flop: tuple[N, N], moved_bytes: N, tokens: N) -> N:
    """max(compute, memory, interconnect), seconds. flop: of linear layers, of everything else."""
    device = setup.accelerator
    peak = device.fp32_flop_per_s if setup.dtype == "float32" else device.flop_per_s
    int8 = device.int8_op_per_s if setup.quantize == "bitsandbytes" else None
    compute_s = flop[0] / (int8 or peak) + flop[1] / peak
    n = setup.num_shard
    ring_bytes = 2 * (n - 1) / n * tokens * setup.model.hidden * setup.dtype_bytes
    link_s = overheads.reduces_per_step(setup) * ring_bytes / overheads.link_bytes_per_s(setup)
    return larger(larger(compute_s, moved_bytes / device.bytes_per_s), link_s)


def _limit_bytes(setup: Setup, tokens: N) -> N:
    """Touched weights of the linear layers and of the logits, read once."""
    linear = smaller(touched_linear_parameters(setup, tokens), linear_parameters(setup.model))
    head = vocabulary_parameters(setup.model) * setup.dtype_bytes
    return (linear * setup.linear_weight_bytes + head) / setup.num_shard


def _limit_flop(setup: Setup, tokens: N, rows: N, pairs: N) -> tuple[N, N]:
    """Of linear layers; of logits and attention. All of one device."""
    model = setup.model
    linear = 2.0 * active_linear_parameters(model) * tokens
    head = 2.0 * vocabulary_parameters(model) * rows
    attention = 4.0 * pairs * model.heads * model.head_dim * model.layers
    return linear / setup.num_shard, (head + attention) / setup.num_shard


def prefill_limit_s(setup: Setup, batch_size: N, prompt_tokens: N) -> N:
    """One prefill step: the causal half of attention, logits of each prompt's last token."""
    check_sizes(batch_size=batch_size, prompt_tokens=prompt_tokens)
    tokens = batch_size * prompt_tokens
    pairs = batch_size * prompt_tokens * (prompt_tokens + 1) / 2
    moved = _limit_bytes(setup, tokens) + tokens * setup.kv_bytes_per_token
    return _limit_s(setup, _limit_flop(setup, tokens, batch_size, pairs), moved, tokens)


def decode_limit_s(setup: Setup, batch_size: N, context_tokens: N) -> N:
    """One decode step: weights and KV cache read once."""
    check_sizes(batch_size=batch_size, context_tokens=context_tokens)
    context = batch_size * context_tokens
    moved = _limit_bytes(setup, batch_size) + context * setup.kv_bytes_per_token
    flop = _limit_flop(setup, batch_size, batch_size, context)
    return _limit_s(setup, flop, moved, batch_size)


def middle_context(prompt_tokens: N, new_tokens: N) -> N:
    """Tokens that a decode step in the middle of a generate attends to."""
    return smaller(prompt_tokens + -(-new_tokens // 2), LARGEST_SIZE)


def decode_context(prompt_tokens: N, new_tokens: N) -> N:
    """Tokens that a decode figure's step attends to: the middle one's, the prompt's without one."""
    middle = middle_context(prompt_tokens, new_tokens)
    return chosen(new_tokens > 1, middle, prompt_tokens)


def mean_decode_limit_s(
    setup: Setup, batch_size: int, prompt_tokens: int, new_tokens: int
) -> float:
    """The mean of a generate's decode steps: that of the one in the middle."""
    return decode_limit_s(setup, batch_size, decode_context(prompt_tokens, new_tokens))


def generate_limit_s(setup: Setup, batch_size: int, prompt_tokens: int, new_tokens: int) -> float:
    """One prefill step and new_tokens - 1 decode steps."""
    check_sizes(new_tokens=new_tokens)
    decode = sum(
        decode_limit_s(setup, batch_size, prompt_tokens + step) for step in range(1, new_tokens)
    )
    return prefill_limit_s(setup, batch_size, prompt_tokens) + decode

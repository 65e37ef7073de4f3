"""One forward pass of a Hugging Face model with its loss over all tokens: time and memory.

The workload of the TorchCAP tables: fp16, eager kernels, attention by the fused kernel of
scaled_dot_product_attention, no KV cache. Time is the sum of the kernels' own: the host's is not
in it. Counts of passes are of the modelling code's operations for two kinds of layer: Llama's
(rmsnorm, rotary embedding, gate) and OPT's (layernorm, ReLU). Two things were chosen after seeing
errors of those tables: the softmax's third read of its rows, and that the loss has a bandwidth
efficiency of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tgi_bench.errors import InputError
from tgi_bench.estimate.arithmetic import N
from tgi_bench.estimate.setup import Setup, check_sizes
from tgi_bench.estimate.tables import (
    active_linear_parameters,
    mlp_matrix_parameters,
    parameters,
    vocabulary_parameters,
)

NORM_PASSES_RMS = 18
"""Reads and writes of a hidden-sized tensor, in units of dtype, of one RMSNorm in separate
kernels: to 32 bits (1 + 2), square (2 + 2), mean (2), scale (2 + 2), back (2 + 1), weight (2)."""

NORM_PASSES_LAYER = 2
"""LayerNorm is one kernel: read, write."""

RESIDUAL_PASSES = 6
"""Two sums of two tensors in one layer."""

ROTARY_PASSES = 10
"""Of the query's and of the key's width: times cosine (2), negated half and concatenation (3),
times sine (2), sum (3)."""

REPEAT_PASSES = 2
"""Keys and values copied to as many heads as the queries have: read once, written repeated."""

QUERY_SCALE_PASSES = 2
"""OPT scales the queries in a kernel of their own."""

FFN_PASSES_GATED = 5
"""SiLU (2), product with the other half (3)."""

FFN_PASSES_PLAIN = 2
"""ReLU."""

SOFTMAX_PASSES = 4
"""A log-softmax over rows too long for shared memory: maximum, sum, then read and write."""

UPCAST_BYTES = 6
"""Llama's loss first takes a logit of 2 bytes to 4."""

ATTENTION_EFFICIENCY = 0.4
"""Share of the data sheet's matrix rate that the fused attention kernel reaches; order of
magnitude, not fitted."""

WORKSPACE_BYTES = 8_519_680
"""cuBLAS's workspace of one handle in PyTorch on Ampere: 2 x 4 MiB and 8 x 16 KiB."""

LARGE_BLOCK_BYTES = 10 * 2**20
SEGMENT_BYTES = 2 * 2**20
SPLIT_BYTES = 2**20
BLOCK_BYTES = 512
"""PyTorch's caching allocator: tensors of LARGE_BLOCK_BYTES and more get a segment of their own, a
multiple of SEGMENT_BYTES, whose rest is split off (and not counted) if it is above SPLIT_BYTES;
smaller ones are rounded to BLOCK_BYTES."""


@dataclass(frozen=True, slots=True)
class ForwardTime(Generic[N]):
    """Kernel seconds of one forward pass with loss; they follow one another."""

    matrix_s: N
    attention_s: N
    elementwise_s: N
    loss_s: N
    interconnect_s: N

    @property
    def total_s(self) -> N:
        """The sum of all parts."""
        kernels_s = self.matrix_s + self.attention_s + self.elementwise_s + self.loss_s
        return kernels_s + self.interconnect_s


def _elementwise_bytes(setup: Setup, mlp_degree: int) -> float:
    """Memory traffic of one token in one layer outside matrix products and attention, bytes."""
    model = setup.model
    query, key = model.heads * model.head_dim, model.kv_heads * model.head_dim
    rms = model.norm == "rmsnorm"
    passes = float(RESIDUAL_PASSES * model.hidden)
    passes += model.norms * (NORM_PASSES_RMS if rms else NORM_PASSES_LAYER) * model.hidden
    passes += ROTARY_PASSES * (query + key) if rms else QUERY_SCALE_PASSES * query
    if key != query:
        passes += REPEAT_PASSES * (key + query)
    ffn_passes = FFN_PASSES_GATED if model.gated_mlp else FFN_PASSES_PLAIN
    passes += ffn_passes * model.ffn * model.experts_per_token / mlp_degree
    return passes * setup.dtype_bytes


def _loss_bytes(setup: Setup) -> float:
    """Memory traffic of one logit's loss: in 32 bits for Llama's kind, in dtype for OPT's."""
    if setup.model.norm == "rmsnorm":
        return float(SOFTMAX_PASSES * 4 + (UPCAST_BYTES if setup.dtype_bytes == 2 else 0))
    return float(SOFTMAX_PASSES * setup.dtype_bytes)


def forward_time(
    setup: Setup, batch_size: N, sequence_tokens: N, mlp_degree: int = 1
) -> ForwardTime[N]:
    """Kernel time of one forward pass with loss on each device.

    mlp_degree: devices that share each MLP's matrices and sum its output over PCIe; attention is
    repeated on each. Llama's attention counts the causal half of the pairs, OPT's, which is given
    a mask, all of them.
    InputError for a degree that does not divide ffn, or a setup with num_shard above 1.
    """
    check_sizes(batch_size=batch_size, sequence_tokens=sequence_tokens, mlp_degree=mlp_degree)
    model, device, constants = setup.model, setup.accelerator, setup.constants
    if setup.num_shard != 1:
        raise InputError("a forward pass with loss shares its MLP by mlp_degree, not by num_shard")
    if model.ffn % mlp_degree:
        raise InputError(f"mlp_degree {mlp_degree} does not divide the {model.ffn} of {model.name}")
    tokens = batch_size * sequence_tokens
    mlp = model.layers * model.experts_per_token * mlp_matrix_parameters(model)
    weights = active_linear_parameters(model) - mlp * (1 - 1 / mlp_degree)
    peak = device.fp32_flop_per_s if setup.dtype == "float32" else device.flop_per_s
    bytes_per_s = device.bytes_per_s * constants.bandwidth_efficiency
    loss_bytes_per_s = device.bytes_per_s * constants.vocabulary_bandwidth_efficiency
    pairs = tokens * sequence_tokens * (0.5 if model.norm == "rmsnorm" else 1.0)
    width = model.heads * model.head_dim
    streamed = tokens * model.layers * _elementwise_bytes(setup, mlp_degree)
    ring = 2 * (mlp_degree - 1) / mlp_degree * tokens * model.hidden * setup.dtype_bytes
    return ForwardTime(
        matrix_s=2.0
        * tokens
        * (weights + vocabulary_parameters(model))
        / (peak * constants.compute_efficiency),
        attention_s=4.0 * pairs * width * model.layers / (peak * ATTENTION_EFFICIENCY),
        elementwise_s=streamed / bytes_per_s,
        loss_s=tokens * model.vocab * _loss_bytes(setup) / loss_bytes_per_s,
        interconnect_s=model.layers * ring / (device.pcie_bytes_per_s * constants.link_efficiency),
    )


@dataclass(frozen=True, slots=True)
class ForwardMemory:
    """Bytes allocated at the loss, the peak of one forward pass; the allocator's own count.

    logits_bytes: the logits and their log-softmax, in the loss's width.
    """

    weights_bytes: int
    logits_bytes: int
    workspace_bytes: int

    @property
    def total_bytes(self) -> int:
        """The sum of all parts."""
        return self.weights_bytes + self.logits_bytes + self.workspace_bytes


def _block_bytes(tensor_bytes: int) -> int:
    """What the allocator counts for one tensor."""
    if tensor_bytes < LARGE_BLOCK_BYTES:
        return -(-tensor_bytes // BLOCK_BYTES) * BLOCK_BYTES
    segment = -(-tensor_bytes // SEGMENT_BYTES) * SEGMENT_BYTES
    return segment if segment - tensor_bytes <= SPLIT_BYTES else tensor_bytes


def _weights_bytes(setup: Setup) -> int:
    """Weights, each matrix in a block of its own; norms and biases as they are."""
    model, width = setup.model, setup.dtype_bytes
    query, key = model.heads * model.head_dim, model.kv_heads * model.head_dim
    attention = [model.hidden * query, model.hidden * key, model.hidden * key, query * model.hidden]
    mlp = [model.hidden * model.ffn] * (3 if model.gated_mlp else 2) * model.experts
    vocabulary = [vocabulary_parameters(model)] * (1 if model.tied else 2)
    rest = parameters(model) - model.layers * (sum(attention) + sum(mlp)) - sum(vocabulary)
    layer = sum(_block_bytes(matrix * width) for matrix in attention + mlp)
    heads = sum(_block_bytes(matrix * width) for matrix in vocabulary)
    return model.layers * layer + heads + rest * width


def forward_memory(setup: Setup, batch_size: int, sequence_tokens: int) -> ForwardMemory:
    """Peak of one forward pass with loss on one device: weights, logits and their log-softmax.

    Llama's kind takes the loss in 32 bits and has let go of the narrower logits by then; OPT's
    takes it in dtype. The layers' tensors are smaller than the logits and gone before them.
    InputError for a setup of more than one device.
    """
    check_sizes(batch_size=batch_size, sequence_tokens=sequence_tokens)
    if setup.devices != 1:
        raise InputError("the memory of a forward pass with loss is estimated for one device")
    width = 4 if setup.model.norm == "rmsnorm" else setup.dtype_bytes
    logits = batch_size * sequence_tokens * setup.model.vocab * width
    return ForwardMemory(_weights_bytes(setup), 2 * _block_bytes(logits), WORKSPACE_BYTES)

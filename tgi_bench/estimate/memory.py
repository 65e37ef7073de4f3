"""How much memory one device needs, and whether it has it.

One rule for every case: runtime + weights + KV cache + transient tensors / TRANSIENT_UTILISATION,
at the step that needs most, against what a process can allocate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tgi_bench.estimate.arithmetic import N, chosen, larger
from tgi_bench.estimate.setup import Setup, check_fraction, check_sizes
from tgi_bench.estimate.tables import GIB

CONTEXT_BYTES = 0.6 * GIB
"""CUDA context, loaded kernels and cuBLAS workspace of one process; order of magnitude."""

COLLECTIVE_BYTES = 0.5 * GIB
"""NCCL's channels and buffers where num_shard > 1; order of magnitude."""

TRANSIENT_UTILISATION = 0.7
"""Share of what the caching allocator reserves for transient tensors that they fill.

The rest is fragments: a step's sizes differ from those of the steps before it. The value was
chosen after seeing the published TGI table of bloomz-7b1-mt: with COLLECTIVE_BYTES as above,
0.67 to 0.75 reproduces its out-of-memory cells of num_shard 2, 4 and 8, and 1 does not.
"""

CONCAT_COPIES = 2
"""The padded class grows the KV cache by concatenation: the old and the new are held at once."""

GATHERED_COPIES = 3
"""Logits of the whole vocabulary that num_shard > 1 holds at once: the collective's flat
buffer, the list of the ranks' parts, their concatenation."""

SCORE_BYTES_EXTRA = 4
"""The padded class takes its softmax in 32 bits: one more copy of the scores of 4 bytes."""

SCORE_COPIES = 2
"""Scores and probabilities in dtype."""

HIDDEN_COPIES = 4
"""Hidden-sized tensors alive within one layer: residual, norm, input and output of a linear."""

FFN_COPIES = 2
"""ffn-sized tensors alive within one layer: before and after the activation."""


@dataclass(frozen=True, slots=True)
class MemoryNeed(Generic[N]):
    """Bytes on each device at the step that needs most; of n configurations arrays of shape (n,).

    kv_cache_bytes: with the second copy where the cache is being concatenated.
    activations_bytes: transient tensors (attention scores or logits, whichever needs more)
        with the fragments between them. runtime_bytes: CUDA context and collectives.
    largest_block_bytes: the largest single tensor allocated at that step, what "Tried to
        allocate" names.
    """

    weights_bytes: float
    kv_cache_bytes: N
    activations_bytes: N
    runtime_bytes: float
    largest_block_bytes: N

    @property
    def total_bytes(self) -> N:
        """weights + KV cache + activations + runtime."""
        return (
            self.weights_bytes + self.kv_cache_bytes + self.activations_bytes + self.runtime_bytes
        )


@dataclass(frozen=True, slots=True)
class _Transient(Generic[N]):
    """Tensors alive at once: their sum and the largest, bytes."""

    sum_bytes: N
    block_bytes: N


def _logits(setup: Setup, logits_tokens: N) -> _Transient[N]:
    """The rank's own part, and GATHERED_COPIES of the whole where there are several ranks."""
    whole = 1.0 * (logits_tokens * setup.model.vocab * setup.dtype_bytes)
    if setup.num_shard == 1:
        return _Transient(whole, whole)
    return _Transient(whole / setup.num_shard + GATHERED_COPIES * whole, whole)


def _layer(setup: Setup, tokens: N, query_key_pairs: N) -> _Transient[N]:
    """Tensors of one layer: `tokens` hidden and ffn vectors, and the padded class's scores.

    The flash class keeps no scores in memory.
    """
    model = setup.model
    hidden = 1.0 * (tokens * model.hidden * setup.dtype_bytes)
    ffn = tokens * model.ffn * setup.dtype_bytes / setup.num_shard
    scores = query_key_pairs * (model.heads if setup.padded else 0) / setup.num_shard
    score_bytes = scores * (SCORE_COPIES * setup.dtype_bytes + SCORE_BYTES_EXTRA)
    score_block = scores * max(setup.dtype_bytes, SCORE_BYTES_EXTRA)
    # Attention and MLP of one layer follow each other: the larger of the two is alive.
    return _Transient(
        HIDDEN_COPIES * hidden + larger(FFN_COPIES * ffn, score_bytes),
        larger(larger(hidden, ffn), score_block),
    )


def device_kv_bytes_per_token(setup: Setup) -> float:
    """KV cache of one token on one device: of its own layers where they are held in turn."""
    return setup.kv_bytes_per_token / setup.split_devices


def runtime_bytes(setup: Setup) -> float:
    """CUDA context, and the collectives' buffers where num_shard > 1."""
    return CONTEXT_BYTES + (COLLECTIVE_BYTES if setup.num_shard > 1 else 0.0)


def _need(setup: Setup, kv_bytes: N, layer: _Transient[N], logits: _Transient[N]) -> MemoryNeed[N]:
    peak = larger(layer.sum_bytes, logits.sum_bytes)
    in_layer = layer.sum_bytes >= logits.sum_bytes
    return MemoryNeed(
        weights_bytes=setup.weights_bytes,
        kv_cache_bytes=kv_bytes,
        activations_bytes=peak / TRANSIENT_UTILISATION,
        runtime_bytes=runtime_bytes(setup),
        largest_block_bytes=chosen(in_layer, layer.block_bytes, logits.block_bytes),
    )


def decode_memory(setup: Setup, batch_size: N, context_tokens: N) -> MemoryNeed[N]:
    """One decode step of `batch_size` sequences, `context_tokens` of each in the KV cache."""
    check_sizes(batch_size=batch_size, context_tokens=context_tokens)
    copies = CONCAT_COPIES if setup.padded else 1
    context = batch_size * context_tokens
    kv_bytes = context * device_kv_bytes_per_token(setup)
    layer = _layer(setup, batch_size, context)
    return _need(setup, copies * kv_bytes, layer, _logits(setup, batch_size))


def prefill_step_memory(setup: Setup, batch_size: N, prompt_tokens: N) -> MemoryNeed[N]:
    """One prefill step: KV cache of the prompts, and the larger of one layer and the logits."""
    check_sizes(batch_size=batch_size, prompt_tokens=prompt_tokens)
    tokens = batch_size * prompt_tokens
    logits_tokens = tokens if setup.padded or setup.prompt_logprobs else batch_size
    layer = _layer(setup, tokens, tokens * prompt_tokens)
    kv_bytes = tokens * device_kv_bytes_per_token(setup)
    return _need(setup, kv_bytes, layer, _logits(setup, logits_tokens))


def prefill_memory(setup: Setup, batch_size: N, prompt_tokens: N, new_tokens: N) -> MemoryNeed[N]:
    """The step that needs most from prefill to the last of `new_tokens`.

    Prefill emits the first token, so that new_tokens = 1 is the prefill step alone. The last
    decode step is counted with prompt + new tokens in the cache, one more than it reads.
    """
    check_sizes(new_tokens=new_tokens)
    prefill = prefill_step_memory(setup, batch_size, prompt_tokens)
    decodes = new_tokens > 1
    context = chosen(decodes, prompt_tokens + new_tokens, prompt_tokens)
    decode = decode_memory(setup, batch_size, context)
    most = decodes & (decode.total_bytes > prefill.total_bytes)
    return MemoryNeed(
        weights_bytes=setup.weights_bytes,
        kv_cache_bytes=chosen(most, decode.kv_cache_bytes, prefill.kv_cache_bytes),
        activations_bytes=chosen(most, decode.activations_bytes, prefill.activations_bytes),
        runtime_bytes=runtime_bytes(setup),
        largest_block_bytes=chosen(most, decode.largest_block_bytes, prefill.largest_block_bytes),
    )


def fits(setup: Setup, need: MemoryNeed[float]) -> bool:
    """Whether one device can allocate it all."""
    return need.total_bytes <= setup.accelerator.usable_bytes


def kv_capacity_tokens(
    setup: Setup, memory_fraction: float = 1.0, max_batch_prefill_tokens: int = 4096
) -> int | None:
    """Tokens that the flash class's KV pool holds: what the warm-up leaves / bytes a token.

    The warm-up prefills max_batch_prefill_tokens as one prompt; the pool takes the rest of
    `memory_fraction` of the device. 0 where nothing is left. None for the padded class, which
    has no pool. InputError for a fraction outside (0, 1].
    """
    check_sizes(max_batch_prefill_tokens=max_batch_prefill_tokens)
    check_fraction(memory_fraction)
    if setup.padded:
        return None
    warmup = prefill_step_memory(setup, 1, max_batch_prefill_tokens)
    taken = warmup.total_bytes - warmup.kv_cache_bytes
    left = setup.accelerator.usable_bytes * memory_fraction - taken
    return max(0, int(left / setup.kv_bytes_per_token))


def beside_pool_bytes(setup: Setup, prefill: MemoryNeed[float], pool_tokens: int) -> float:
    """Bytes on each device while the flash class prefills: its KV is in the pool, taken whole."""
    return prefill.total_bytes - prefill.kv_cache_bytes + pool_tokens * setup.kv_bytes_per_token

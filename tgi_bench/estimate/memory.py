"""How much memory one device needs, and whether it has it.

One rule for every case: runtime + weights + KV cache + transient tensors / TRANSIENT_UTILISATION,
at the step that needs most, against what a process can allocate.
"""

from __future__ import annotations

from dataclasses import dataclass

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
class MemoryNeed:
    """Bytes on each device at the step that needs most.

    kv_cache_bytes: with the second copy where the cache is being concatenated.
    activations_bytes: transient tensors (attention scores or logits, whichever needs more)
        with the fragments between them. runtime_bytes: CUDA context and collectives.
    largest_block_bytes: the largest single tensor allocated at that step, what "Tried to
        allocate" names.
    """

    weights_bytes: float
    kv_cache_bytes: float
    activations_bytes: float
    runtime_bytes: float
    largest_block_bytes: float

    @property
    def total_bytes(self) -> float:
        """weights + KV cache + activations + runtime."""
        return (
            self.weights_bytes + self.kv_cache_bytes + self.activations_bytes + self.runtime_bytes
        )


@dataclass(frozen=True, slots=True)
class _Transient:
    """Tensors alive at once: their sum and the largest, bytes."""

    sum_bytes: float
    block_bytes: float


def _logits(setup: Setup, logits_tokens: int) -> _Transient:
    """The rank's own part, and GATHERED_COPIES of the whole where there are several ranks."""
    whole = float(logits_tokens * setup.model.vocab * setup.dtype_bytes)
    if setup.num_shard == 1:
        return _Transient(whole, whole)
    return _Transient(whole / setup.num_shard + GATHERED_COPIES * whole, whole)


def _layer(setup: Setup, tokens: int, scores: float) -> _Transient:
    """Tensors of one layer: `tokens` hidden and ffn vectors, `scores` attention scores."""
    model = setup.model
    hidden = float(tokens * model.hidden * setup.dtype_bytes)
    ffn = tokens * model.ffn * setup.dtype_bytes / setup.num_shard
    score_bytes = scores * (SCORE_COPIES * setup.dtype_bytes + SCORE_BYTES_EXTRA)
    largest = max(hidden, ffn, scores * max(setup.dtype_bytes, SCORE_BYTES_EXTRA))
    # Attention and MLP of one layer follow each other: the larger of the two is alive.
    return _Transient(HIDDEN_COPIES * hidden + max(FFN_COPIES * ffn, score_bytes), largest)


def _scores(setup: Setup, batch_size: int, query_tokens: int, key_tokens: int) -> float:
    """Attention scores in memory on one device; 0 in the flash class, which keeps none."""
    if not setup.padded:
        return 0.0
    return batch_size * query_tokens * key_tokens * setup.model.heads / setup.num_shard


def device_kv_bytes_per_token(setup: Setup) -> float:
    """KV cache of one token on one device: of its own layers where they are held in turn."""
    return setup.kv_bytes_per_token / setup.split_devices


def runtime_bytes(setup: Setup) -> float:
    """CUDA context, and the collectives' buffers where num_shard > 1."""
    return CONTEXT_BYTES + (COLLECTIVE_BYTES if setup.num_shard > 1 else 0.0)


def _need(setup: Setup, kv_bytes: float, phases: tuple[_Transient, ...]) -> MemoryNeed:
    peak = max(phases, key=lambda phase: phase.sum_bytes)
    return MemoryNeed(
        weights_bytes=setup.weights_bytes,
        kv_cache_bytes=kv_bytes,
        activations_bytes=peak.sum_bytes / TRANSIENT_UTILISATION,
        runtime_bytes=runtime_bytes(setup),
        largest_block_bytes=peak.block_bytes,
    )


def decode_memory(setup: Setup, batch_size: int, context_tokens: int) -> MemoryNeed:
    """One decode step of `batch_size` sequences, `context_tokens` of each in the KV cache."""
    check_sizes(batch_size=batch_size, context_tokens=context_tokens)
    copies = CONCAT_COPIES if setup.padded else 1
    kv_bytes = batch_size * context_tokens * device_kv_bytes_per_token(setup)
    scores = _scores(setup, batch_size, 1, context_tokens)
    phases = (_layer(setup, batch_size, scores), _logits(setup, batch_size))
    return _need(setup, copies * kv_bytes, phases)


def prefill_step_memory(setup: Setup, batch_size: int, prompt_tokens: int) -> MemoryNeed:
    """One prefill step: KV cache of the prompts, and the larger of one layer and the logits."""
    check_sizes(batch_size=batch_size, prompt_tokens=prompt_tokens)
    tokens = batch_size * prompt_tokens
    logits_tokens = tokens if setup.padded or setup.prompt_logprobs else batch_size
    scores = _scores(setup, batch_size, prompt_tokens, prompt_tokens)
    phases = (_layer(setup, tokens, scores), _logits(setup, logits_tokens))
    return _need(setup, tokens * device_kv_bytes_per_token(setup), phases)


def prefill_memory(
    setup: Setup, batch_size: int, prompt_tokens: int, new_tokens: int
) -> MemoryNeed:
    """The step that needs most from prefill to the last of `new_tokens`.

    Prefill emits the first token, so that new_tokens = 1 is the prefill step alone. The last
    decode step is counted with prompt + new tokens in the cache, one more than it reads.
    """
    check_sizes(new_tokens=new_tokens)
    prefill = prefill_step_memory(setup, batch_size, prompt_tokens)
    if new_tokens == 1:
        return prefill
    decode = decode_memory(setup, batch_size, prompt_tokens + new_tokens)
    return max(prefill, decode, key=lambda need: need.total_bytes)


def fits(setup: Setup, need: MemoryNeed) -> bool:
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


def beside_pool_bytes(setup: Setup, prefill: MemoryNeed, pool_tokens: int) -> float:
    """Bytes on each device while the flash class prefills: its KV is in the pool, taken whole."""
    return prefill.total_bytes - prefill.kv_cache_bytes + pool_tokens * setup.kv_bytes_per_token

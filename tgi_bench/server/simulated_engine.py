"""The simulated engine of one rank: it keeps batches as a TGI shard does, and sleeps.

A step takes its caller as long as the estimate says the accelerator would, calls included
(`Turnaround`); its tokens are made up (`sequences`). Tokens and memory are a pure function of the
calls, so that ranks which get the same calls answer the same. The step functions block, as a model
blocks its shard's event loop.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from tgi_bench.server.behaviour import Behaviour
from tgi_bench.server.config import EngineConfig
from tgi_bench.server.device import Device
from tgi_bench.server.engine import (
    PaddedPart,
    check_size,
    longest_prompt,
    padded_warmup,
    room_of_joined,
    room_of_kept,
    room_of_prompts,
)
from tgi_bench.server.sequences import (
    BLOCK_TOKENS,
    HeldBatch,
    Sequence,
    next_token,
    prompt_tokens,
    request_key,
)
from tgi_bench.torch_engine.tokenizers import WordTokenizer
from tgi_bench.wire import messages as m


@dataclass(frozen=True, slots=True)
class Clock:
    """Time as the engine sees it: tests put in their own."""

    now_ns: Callable[[], int] = time.monotonic_ns
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class _Timed:
    """What a step's reply needs of its clock. concat_ns: None where no batches were joined."""

    start_ns: int
    seconds: float
    concat_ns: int | None = None


class SimulatedEngine:
    """Batches between steps, and the steps on them.

    RuntimeError: out of memory, and what else ends a shard of 2.0 and later. ValueError,
    LookupError, TypeError, AssertionError: what a shard answers and survives.
    """

    def __init__(
        self, config: EngineConfig, behaviour: Behaviour, clock: Clock | None = None
    ) -> None:
        """Load the weights: RuntimeError where they do not fit, InputError for a bad name."""
        self._behaviour = behaviour
        self._clock = clock or Clock()
        self._device = Device.of(config, behaviour)
        self._dtype = self._device.setup.dtype
        self._padded = self._device.setup.model.padded
        self._tokenizer = WordTokenizer(self._device.setup.model.vocab)
        self._cache: dict[int, HeldBatch] = {}
        self._pool_tokens: int | None = None
        self._turnaround = Turnaround()

    @property
    def description(self) -> str | None:
        """None: the launcher says that it is simulated."""
        return None

    def info(self) -> m.Info:
        """What the shard says of itself.

        Paged attention in blocks of 16, which a padded class names too: the engine has neither
        the prefix cache nor the chunking that flashinfer would stand for.
        """
        attention = self._behaviour.names_attention
        return m.Info(
            requires_padding=self._padded,
            dtype=f"torch.{self._dtype}",
            device_type="simulated",
            speculate=0,
            support_chunking=False if attention else None,
            use_prefix_caching=False if attention else None,
            attention_impl="paged" if attention else None,
            block_size=BLOCK_TOKENS if attention else None,
        )

    def warmup(self, warmup: m.Warmup) -> m.WarmupReply:
        """One prefill of the batch; a flash model then takes the rest of memory for its pool."""
        if self._padded or not self._behaviour.has_kv_pool:
            self.prefill(warmup.batch)
            self._cache.pop(warmup.batch.id, None)
            return padded_warmup(warmup, self._behaviour)
        start_ns = self._clock.now_ns()
        sequences = self._admitted(warmup.batch)
        lengths = tuple(s.prompt_tokens for s in sequences)
        prefill_tokens = max(sum(lengths), warmup.max_prefill_tokens)
        pool = self._device.pool_tokens(prefill_tokens) // BLOCK_TOKENS * BLOCK_TOKENS
        if not pool:
            raise RuntimeError(
                f"Not enough memory to handle {prefill_tokens} prefill tokens. "
                "You need to decrease `--max-batch-prefill-tokens`"
            )
        self._cache.clear()
        self._pool_tokens = pool
        self._sleep_until(start_ns, self._device.prefill_s(lengths))
        if not self._behaviour.names_limits_in_warmup:
            return m.WarmupReply(pool)
        total = min(warmup.max_total_tokens or pool, pool)
        return m.WarmupReply(pool, min(warmup.max_input_tokens or total - 1, total - 1), total)

    def prefill(self, batch: m.Batch) -> m.StepReply:
        """Prefill a batch: the first token of every request. A failure leaves nothing behind."""
        start_ns = self._clock.now_ns()
        self._turnaround.began(start_ns)
        sequences = self._admitted(batch)
        lengths = tuple(s.prompt_tokens for s in sequences)
        device = self._device.answering_prompts(any(r.prefill_logprobs for r in batch.requests))
        if self._padded or not self._behaviour.has_kv_pool:
            device.allocate_prefill(lengths, self._held_bytes())
        else:
            device.allocate_beside_pool(lengths, self._reserved_pool(sequences))
        new_tokens = tuple(s.request.stopping.max_new_tokens for s in sequences)
        held = HeldBatch(batch.id, sequences, room_of_prompts(lengths, new_tokens))
        return self._step(held, _Timed(start_ns, device.prefill_s(lengths)), first=True)

    def decode(self, batches: Iterable[m.CachedBatch]) -> m.StepReply:
        """One more token for every request of the batches, which are joined into the first.

        Batches are taken out of the cache before anything else: a failed step loses them.
        """
        start_ns = self._clock.now_ns()
        self._turnaround.began(start_ns)
        taken = [self._take(batch.id) for batch in batches]
        if not taken:
            raise ValueError("Must provide at least one batch")
        concat_ns = None
        if len(taken) > 1:
            room = room_of_joined(
                [PaddedPart(batch.padded_room, batch.contexts) for batch in taken]
            )
            sequences = tuple(sequence for batch in taken for sequence in batch.sequences)
            taken[0] = HeldBatch(taken[0].id, sequences, room)
            concat_ns = max(1, self._clock.now_ns() - start_ns)
        held = taken[0]
        contexts = held.contexts
        if self._padded or not self._behaviour.has_kv_pool:
            self._device.allocate_decode(contexts, self._held_bytes())
        timed = _Timed(start_ns, self._device.decode_s(contexts), concat_ns)
        return self._step(held, timed, first=False)

    def filter_batch(self, batch_id: int, request_ids: Iterable[int]) -> m.CachedBatch:
        """Keep these requests of a batch, in this order. A failure loses the batch.

        One that keeps them all changes nothing, not even their order.
        """
        self._turnaround.interrupted()
        held = self._take(batch_id)
        by_id = {sequence.request.id: sequence for sequence in held.sequences}
        kept = tuple(by_id[request_id] for request_id in request_ids)
        if not kept:
            raise ValueError("Batch must have at least one request")
        if len(kept) < len(held.sequences):
            held = HeldBatch(batch_id, kept, 0)
            room = room_of_kept(held.contexts, held.left)
            held = replace(held, padded_room=room)
        self._cache[batch_id] = held
        return self._cached(held)

    def clear_cache(self, batch_id: int | None) -> None:
        """Forget a batch, known or not; None forgets all."""
        self._turnaround.interrupted()
        if batch_id is None:
            self._cache.clear()
        else:
            self._cache.pop(batch_id, None)

    def _take(self, batch_id: int) -> HeldBatch:
        held = self._cache.pop(batch_id, None)
        if held is None:
            raise ValueError(f"Batch ID {batch_id} not found in cache.")
        return held

    def _admitted(self, batch: m.Batch) -> tuple[Sequence, ...]:
        """The batch's requests with their prompts cut, or the error that a shard raises."""
        longest = longest_prompt(batch, self._behaviour)
        sequences = tuple(self._sequence(request, longest) for request in batch.requests)
        check_size(batch, max(sequence.prompt_tokens for sequence in sequences))
        return sequences

    def _sequence(self, request: m.Request, longest: int) -> Sequence:
        # The padded class cuts every prompt at the batch's longest, the flash class at its own.
        limit = longest if self._padded or request.truncate < 1 else request.truncate
        # An empty prompt still has one token: a model's beginning of sequence.
        kept = max(1, min(self._tokenizer.count(request.text), limit))
        return Sequence(request, kept, request_key(request))

    def _reserved_pool(self, sequences: tuple[Sequence, ...]) -> int:
        """Tokens of the KV pool, when it has blocks for these sequences; else the error."""
        if self._pool_tokens is None:
            if self._behaviour.checks_cache_blocks:
                raise RuntimeError("cache manager was not initialized")
            raise IndexError("list index out of range")
        taken = sum(batch.blocks for batch in self._cache.values())
        asked, free = sum(s.blocks for s in sequences), self._pool_tokens // BLOCK_TOKENS - taken
        if asked > free:
            if not self._behaviour.checks_cache_blocks:
                beyond = (asked - free) * BLOCK_TOKENS * self._device.setup.kv_bytes_per_token
                self._device.allocate(self._device.limit_bytes + beyond, beyond)
            message = f"Out of available cache blocks: asked {asked}, only {free} free blocks"
            if self._behaviour.out_of_blocks_is_runtime_error:
                raise RuntimeError(message)
            raise AssertionError(message)
        return self._pool_tokens

    def _held_bytes(self) -> float:
        return sum(self._device.kv_bytes(batch.contexts) for batch in self._cache.values())

    def _step(self, held: HeldBatch, timed: _Timed, first: bool) -> m.StepReply:
        """Choose tokens within the step's time, sleep the rest of it, keep the batch.

        It is kept whole until every request has ended: one that has is filtered out by the
        caller, or goes on. decode_ns: choosing the tokens. forward_ns: the rest, joining left
        out.
        """
        choosing_ns = self._clock.now_ns()
        generations = tuple(self._generation(sequence, first) for sequence in held.sequences)
        goes_on = any(sequence.finish_reason is None for sequence in held.sequences)
        decode_ns = max(1, self._clock.now_ns() - choosing_ns)
        self._sleep_until(timed.start_ns - self._turnaround.outside_ns, timed.seconds)
        cached = None
        if goes_on:
            self._cache[held.id] = held
            cached = self._cached(held)
        durations = None
        if self._behaviour.sends_durations:
            total_ns = self._clock.now_ns() - timed.start_ns
            forward_ns = max(1, total_ns - decode_ns - (timed.concat_ns or 0))
            durations = m.Durations(forward_ns, decode_ns, total_ns, timed.concat_ns)
        self._turnaround.ended(self._clock.now_ns())
        return m.StepReply(generations, cached, durations)

    def _generation(self, sequence: Sequence, first: bool) -> m.Generation:
        request = sequence.request
        token, top = next_token(self._tokenizer, request, sequence.key, sequence.generated_tokens)
        sequence.append(token.text)
        prompt: tuple[m.Token, ...] = ()
        always = self._behaviour.always_sends_prefill_tokens
        if first and (request.prefill_logprobs or always):
            prompt = prompt_tokens(self._tokenizer, request, sequence.prompt_tokens)
        return m.Generation(
            request_id=request.id,
            tokens=(token,),
            generated_text=sequence.generated_text(),
            prefill_tokens=prompt,
            top_tokens=(top,) if top else (),
        )

    def _cached(self, held: HeldBatch) -> m.CachedBatch:
        return m.CachedBatch(
            id=held.id,
            request_ids=tuple(s.request.id for s in held.sequences),
            size=len(held.sequences),
            max_tokens=held.max_tokens(self._padded),
            current_tokens=(held.current_tokens if self._behaviour.sends_current_tokens else None),
        )

    def _sleep_until(self, start_ns: int, seconds: float) -> None:
        """Sleep to start + seconds, an absolute deadline: the engine's own work is inside."""
        left_ns = start_ns + int(seconds * 1e9) - self._clock.now_ns()
        if left_ns > 0:
            self._clock.sleep(left_ns / 1e9)


_KEPT = 8
_LONGEST_NS = 50_000_000
"""A longer gap is a caller that had nothing to ask."""


class Turnaround:
    """The gaps between a step's end and the next step's begin, as one rank sees them.

    An estimate of a step is of what a caller sees, its calls included; a rank that slept through
    all of it would be late by its own codec, gRPC, the caller and the cores they wait for.
    outside_ns: the least of the last gaps, for a longer one may have been the caller's pause; 0
    before the first.
    """

    def __init__(self) -> None:
        self._gaps_ns: deque[int] = deque(maxlen=_KEPT)
        self._ended_ns: int | None = None

    @property
    def outside_ns(self) -> int:
        """To be taken off the next step."""
        return min(self._gaps_ns, default=0)

    def began(self, now_ns: int) -> None:
        """A step was called for."""
        if self._ended_ns is not None and now_ns - self._ended_ns <= _LONGEST_NS:
            self._gaps_ns.append(now_ns - self._ended_ns)
        self._ended_ns = None

    def ended(self, now_ns: int) -> None:
        """It is about to be answered."""
        self._ended_ns = now_ns

    def interrupted(self) -> None:
        """Something else was called for: what follows is no gap between two steps."""
        self._ended_ns = None

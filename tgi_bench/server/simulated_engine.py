"""The simulated engine of one rank: it keeps batches as a TGI shard does, and sleeps.

A step takes its caller as long as the estimate says the accelerator would, calls included
(`Turnaround`). Its tokens are made up, and a pure function of (prompt, seed, position): every rank
says the same, and so does every run. A greedy request depends on its prompt only, a sampled one on
its seed too. Penalties, top_k, watermark and temperature have no effect on what is chosen; the end
of sequence token is never chosen. Memory is a pure function of the calls, too. The step functions
block, as a model blocks its shard's event loop.
"""

from __future__ import annotations

import math
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tgi_bench.server.behaviour import Behaviour
from tgi_bench.server.config import EngineConfig
from tgi_bench.server.device import SimulatedDevice
from tgi_bench.server.engine import (
    BLOCK_TOKENS,
    HeldBatch,
    HeldBatches,
    admitted,
    generation,
    info_of,
    joined,
    padded_warmup,
    prefilled,
    step_durations,
    warmup_reply,
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
    """Steps that sleep. See `server.engine.Engine` for what its methods promise."""

    def __init__(
        self, config: EngineConfig, behaviour: Behaviour, clock: Clock | None = None
    ) -> None:
        """Load the weights: RuntimeError where they do not fit, InputError for a bad name."""
        self._behaviour = behaviour
        self._clock = clock or Clock()
        self._device = SimulatedDevice.of(config, behaviour)
        self._dtype = self._device.setup.dtype
        self._padded = self._device.setup.model.padded
        self._tokenizer = WordTokenizer(self._device.setup.model.vocab)
        self._held: HeldBatches[MadeUpAnswer, None] = HeldBatches(
            behaviour, None if self._padded else lambda answer: answer.blocks * BLOCK_TOKENS
        )
        self._pool_tokens: int | None = None
        self._turnaround = Turnaround()

    @property
    def description(self) -> str | None:
        """None: the launcher says that it is simulated."""
        return None

    def info(self) -> m.ShardInfo:
        """What the shard says of itself."""
        return info_of(self._behaviour, self._padded, f"torch.{self._dtype}", "simulated")

    def warmup(self, warmup: m.Warmup) -> m.WarmupReply:
        """One prefill of the batch; a flash model then takes the rest of memory for its pool."""
        if self._padded or not self._behaviour.has_kv_pool:
            self.prefill(warmup.batch)
            self._held.clear(warmup.batch.id)
            return padded_warmup(warmup, self._behaviour)
        start_ns = self._clock.now_ns()
        answers = admitted(warmup.batch, self._behaviour, self._answer)
        lengths = tuple(answer.prompt_tokens for answer in answers)
        prefill_tokens = max(sum(lengths), warmup.max_prefill_tokens)
        pool = self._device.pool_tokens(prefill_tokens) // BLOCK_TOKENS * BLOCK_TOKENS
        reply = warmup_reply(warmup, self._behaviour, pool, prefill_tokens)
        self._held.clear(None)
        self._pool_tokens = pool
        self._sleep_until(start_ns, self._device.prefill_s(lengths))
        return reply

    def prefill(self, batch: m.Batch) -> m.StepReply:
        """Prefill a batch: the first token of every request. A failure leaves nothing behind."""
        start_ns = self._clock.now_ns()
        self._turnaround.began(start_ns)
        answers = admitted(batch, self._behaviour, self._answer)
        lengths = tuple(answer.prompt_tokens for answer in answers)
        device = self._device.answering_prompts(any(r.prefill_logprobs for r in batch.requests))
        if self._padded or not self._behaviour.has_kv_pool:
            device.allocate_prefill(lengths, self._held_bytes())
        else:
            device.allocate_beside_pool(lengths, self._reserved_pool(answers))
        held = prefilled(batch.id, answers, None)
        return self._step(held, _Timed(start_ns, device.prefill_s(lengths)), first=True)

    def decode(self, batches: Iterable[m.CachedBatch]) -> m.StepReply:
        """One more token for every request of the batches, which are joined into the first.

        Batches are taken out of the cache before anything else: a failed step loses them.
        """
        start_ns = self._clock.now_ns()
        self._turnaround.began(start_ns)
        taken = self._held.take(batches)
        held, concat_ns = taken[0], None
        if len(taken) > 1:
            held = joined(taken, None)
            concat_ns = max(1, self._clock.now_ns() - start_ns)
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
        held, _ = self._held.take_filtered(batch_id, request_ids)
        return self._held.keep(held)

    def clear_cache(self, batch_id: int | None) -> None:
        """Forget a batch, known or not; None forgets all."""
        self._turnaround.interrupted()
        self._held.clear(batch_id)

    def _answer(self, request: m.Request, longest: int) -> MadeUpAnswer:
        # The padded class cuts every prompt at the batch's longest, the flash class at its own.
        limit = longest if self._padded or request.truncate < 1 else request.truncate
        # An empty prompt still has one token: a model's beginning of sequence.
        kept = max(1, min(self._tokenizer.count(request.text), limit))
        return MadeUpAnswer(request, kept, _request_key(request))

    def _reserved_pool(self, answers: tuple[MadeUpAnswer, ...]) -> int:
        """Tokens of the KV pool, when it has blocks for these requests; else the error."""
        if self._pool_tokens is None:
            if self._behaviour.checks_cache_blocks:
                raise RuntimeError("cache manager was not initialized")
            raise IndexError("list index out of range")
        taken = sum(answer.blocks for held in self._held for answer in held.answers)
        asked = sum(answer.blocks for answer in answers)
        free = self._pool_tokens // BLOCK_TOKENS - taken
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
        return sum(self._device.kv_bytes(held.contexts) for held in self._held)

    def _step(self, held: HeldBatch[MadeUpAnswer, None], timed: _Timed, first: bool) -> m.StepReply:
        """Choose tokens within the step's time, sleep the rest of it, keep the batch.

        decode_ns: choosing the tokens. forward_ns: the rest, joining left out.
        """
        choosing_ns = self._clock.now_ns()
        generations = tuple(self._generation(answer, first) for answer in held.answers)
        decode_ns = max(1, self._clock.now_ns() - choosing_ns)
        self._sleep_until(timed.start_ns - self._turnaround.outside_ns, timed.seconds)
        total_ns = self._clock.now_ns() - timed.start_ns
        durations = step_durations(self._behaviour, total_ns, decode_ns, timed.concat_ns)
        reply = self._held.reply(held, generations, durations)
        self._turnaround.ended(self._clock.now_ns())
        return reply

    def _generation(self, answer: MadeUpAnswer, first: bool) -> m.Generation:
        request = answer.request
        token, top = _next_token(self._tokenizer, request, answer.key, answer.generated_tokens)
        answer.append(token.text)
        prompt: tuple[m.Token, ...] = ()
        always = self._behaviour.always_sends_prefill_tokens
        if first and (request.prefill_logprobs or always):
            prompt = _prompt_tokens(self._tokenizer, request, answer.prompt_tokens)
        return generation(answer, token, top, prompt)

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


_MASK = 2**64 - 1


@dataclass(slots=True)
class MadeUpAnswer:
    """One request that is being answered.

    prompt_tokens: after truncation. key: what its tokens depend on (`_request_key`).
    finish_reason: None while it goes on.
    """

    request: m.Request
    prompt_tokens: int
    key: int
    generated_tokens: int = 0
    finish_reason: m.FinishReason | None = None
    _texts: list[str] = field(default_factory=list)

    @property
    def blocks(self) -> int:
        """KV blocks of the flash class, reserved from prefill on: the last new token is never
        cached."""
        most = self.prompt_tokens + max(1, self.request.stopping.max_new_tokens) - 1
        return -(-most // BLOCK_TOKENS)

    def append(self, text: str) -> None:
        """Take the next token; length ends a request before a stop sequence does."""
        self._texts.append(text)
        self.generated_tokens += 1
        stopping = self.request.stopping
        if self.generated_tokens >= stopping.max_new_tokens:
            self.finish_reason = m.FinishReason.LENGTH
        elif stopping.stop_sequences and "".join(self._texts).endswith(stopping.stop_sequences):
            self.finish_reason = m.FinishReason.STOP_SEQUENCE

    def generated_text(self) -> m.GeneratedText | None:
        """The whole answer; None while the request goes on."""
        if self.finish_reason is None:
            return None
        sampling = self.request.choice
        return m.GeneratedText(
            text="".join(self._texts),
            generated_tokens=self.generated_tokens,
            finish_reason=self.finish_reason,
            seed=sampling.seed if sampling.do_sample else None,
        )


def _request_key(request: m.Request) -> int:
    """What a request's tokens depend on: its prompt and, when it samples, its seed."""
    key = zlib.crc32(request.text.encode("utf-8", "surrogatepass"))
    return _mixed(key, request.choice.seed + 1) if request.choice.do_sample else key


def _next_token(
    tokenizer: WordTokenizer, request: m.Request, key: int, position: int
) -> tuple[m.Token, tuple[m.Token, ...]]:
    """The token at a position (0: the first new one) and its top_n_tokens alternatives.

    Alternatives come most likely first. Greedy takes the first; a sampled token is one of
    the three most likely. Log probabilities are negative and fall by 1 from rank to rank.
    """
    draw = _mixed(key, position)
    rank = (draw >> 32) % 3 if request.choice.do_sample else 0
    first_logprob = -_share(draw)

    def ranked(at: int) -> m.Token:
        token_id = (draw + at) % tokenizer.vocab
        return m.Token(token_id, first_logprob - at, tokenizer.word(token_id), special=False)

    top = tuple(ranked(at) for at in range(min(request.top_n_tokens, tokenizer.vocab)))
    return ranked(rank), top


def _prompt_tokens(tokenizer: WordTokenizer, request: m.Request, kept: int) -> tuple[m.Token, ...]:
    """The last `kept` tokens of a prompt; the first has no log probability (NaN)."""
    spans = tokenizer.encode(request.text)[-kept:]
    key = _request_key(request)
    return tuple(
        m.Token(
            span.id,
            -_share(_mixed(key, ~place)) if place else math.nan,
            span.text,
            special=False,
        )
        for place, span in enumerate(spans)
    )


def _mixed(key: int, position: int) -> int:
    """64 well-mixed bits of two numbers (the finalizer of splitmix64)."""
    bits = (key + (position + 1) * 0x9E3779B97F4A7C15) & _MASK
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _MASK
    return bits ^ (bits >> 31)


def _share(bits: int) -> float:
    """A number above 0 and below 1."""
    return ((bits >> 12) + 0.5) / 2**52

"""What a rank of the simulated engine holds between steps, and which token comes next.

The tokens are made up, and a pure function of (prompt, seed, position): every rank says the same,
and so does every run. A greedy request depends on its prompt only, a sampled one on its seed too.
Penalties, top_k, watermark and temperature have no effect on what is chosen; the end of
sequence token is never chosen.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, field

from tgi_bench.torch_engine.tokenizers import WordTokenizer
from tgi_bench.wire.messages import FinishReason, GeneratedText, Request, Token

BLOCK_TOKENS = 16
"""Tokens of one block of the flash class's KV pool (paged attention)."""


@dataclass(slots=True)
class Sequence:
    """One request that is being answered.

    prompt_tokens: after truncation. key: what its tokens depend on (`request_key`).
    finish_reason: None while it goes on.
    """

    request: Request
    prompt_tokens: int
    key: int
    generated_tokens: int = 0
    finish_reason: FinishReason | None = None
    _texts: list[str] = field(default_factory=list)

    @property
    def context_tokens(self) -> int:
        """Tokens that the next decode step attends to: prompt and generated ones."""
        return self.prompt_tokens + self.generated_tokens

    @property
    def blocks(self) -> int:
        """KV blocks reserved from prefill on: the last new token is never cached."""
        most = self.prompt_tokens + max(1, self.request.stopping.max_new_tokens) - 1
        return -(-most // BLOCK_TOKENS)

    def append(self, text: str) -> None:
        """Take the next token; length ends a request before a stop sequence does."""
        self._texts.append(text)
        self.generated_tokens += 1
        stopping = self.request.stopping
        if self.generated_tokens >= stopping.max_new_tokens:
            self.finish_reason = FinishReason.LENGTH
        elif stopping.stop_sequences and "".join(self._texts).endswith(stopping.stop_sequences):
            self.finish_reason = FinishReason.STOP_SEQUENCE

    def generated_text(self) -> GeneratedText | None:
        """The whole answer; None while the request goes on."""
        if self.finish_reason is None:
            return None
        sampling = self.request.choice
        return GeneratedText(
            text="".join(self._texts),
            generated_tokens=self.generated_tokens,
            finish_reason=self.finish_reason,
            seed=sampling.seed if sampling.do_sample else None,
        )


@dataclass(frozen=True, slots=True)
class HeldBatch:
    """Sequences that are decoded together, in the order of their replies. Never empty.

    padded_room: tokens set aside where its class pads (`engine.room_of_prompts`).
    """

    id: int
    sequences: tuple[Sequence, ...]
    padded_room: int

    @property
    def contexts(self) -> tuple[int, ...]:
        """Tokens that the next decode step attends to, for each sequence."""
        return tuple(sequence.context_tokens for sequence in self.sequences)

    @property
    def left(self) -> tuple[int, ...]:
        """New tokens that are still to come, for each sequence; below 0 for one that has ended
        and was not filtered out."""
        return tuple(s.request.stopping.max_new_tokens - s.generated_tokens for s in self.sequences)

    @property
    def blocks(self) -> int:
        """KV blocks of the flash class."""
        return sum(sequence.blocks for sequence in self.sequences)

    @property
    def current_tokens(self) -> int:
        """Tokens that the next decode step takes in: the newest of each sequence."""
        return len(self.sequences)

    def max_tokens(self, padded: bool) -> int:
        """Room set aside; of a flash class its blocks."""
        return self.padded_room if padded else self.blocks * BLOCK_TOKENS


_MASK = 2**64 - 1


def request_key(request: Request) -> int:
    """What a request's tokens depend on: its prompt and, when it samples, its seed."""
    key = zlib.crc32(request.text.encode("utf-8", "surrogatepass"))
    return _mixed(key, request.choice.seed + 1) if request.choice.do_sample else key


def next_token(
    tokenizer: WordTokenizer, request: Request, key: int, position: int
) -> tuple[Token, tuple[Token, ...]]:
    """The token at a position (0: the first new one) and its top_n_tokens alternatives.

    Alternatives come most likely first. Greedy takes the first; a sampled token is one of
    the three most likely. Log probabilities are negative and fall by 1 from rank to rank.
    """
    draw = _mixed(key, position)
    rank = (draw >> 32) % 3 if request.choice.do_sample else 0
    first_logprob = -_share(draw)

    def ranked(at: int) -> Token:
        token_id = (draw + at) % tokenizer.vocab
        return Token(token_id, first_logprob - at, tokenizer.word(token_id), special=False)

    top = tuple(ranked(at) for at in range(min(request.top_n_tokens, tokenizer.vocab)))
    return ranked(rank), top


def prompt_tokens(tokenizer: WordTokenizer, request: Request, kept: int) -> tuple[Token, ...]:
    """The last `kept` tokens of a prompt; the first has no log probability (NaN)."""
    spans = tokenizer.encode(request.text)[-kept:]
    key = request_key(request)
    return tuple(
        Token(
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

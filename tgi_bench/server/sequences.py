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

from tgi_bench.server.engine import BLOCK_TOKENS
from tgi_bench.torch_engine.tokenizers import WordTokenizer
from tgi_bench.wire.messages import FinishReason, GeneratedText, Request, Token

_MASK = 2**64 - 1


@dataclass(slots=True)
class MadeUpAnswer:
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

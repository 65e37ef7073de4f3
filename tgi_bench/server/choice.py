"""Which token the simulated engine says comes next.

Made up, and a pure function of (prompt, seed, position): every rank says the same, and so
does every run. A greedy request depends on its prompt only, a sampled one on its seed too.
Penalties, top_k, watermark and temperature have no effect on what is chosen; the end of
sequence token is never chosen.
"""

from __future__ import annotations

import math
import zlib

from tgi_bench.server.behaviour import Behaviour
from tgi_bench.torch_engine.tokenizers import WordTokenizer
from tgi_bench.wire.messages import Request, Token, TokenChoice

_MASK = 2**64 - 1


def check_choice(choice: TokenChoice, behaviour: Behaviour) -> None:
    """ValueError for parameters that a shard refuses, in the words of its library.

    Zeros are refused, and proto3's zeros are what a client sends that sets nothing.
    """
    temperature = choice.temperature
    if not temperature > 0 and not behaviour.explains_temperature:
        raise ValueError(f"`temperature` has to be a strictly positive float, but is {temperature}")
    if not temperature > 0:
        hint = (
            " If you're looking for greedy decoding strategies, set `do_sample=False`."
            if temperature == 0
            else ""
        )
        raise ValueError(
            f"`temperature` (={temperature}) has to be a strictly positive float, otherwise "
            f"your next token scores will be invalid.{hint}"
        )
    for name, share in (("top_p", choice.top_p), ("typical_p", choice.typical_p)):
        if not 0 < share <= 1:
            raise ValueError(f"`{name}` has to be a float > 0 and < 1, but is {share}")
    if not choice.repetition_penalty > 0:
        raise ValueError(
            f"`penalty` has to be a strictly positive float, but is {choice.repetition_penalty}"
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

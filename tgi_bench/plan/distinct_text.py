"""Texts of an exact number of words, as many as are wanted, no two alike in their first words.

A text is cut into chunks. Each begins with HEAD_WORDS words that encode a number which no other
chunk of a stream has soon, and goes on with words of a pool that all texts share: so texts are
quick to make, and two of them differ early even where a server keeps only their last tokens.
"""

from __future__ import annotations

from tgi_bench.plan.draws import below, sequence
from tgi_bench.plan.prompts import WORDS, head_words

HEAD_WORDS = 4
_CODES: int = len(WORDS) ** HEAD_WORDS
_CHUNK_WORDS = 32
_POOL_CHUNKS = 512
_CHUNK_STRIDE = 2_654_435_761
"""Prime: a text's chunks have numbers far from those of the texts before and after it."""
_POOL_STRIDE = 197
"""Prime to _POOL_CHUNKS: neighbours begin at different places of the pool."""


class DistinctTexts:
    """Texts by number, of one stream; another stream has others."""

    def __init__(self, seed: int | str, stream: str) -> None:
        """seed: as draws.text_seed gives it."""
        draw = sequence("texts", seed, stream)
        self._first = below(draw, _CODES)
        body = _CHUNK_WORDS - HEAD_WORDS
        self._pool = [
            tuple(WORDS[below(draw, len(WORDS))] for _ in range(body)) for _ in range(_POOL_CHUNKS)
        ]
        self._joined = [" ".join(words) for words in self._pool]

    def text(self, number: int, words: int) -> str:
        """`words` words, separated by one space; "" for 0.

        Of one number a shorter text is the beginning of a longer one. Texts of two numbers that
        are less than _CODES apart differ in their first HEAD_WORDS words, if they have them;
        neighbours differ in the first.
        """
        chunks, rest = divmod(words, _CHUNK_WORDS)
        parts: list[str] = []
        code, place = self._first + number, number * _POOL_STRIDE
        for _ in range(chunks):
            parts += head_words(code, HEAD_WORDS)
            parts.append(self._joined[place % _POOL_CHUNKS])
            code, place = code + _CHUNK_STRIDE, place + 1
        if rest:
            parts += head_words(code, HEAD_WORDS)[:rest]
            parts += self._pool[place % _POOL_CHUNKS][: max(0, rest - HEAD_WORDS)]
        return " ".join(parts)

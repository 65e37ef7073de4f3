"""A tokenizer that is no model's: of the simulated engine, and of random weights.

A token is a word with the white space before it, or one punctuation mark with the white
space before it; white space at the end of a text is a token. So the texts of a text's tokens
joined are the text, and its words are as many as its tokens. A model's own tokenizer gives
other counts: a client that needs n tokens here sends n words.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tgi_bench.torch_engine.text_tokenizer import TokenSpan

_TOKEN = re.compile(r"\s*\w+|\s*[^\w\s]|\s+")
_CONSONANTS = "bdfghjklmnprstvz"
_VOWELS = "aeiou"
_SYLLABLES = tuple(c + v for c in _CONSONANTS for v in _VOWELS)
_SYLLABLE_VALUES = {syllable: value for value, syllable in enumerate(_SYLLABLES)}


@dataclass(frozen=True, slots=True)
class WordTokenizer:
    """Texts to tokens and token ids to texts.

    vocab: ids are 0 .. vocab - 1. Two texts may share an id; no two ids share a word.
    """

    vocab: int

    @property
    def special_ids(self) -> frozenset[int]:
        """None: every token stands for a word."""
        return frozenset()

    @property
    def end_ids(self) -> frozenset[int]:
        """None: an answer ends at its length."""
        return frozenset()

    def encode(self, text: str) -> tuple[TokenSpan, ...]:
        """The tokens of a text, in order; the empty text has none."""
        return tuple(self._spans(text))

    def count(self, text: str) -> int:
        """len(encode(text)), without making the tokens."""
        if text.replace(" ", "").isalnum():
            # Words and single spaces, the form that generated prompts have: a split counts them.
            return len(text.split()) + text.endswith(" ")
        return sum(1 for _ in _TOKEN.finditer(text))

    def ids(self, text: str, limit: int | None = None, special: bool = True) -> tuple[int, ...]:
        """A prompt's token ids, the last `limit` of them; `special` changes nothing here."""
        found = tuple(self._id(match.group()) for match in _TOKEN.finditer(text))
        return found if limit is None else found[-limit:]

    def text(self, ids: Sequence[int], skip_special: bool = False) -> str:
        """The words of token ids, joined; none is special."""
        return "".join(self.word(token_id) for token_id in ids)

    def word(self, token_id: int) -> str:
        """The text of a generated token: a space and syllables that spell the id.

        `encode` of the word gives the id back.
        """
        syllables = []
        value = token_id
        while True:
            value, place = divmod(value, len(_SYLLABLES))
            syllables.append(_SYLLABLES[place])
            if not value:
                return " " + "".join(reversed(syllables))

    def _spans(self, text: str) -> Iterator[TokenSpan]:
        for match in _TOKEN.finditer(text):
            token = match.group()
            yield TokenSpan(self._id(token), token, match.start(), match.end())

    def _id(self, token: str) -> int:
        spelt = _spelt_id(token)
        if spelt is not None and spelt < self.vocab and self.word(spelt) == token:
            return spelt
        # hash() differs between processes, and all ranks must agree.
        return zlib.crc32(token.encode("utf-8", "surrogatepass")) % self.vocab


def _spelt_id(token: str) -> int | None:
    """The id that a generated word spells; None for every other text."""
    word = token.removeprefix(" ")
    if not word or len(word) % 2:
        return None
    value = 0
    for at in range(0, len(word), 2):
        place = _SYLLABLE_VALUES.get(word[at : at + 2])
        if place is None:
            return None
        value = value * len(_SYLLABLES) + place
    return value

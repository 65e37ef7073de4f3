"""Tokenizers: of no model and of a model, and a sequence's text as it grows.

Imports no torch, and transformers only to read a model's own.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tgi_bench.errors import InputError

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerFast


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """One token of a text. start, stop: its place, in characters; text: what stands there."""

    id: int
    text: str
    start: int
    stop: int


class TextTokenizer(Protocol):
    """Texts to tokens and back. Special tokens are those that a model adds to every prompt."""

    @property
    def vocab(self) -> int:
        """Token ids are 0 .. vocab - 1."""

    @property
    def special_ids(self) -> frozenset[int]:
        """Tokens that stand for no text."""

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end an answer; empty where none does."""

    def encode(self, text: str) -> tuple[TokenSpan, ...]:
        """The tokens of a text, with special ones."""

    def count(self, text: str) -> int:
        """len(encode(text))."""

    def ids(self, text: str, limit: int | None = None, special: bool = True) -> tuple[int, ...]:
        """A prompt's token ids; beyond `limit` tokens the first ones are cut off."""

    def text(self, ids: Sequence[int], skip_special: bool = False) -> str:
        """The text of tokens."""


_TOKEN = re.compile(r"\s*\w+|\s*[^\w\s]|\s+")
_CONSONANTS = "bdfghjklmnprstvz"
_VOWELS = "aeiou"
_SYLLABLES = tuple(c + v for c in _CONSONANTS for v in _VOWELS)
_SYLLABLE_VALUES = {syllable: value for value, syllable in enumerate(_SYLLABLES)}


@dataclass(frozen=True, slots=True)
class WordTokenizer:
    """Texts to tokens and token ids to texts, as no model has them: of the simulated engine, and of
    random weights.

    A token is a word with the white space before it, or one punctuation mark with the white
    space before it; white space at the end of a text is a token. So the texts of a text's tokens
    joined are the text, and its words are as many as its tokens. A model's own tokenizer gives
    other counts: a client that needs n tokens here sends n words.
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


_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "vocab.json",
    "spiece.model",
)


class FileTokenizer:
    """A fast tokenizer of transformers. Slow ones are converted when they are read."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, vocab: int) -> None:
        self._vocab = vocab
        # The library below transformers': its wrapper costs more than a small model's step.
        self._backend = tokenizer.backend_tokenizer
        self._backend.no_padding()
        self._backend.no_truncation()
        self._special = frozenset(int(token_id) for token_id in tokenizer.all_special_ids)
        end = tokenizer.eos_token_id
        self._end = frozenset() if end is None else frozenset({int(end)})

    @property
    def vocab(self) -> int:
        """Rows of the model's embedding."""
        return self._vocab

    @property
    def special_ids(self) -> frozenset[int]:
        """Tokens that stand for no text."""
        return self._special

    @property
    def end_ids(self) -> frozenset[int]:
        """The tokenizer's end of sequence; a model may name more."""
        return self._end

    def encode(self, text: str) -> tuple[TokenSpan, ...]:
        """The tokens of a text, with special ones, which have no place in it."""
        encoding = self._backend.encode(text, add_special_tokens=True)
        return tuple(
            TokenSpan(int(token_id), text[start:stop] if stop > start else token, start, stop)
            for token_id, token, (start, stop) in zip(
                encoding.ids, encoding.tokens, encoding.offsets, strict=True
            )
        )

    def count(self, text: str) -> int:
        """len(encode(text))."""
        return len(self._backend.encode(text, add_special_tokens=True).ids)

    def ids(self, text: str, limit: int | None = None, special: bool = True) -> tuple[int, ...]:
        """A prompt's token ids; what is cut off is the text's head, never a special token."""
        if limit is None:
            return tuple(self._backend.encode(text, add_special_tokens=special).ids)
        self._backend.enable_truncation(limit, direction="left")
        try:
            return tuple(self._backend.encode(text, add_special_tokens=special).ids)
        finally:
            self._backend.no_truncation()

    def text(self, ids: Sequence[int], skip_special: bool = False) -> str:
        """The text of tokens."""
        decoded: str = self._backend.decode(list(ids), skip_special_tokens=skip_special)
        return decoded


def tokenizer_of(model: str, config: PretrainedConfig, random: bool) -> TextTokenizer:
    """The model's tokenizer; with random weights and none at hand the WordTokenizer.

    Raises InputError where a model with real weights has none that can be read.
    """
    vocab = int(config.get_text_config().vocab_size)
    if random and not _has_tokenizer(model):
        return WordTokenizer(vocab)
    if Path(model).is_dir() and not _has_tokenizer(model):
        raise InputError(f"no tokenizer of {model} can be read: its folder has no tokenizer.json")
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    try:
        tokenizer = AutoTokenizer.from_pretrained(model, use_fast=True)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        # The last two are what transformers raises for files that are not there.
        raise InputError(f"no tokenizer of {model} can be read: {_first_line(error)}") from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise InputError(f"{model} has no fast tokenizer: a tokenizer.json is needed")
    highest = max(tokenizer.get_vocab().values(), default=-1)
    if highest >= vocab:
        raise InputError(
            f"the tokenizer of {model} has ids up to {highest}, but the model's vocab_size is "
            f"{vocab}: they do not belong together"
        )
    return FileTokenizer(tokenizer, vocab)


def _has_tokenizer(model: str) -> bool:
    """Whether a folder holds one: a hub's is never fetched for random weights."""
    folder = Path(model)
    return folder.is_dir() and any((folder / name).is_file() for name in _FILES)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


_CONTEXT_TOKENS = 5
"""Tokens before the first new one that its text may depend on, as a leading space does."""

_HALF = "�"


class IncrementalText:
    """A sequence's text as it grows: a token may be half a character, or change its neighbour.

    Gives the text that each new token adds; "" while a character is not complete.
    """

    def __init__(self, tokenizer: TextTokenizer, prompt: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._tail = list(prompt[-_CONTEXT_TOKENS:])
        self._read = len(self._tail)

    def added(self, token: int) -> str:
        """The text that this token adds to what was given before."""
        self._tail.append(token)
        known = self._tokenizer.text(self._tail[: self._read])
        whole = self._tokenizer.text(self._tail)
        if len(whole) <= len(known) or whole.endswith(_HALF):
            return ""
        # What was just read becomes the context of what comes.
        self._tail = self._tail[self._read :]
        self._read = len(self._tail)
        return whole[len(known) :]

    @staticmethod
    def answer(tokenizer: TextTokenizer, prompt: Sequence[int], new: Sequence[int]) -> str:
        """The whole answer, without special tokens."""
        context = list(prompt[-_CONTEXT_TOKENS:])
        known = tokenizer.text(context, skip_special=True)
        return tokenizer.text([*context, *new], skip_special=True)[len(known) :]

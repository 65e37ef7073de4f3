"""A model's own tokenizer, as transformers reads it from a folder or the hub."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tgi_bench.errors import InputError
from tgi_bench.torch_engine.text_tokenizer import TextTokenizer, TokenSpan
from tgi_bench.torch_engine.word_tokenizer import WordTokenizer

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerFast

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

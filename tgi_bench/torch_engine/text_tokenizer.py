"""What the engine and those who drive it need of a tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


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

"""A sequence's text as it grows: a token may be half a character, or change its neighbour."""

from __future__ import annotations

from collections.abc import Sequence

from tgi_bench.torch_engine.text_tokenizer import TextTokenizer

_CONTEXT_TOKENS = 5
"""Tokens before the first new one that its text may depend on, as a leading space does."""

_HALF = "�"


class IncrementalText:
    """Gives the text that each new token adds; "" while a character is not complete."""

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

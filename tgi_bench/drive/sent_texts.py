"""Which texts were sent before, or begin as one that was: a cache may have answered them."""

from __future__ import annotations

from dataclasses import replace

from tgi_bench.dialects.dialect import Ask
from tgi_bench.load_observation import PromptTexts

LEAST_HEAD = 128
"""Characters, some 32 tokens: two blocks of a cache. Longer heads are looked for at its doubles."""
_LEAST_WORDS = 4
"""A text that this client makes is new from so many words on."""
_MOST_KEPT = 1 << 18
"""Of texts, and of heads: 20 MB each. Later ones are compared with these, and not kept."""


class SentTexts:
    """Texts that one server was sent, load after load; hashes of them are kept."""

    def __init__(self) -> None:
        self._texts: set[int] = set()
        self._heads: set[int] = set()
        self._counted = PromptTexts()

    def begin(self) -> None:
        """Another stage: it is counted by itself, and compared with all before."""
        self._counted = PromptTexts()

    @property
    def counted(self) -> PromptTexts:
        """Of this stage so far."""
        return self._counted

    def add(self, ask: Ask, made: bool) -> None:
        """One that begins a conversation. made: its text is this client's, not a file's."""
        text = ask.prompt or "\n".join(f"{role}: {said}" for role, said in ask.messages)
        was, size = self._counted, len(text)
        repeated = _kept(self._texts, hash(text))
        head = self._shared_head(text)
        if made and len(text.split(None, _LEAST_WORDS)) < _LEAST_WORDS:
            repeated = False
        begins_alike = bool(head) and not repeated
        self._counted = replace(
            was,
            sent=was.sent + 1,
            repeated=was.repeated + repeated,
            shared_heads=was.shared_heads + begins_alike,
            characters=was.characters + size,
            repeated_characters=was.repeated_characters + size * repeated,
            shared_characters=was.shared_characters + head * begins_alike,
        )

    def _shared_head(self, text: str) -> int:
        """Characters that it has in common with one before: at least so many."""
        shared, size = 0, LEAST_HEAD
        while size < len(text):
            if _kept(self._heads, hash(text[:size])):
                shared = size
            size *= 2
        return shared


def _kept(seen: set[int], key: int) -> bool:
    """Whether it was there; it is from now on, as far as there is room."""
    if key in seen:
        return True
    if len(seen) < _MOST_KEPT:
        seen.add(key)
    return False

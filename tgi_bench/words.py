"""The nearest valid word to a misspelt one, and a value as a YAML file would write it."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def suggestion(word: str, candidates: Iterable[str]) -> str:
    """`; did you mean `x`?`, or "" where no candidate is near.

    Near is difflib's ratio of at least 0.6; letter case and `-` for `_` are ignored.
    """
    by_folded = {_folded(candidate): candidate for candidate in candidates}
    found = get_close_matches(_folded(word), by_folded, n=1, cutoff=0.6)
    return f"; did you mean `{by_folded[found[0]]}`?" if found else ""


def shown(value: object) -> str:
    """A scalar as YAML writes it: null, true, 8, 0.5, gptq; a list in brackets."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case list() | tuple():
            return f"[{', '.join(shown(item) for item in value)}]"
        case dict():
            return "a mapping"
        case _:
            return _shortened(str(value))


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."


def _folded(word: str) -> str:
    return word.lower().replace("-", "_")

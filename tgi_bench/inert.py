"""Text of somebody else's, a server's above all, so that it does nothing where it is shown.

What is not printable (control characters and with them escape sequences, marks that turn the
direction of writing, NUL, surrogates) is written as Python writes it: "\\x1b", "\\u202e".
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from operator import is_
from typing import Any, TypeVar, cast

T = TypeVar("T")
_MOST_CHARACTERS = 200


def one_line(text: str) -> str:
    """The text with line ends and control characters escaped: a name may hold them."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable(text: str) -> str:
    """The same of a text of several lines, whose ends stay."""
    if text.isprintable():
        return text
    return "\n".join(map(one_line, text.split("\n")))


def on_one_line(text: str) -> str:
    """What may have been several lines, with a blank for each run of white space."""
    return text if text.isprintable() else one_line(" ".join(text.split()))


def shortened(text: str, most: int = _MOST_CHARACTERS) -> str:
    """On one line, with control characters escaped, at most so many characters."""
    line = one_line(" ".join(text[: 4 * most].split()))
    return line if len(line) <= most else f"{line[: most - 3]}..."


def all_on_one_line(value: T) -> T:
    """A value of tuples and dataclasses, every text of it as `on_one_line` has it."""
    return cast(T, _on_one_line(value))


def _on_one_line(value: Any) -> Any:
    if type(value) is str:  # an enum's is one of its own
        return on_one_line(value)
    if type(value) is tuple:
        items = tuple(map(_on_one_line, value))
        return value if all(map(is_, items, value)) else items
    if is_dataclass(value) and not isinstance(value, type):
        inner = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        new = {name: _on_one_line(item) for name, item in inner.items()}
        return replace(value, **new) if any(new[n] is not inner[n] for n in new) else value
    return value

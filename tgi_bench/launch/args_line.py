"""The `Args {...}` of a launcher's log: Rust's Debug form, on one line or on many."""

from __future__ import annotations

import re

_START = re.compile(r"\bArgs \{")
_NAME = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*):\s*")
_OPENING, _CLOSING = "([{", ")]}"
_MOST_CHARACTERS = 100_000


def parse_args(text: str) -> tuple[tuple[str, str], ...] | None:
    """Name and printed value of each argument of the first `Args {...}` in a log.

    A value that was printed on many lines is given as the one-line form prints it:
    "Some(2)", "[1, 2]". None where there is no such line, or it does not end.
    """
    start = _START.search(text)
    if start is None:
        return None
    body = text[start.end() : start.end() + _MOST_CHARACTERS]
    fields = _fields(body)
    if fields is None:
        return None
    arguments = []
    for field in fields:
        name = _NAME.match(field)
        if name is None:
            return None
        arguments.append((name[1], _one_line(field[name.end() :])))
    return tuple(arguments)


def _fields(body: str) -> list[str] | None:
    """What stands between the commas of the outermost level, up to the closing brace."""
    fields: list[str] = []
    depth, begin, position = 0, 0, 0
    while position < len(body):
        character = body[position]
        if character == '"':
            position = _end_of_string(body, position)
            continue
        if character == "}" and depth == 0:
            last = body[begin:position]
            return [*fields, last] if last.strip() else fields
        if character in _OPENING:
            depth += 1
        elif character in _CLOSING:
            depth -= 1
        elif character == "," and depth == 0:
            fields.append(body[begin:position])
            begin = position + 1
        position += 1
    return None


def _end_of_string(text: str, quote: int) -> int:
    """The position after the string that opens at `quote`; the text's end where it is open."""
    position = quote + 1
    while position < len(text) and text[position] != '"':
        position += 2 if text[position] == "\\" else 1
    return position + 1


def _one_line(value: str) -> str:
    """Joins the lines of a value: "Some(\\n        2,\\n    )" is "Some(2)"."""
    pieces: list[str] = []
    position = 0
    while position < len(value):
        if value[position] == '"':
            end = _end_of_string(value, position)
            pieces.append(value[position:end])
        else:
            quote = value.find('"', position)
            end = len(value) if quote < 0 else quote
            pieces.append(_without_line_ends(value[position:end]))
        position = end
    return "".join(pieces).strip()


def _without_line_ends(code: str) -> str:
    code = re.sub(r",\s*\n\s*(?=[)\]}])", "", code)
    code = re.sub(r"(?<=[(\[])\s*\n\s*", "", code)
    return re.sub(r"\s*\n\s*", " ", code)

"""The `Args {...}` log line: how the launcher prints what it was told (Rust's Debug form)."""

from __future__ import annotations

import json
import re

_SOME = re.compile(r"Some\((.*)\)", re.DOTALL)


def line(arguments: tuple[tuple[str, str], ...], pretty: bool) -> str:
    """`Args { name: value, ... }`, or on many lines where `pretty`.

    arguments: names, and values as Debug prints them on one line: `Some(2)`, `"text"`.
    """
    if not pretty:
        return f"Args {{ {', '.join(f'{name}: {text}' for name, text in arguments)} }}"
    rows = "".join(f"    {name}: {_pretty(text)},\n" for name, text in arguments)
    return f"Args {{\n{rows}}}"


def quoted(text: str) -> str:
    """Text as Debug prints it, in quotes."""
    return json.dumps(text, ensure_ascii=False)


def _pretty(text: str) -> str:
    """A value of the pretty form: what `Some` holds stands on a line of its own."""
    held = _SOME.fullmatch(text)
    return text if held is None else f"Some(\n        {held[1]},\n    )"

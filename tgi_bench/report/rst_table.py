"""The one table model as a grid table of reStructuredText."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tgi_bench.inert import one_line
from tgi_bench.report.table import Table

_MARKS = re.compile(r"[\\*_`|]")
_BEGINNING = re.compile(
    r"(?:\.\.|[-+\u2022>:]|\(?(?:#|\w{1,9})[.)]|>>>)(?:\s|$)|:[^:]+:(?:\s|$)", re.ASCII
)
"""Of a line that is more than text: a list, an enumeration, a directive, a session, a field."""


def heading(text: str, mark: str) -> str:
    """A title over its line of marks; ends in \\n."""
    plain = escaped(text)
    return f"{plain}\n{mark * len(plain)}\n"


def escaped(text: str) -> str:
    """Plain text: some marks format it, others begin a list, a comment or a directive."""
    plain = _MARKS.sub(r"\\\g<0>", one_line(" ".join(text.split())))
    if plain.endswith("::"):  # what follows would be a block as it is
        plain = f"{plain[:-1]}\\:"
    return rf"\{plain}" if _BEGINNING.match(plain) else plain


def grid(table: Table) -> str:
    """Cells are padded to the width of their column; ends in \\n."""
    rows = [tuple(map(escaped, row)) for row in (table.headers, *table.rows)]
    widths = [max(1, *map(len, column)) for column in zip(*rows, strict=True)]
    lines = [_rule(widths, "-"), _line(rows[0], widths, table.right), _rule(widths, "=")]
    for row in rows[1:]:
        lines += [_line(row, widths, table.right), _rule(widths, "-")]
    return "".join(f"{line}\n" for line in lines)


def _rule(widths: Sequence[int], mark: str) -> str:
    return "+" + "+".join(mark * (width + 2) for width in widths) + "+"


def _line(row: Sequence[str], widths: Sequence[int], right: frozenset[int]) -> str:
    padded = (
        cell.rjust(width) if i in right else cell.ljust(width)
        for i, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return f"| {' | '.join(padded)} |"

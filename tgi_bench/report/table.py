"""One table model, written as aligned Markdown or as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from tgi_bench.inert import on_one_line
from tgi_bench.report.markdown_page import cell as markdown_cell

_OF_FORMULAS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What a formula begins with; the last four are the full-width forms of the others."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under headers; every row is as long as the headers.

    right: indexes of the columns whose cells are aligned to the right.
    """

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.headers):
                raise ValueError(f"a row of {len(row)} cells under {len(self.headers)} headers")


def markdown(table: Table) -> str:
    """A GitHub-flavoured table whose columns are aligned in a fixed-width font; ends in \\n."""
    rows = [tuple(map(markdown_cell, row)) for row in (table.headers, *table.rows)]
    widths = [max(3, *map(len, column)) for column in zip(*rows, strict=True)]
    ruler = tuple(
        "-" * (width + 1) + (":" if i in table.right else "-") for i, width in enumerate(widths)
    )
    lines = [_line(row, widths, table.right) for row in rows]
    lines.insert(1, f"|{'|'.join(ruler)}|")
    return "".join(f"{line}\n" for line in lines)


def csv_text(table: Table) -> str:
    """RFC 4180 with \\n line ends; the header first. No cell is a formula to a spreadsheet."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows(tuple(map(_csv_cell, row)) for row in (table.headers, *table.rows))
    return out.getvalue()


def _line(cells: Sequence[str], widths: Sequence[int], right: frozenset[int]) -> str:
    padded = (
        cell.rjust(width) if i in right else cell.ljust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return f"| {' | '.join(padded)} |"


def _csv_cell(text: str) -> str:
    """With a ' in front of what a spreadsheet would compute; a number is a number."""
    plain = on_one_line(text)
    if not plain.lstrip().startswith(_OF_FORMULAS) or _is_number(plain):
        return plain
    return f"'{plain}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

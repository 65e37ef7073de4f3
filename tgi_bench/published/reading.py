"""Markdown and reStructuredText as tables and the other lines between them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from tgi_bench.errors import TableError
from tgi_bench.report.estimated_section import OUR_ESTIMATES

_RULER = re.compile(r"\|(\s*:?-+:?\s*\|)+")
_UNDERLINE = re.compile(r"(=|-){3,}")


@dataclass(frozen=True, slots=True)
class GridRow:
    """One row's cells as text; line is 1-based."""

    cells: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: its header rows (one, or two where columns are grouped) and its body.

    Cells of a group span its columns in the first header row, which is then shorter.
    """

    headers: tuple[GridRow, ...]
    rows: tuple[GridRow, ...]

    @property
    def line(self) -> int:
        """Where the table begins."""
        return self.headers[0].line


@dataclass(frozen=True, slots=True)
class Sentence:
    """A line outside tables, stripped; headings keep their "#"."""

    text: str
    line: int


def items(text: str) -> Iterator[Grid | Sentence]:
    """What a document holds, in order; fenced code, empty lines and underlines are left out.

    So is the section of our own estimates, up to the next heading of its level (Markdown) or the
    end (reStructuredText): what is imported are the figures that they were laid beside.

    Raises TableError where rows of a table differ in length.
    """
    lines = [line.strip() for line in text.splitlines()]
    number, fenced, ours = 0, False, False
    while number < len(lines):
        line = lines[number]
        number += 1
        if line.startswith("# ") and not fenced:
            ours = False
        ours = ours or line.removeprefix("# ").startswith(OUR_ESTIMATES)
        if line.startswith("```"):
            fenced = not fenced
        elif ours or fenced or not line or _UNDERLINE.fullmatch(line):
            continue
        elif line.startswith(("|", "+-")):
            start = number
            while number < len(lines) and lines[number].startswith(("|", "+")):
                number += 1
            numbered = list(enumerate(lines[start - 1 : number], start))
            yield _rst(numbered) if line.startswith("+") else _markdown(numbered)
        else:
            yield Sentence(line, number)


def refused(line: int, what: str) -> TableError:
    """What is wrong in that line."""
    return TableError(f"line {line}: {what}")


def _markdown(lines: Sequence[tuple[int, str]]) -> Grid:
    start = lines[0][0]
    if len(lines) < 3 or not _RULER.fullmatch(lines[1][1]):
        raise refused(start, "expected a table: a header, a line of dashes and at least one row")
    header, *rows = [_row(line, text) for line, text in lines if line != start + 1]
    return Grid((header,), _even(rows, len(header.cells)))


def _rst(lines: Sequence[tuple[int, str]]) -> Grid:
    """A grid table: the line of "=" parts the header rows from the body."""
    above: list[GridRow] = []
    below: list[GridRow] = []
    parted = False
    for line, text in lines:
        if text.startswith("+="):
            parted, above = True, [*above, *below]
            # A second line of "=" parts the group headers from those of their columns.
            below = []
        elif text.startswith("|") and "+-" not in text:
            cells = tuple(re.sub(r"\\(.)", r"\1", cell) for cell in _row(line, text).cells)
            (below if parted else above).append(GridRow(cells, line))
    if not below or not above:
        raise refused(lines[0][0], "expected a grid table: a header, a line of `=` and rows")
    if len(above) == 1 and not any(below[0].cells[:2]):
        above.append(below.pop(0))
    return Grid(tuple(above), _even(below, len(above[-1].cells)))


def _even(rows: Sequence[GridRow], width: int) -> tuple[GridRow, ...]:
    for row in rows:
        if len(row.cells) != width:
            raise refused(row.line, f"expected {width} cells, found {len(row.cells)}")
    return tuple(rows)


def _row(line: int, text: str) -> GridRow:
    """The cells of a line; a figure of a line that was cut off would be another figure."""
    if not re.fullmatch(r"\|.*(?<!\\)\|", text):
        raise refused(line, "expected a row that ends with `|`")
    cells = re.split(r"(?<!\\)\|", text[1:-1])
    return GridRow(tuple(" ".join(cell.split()).replace("\\|", "|") for cell in cells), line)


def refuse_likeness(found: Grid, headers: Collection[str]) -> None:
    """Raises TableError where a table that is not of a layout has some of its headers."""
    for row in found.headers:
        for text in row.cells:
            if text in headers:
                raise refused(
                    found.line, f"a table with `{text}` but without the columns beside it"
                )

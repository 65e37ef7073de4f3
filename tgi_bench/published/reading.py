"""Published tables as text: grids in Markdown and reStructuredText, and the lines between them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from tgi_bench.analysis.run import LAYOUT, TableLayout
from tgi_bench.errors import TableError
from tgi_bench.observation import Outcome, PublishedEntry, TrialEnd
from tgi_bench.published.facts import Facts, known

_RULER = re.compile(r"\|(\s*:?-+:?\s*\|)+")
_UNDERLINE = re.compile(r"(=|-){3,}")
_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,9})?", re.ASCII)

OK = TrialEnd(Outcome.OK, "")
NO_FIGURE = TrialEnd(
    Outcome.OUT_OF_MEMORY, "no figure in the published table; read as out of memory (inferred)"
)


@dataclass(frozen=True, slots=True)
class GridRow:
    """One row's cells as text; line is 1-based."""

    cells: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True)
class PrintedGrid:
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


Items = Sequence[PrintedGrid | Sentence]
"""What a document holds, in order."""


@dataclass(frozen=True, slots=True)
class ImportedTable:
    """What was read, with what is known of how it came to be.

    facts: name and value, for the run's environment.
    """

    layout: TableLayout
    entries: tuple[PublishedEntry, ...]
    facts: Facts


def imported(
    layout: TableLayout, entries: Sequence[PublishedEntry], **found: object
) -> ImportedTable:
    """The table with the facts of its layout; found: see `Known.facts`."""
    facts = ((LAYOUT, layout.value), *known(layout.value).facts(**found))
    return ImportedTable(layout, tuple(entries), facts)


def items(text: str) -> Iterator[PrintedGrid | Sentence]:
    """What a document holds, in order; fenced code, empty lines and underlines are left out.

    Raises TableError where rows of a table differ in length.
    """
    lines = [line.strip() for line in text.splitlines()]
    number, fenced = 0, False
    while number < len(lines):
        line = lines[number]
        number += 1
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or not line or _UNDERLINE.fullmatch(line):
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
    return TableError(what, line)


def figure(row: GridRow, text: str, expected: str = "a figure above 0") -> float:
    """A cell's number; TableError where it is none, or 0."""
    if _NUMBER.fullmatch(text) is None or float(text) <= 0:
        raise refused(row.line, f"expected {expected}, found `{text}`")
    return float(text)


def experiment_name(file_name: str) -> str:
    """The file's name without its end, fit for a folder's name."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", PurePath(file_name).stem)[:100].lstrip(".")
    return name or "imported"


def _markdown(lines: Sequence[tuple[int, str]]) -> PrintedGrid:
    start = lines[0][0]
    if len(lines) < 3 or not _RULER.fullmatch(lines[1][1]):
        raise refused(start, "expected a table: a header, a line of dashes and at least one row")
    header, *rows = [_row(line, text) for line, text in lines if line != start + 1]
    return PrintedGrid((header,), _even(rows, len(header.cells)))


def _rst(lines: Sequence[tuple[int, str]]) -> PrintedGrid:
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
    return PrintedGrid(tuple(above), _even(below, len(above[-1].cells)))


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


def refuse_likeness(found: PrintedGrid, headers: Collection[str]) -> None:
    """Raises TableError where a table that is not of a layout has some of its headers."""
    for row in found.headers:
        for text in row.cells:
            if text in headers:
                raise refused(
                    found.line, f"a table with `{text}` but without the columns beside it"
                )

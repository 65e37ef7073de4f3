"""The standard output as rich sees it, and tables as wide as it.

What has no room in a row stands in a table below it. No cell is cropped: a figure without its last
digits is another figure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType
from rich.segment import Segment
from rich.table import Table as RichTable
from rich.text import Text

from tgi_bench.inert import one_line, printable
from tgi_bench.report.table import Table

_WIDTH_OF_A_FILE = 400
GAP = 2
"""Blanks between two columns."""


class InertConsole(Console):
    """Text that is printed is text: no markup, no emoji names, no escape sequences of its own.

    Colours and the moves of a live display are rich's and stay.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"highlight": False, "markup": False, "emoji": False, **options})

    def render_str(self, text: str, **options: Any) -> Text:
        """Before it is laid out, so that its columns are as wide as they look."""
        return super().render_str(printable(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """And after it, whatever made the text."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)


def standard_output() -> Console:
    """As wide as the terminal; wide enough for every table where it is a file or a pipe."""
    console = InertConsole()
    return console if console.is_terminal else InertConsole(width=_WIDTH_OF_A_FILE)


def say(console: Console, line: str) -> None:
    """A line that a terminal breaks between words; a file or a pipe keeps it whole."""
    console.print(line, soft_wrap=not console.is_terminal)


def print_folded(console: Console, table: Table, keys: int, named: bool = False) -> None:
    """Print it whole, or in parts that each begin with its first `keys` columns.

    Key columns that take more than half of the width stand above their rows instead, all but the
    last of them; the first one always does where it names the rows, if the table is too wide.
    """
    headers, rows = table.headers, table.rows
    widths = _widths(table, rows)
    if _total(widths) <= console.width:
        console.print(_shown(table, rows, range(len(headers))))
        return
    above = int(named)
    while above < keys - 1 and _total(widths[above:keys]) > console.width // 2:
        above += 1
    for shared, group in groupby(rows, key=lambda row: row[:above]):
        if above:
            words = [f"{name} {cell}" for name, cell in zip(headers, shared, strict=False)]
            if named:
                words[0] = shared[0]
            console.print(Text(one_line(", ".join(words)), style="bold", overflow="fold"))
        own = tuple(group)
        for part in _parts(_widths(table, own), range(above, keys), console.width):
            console.print(_shown(table, own, part))


def _widths(table: Table, rows: Sequence[tuple[str, ...]]) -> list[int]:
    return [max(map(cell_len, column)) for column in zip(table.headers, *rows, strict=True)]


def _parts(widths: Sequence[int], keys: range, room: int) -> list[list[int]]:
    """Columns of each part: as many as have room beside the keys, and one at least."""
    parts: list[list[int]] = []
    for column in range(keys.stop, len(widths)):
        if not parts or _total([widths[i] for i in (*parts[-1], column)]) > room:
            parts.append([*keys])
        parts[-1].append(column)
    return parts or [[*keys]]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _shown(table: Table, rows: Sequence[tuple[str, ...]], columns: Sequence[int]) -> RichTable:
    shown = RichTable(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    for i in columns:
        justify: JustifyMethod = "right" if i in table.right else "left"
        # Of a cell that is wider than the whole console the rest goes on in the next line.
        shown.add_column(Text(table.headers[i]), justify=justify, overflow="fold")
    for row in rows:
        shown.add_row(*(Text(one_line(row[i])) for i in columns))
    return shown

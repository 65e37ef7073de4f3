"""Estimated | Measured | Error, in the layout of TorchCAP's tables.

Runtime, memory, energy and throughput of each configuration, single and multi device apart, in
Markdown and in reStructuredText. Measured and estimated figures never share a column, and the
error is relative to the measurement.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tgi_bench.report.rst_table import escaped
from tgi_bench.report.table import Table, markdown
from tgi_bench.report.words import UNDEFINED

MEASURED = "Measured"
ERROR_SENTENCE = f"Error = (Estimated - {MEASURED}) / {MEASURED}"
FIRST_HEADERS = ("Model", "Device")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A group of three columns. decimals: of its figures."""

    name: str
    unit: str
    decimals: int

    @property
    def title(self) -> str:
        """ "Runtime (ms)"."""
        return f"{self.name} ({self.unit})"


RUNTIME = Quantity("Runtime", "ms", 2)
MEMORY = Quantity("Memory", "GiB", 2)
ENERGY = Quantity("Energy", "J/token", 7)
THROUGHPUT = Quantity("Throughput", "tokens/s", 1)
QUANTITIES = (RUNTIME, MEMORY, ENERGY, THROUGHPUT)


@dataclass(frozen=True, slots=True)
class Figures:
    """One configuration's figures; None where one is not known.

    memory_gib: of one device, in 2^30 bytes. energy_j_per_token: of all devices together.
    """

    runtime_ms: float | None = None
    memory_gib: float | None = None
    energy_j_per_token: float | None = None
    tokens_per_s: float | None = None

    def of(self, quantity: Quantity) -> float | None:
        """The figure of that quantity."""
        return dict(zip(QUANTITIES, self._all(), strict=True))[quantity]

    def _all(self) -> tuple[float | None, ...]:
        return (self.runtime_ms, self.memory_gib, self.energy_j_per_token, self.tokens_per_s)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One row. before, others: name and value of columns that tell rows apart further, as Batch
    Size, before the model and after the device; the same names in every row of a table.

    measured: what it is compared with, simulated figures where the table's `word` says so.
    """

    model: str
    accelerator: str
    num_shard: int
    estimated: Figures
    measured: Figures
    others: tuple[tuple[str, str], ...] = ()
    before: tuple[tuple[str, str], ...] = ()


def relative_error(estimated: float | None, measured: float | None) -> float | None:
    """(estimated - measured) / measured; None where either is, or nothing was measured above 0."""
    if estimated is None or measured is None or measured <= 0:
        return None
    return (estimated - measured) / measured


def comparison_markdown(rows: Sequence[Comparison], level: int = 2, word: str = MEASURED) -> str:
    """Up to two tables under headings of that level, and what Error is; "" without rows.

    word: what the figures beside the estimates are: measured and simulated are never one column.
    """
    marks = "#" * level
    shown = shown_quantities(rows)
    parts = [
        f"{marks} {title}\n\n{markdown(_flat(group, shown, word))}"
        for title, group in _sections(rows)
        if group
    ]
    return "\n".join((*parts, f"{_sentences(rows, word)}\n")) if parts else ""


def comparison_rst(rows: Sequence[Comparison], mark: str = "-", word: str = MEASURED) -> str:
    """As comparison_markdown, in reStructuredText. mark: what underlines its headings."""
    shown = shown_quantities(rows)
    parts = [
        f"{title}\n{mark * len(title)}\n\n{_grid(group, shown, word)}"
        for title, group in _sections(rows)
        if group
    ]
    return "\n".join((*parts, f"{_sentences(rows, word)}\n")) if parts else ""


def shown_quantities(rows: Sequence[Comparison]) -> tuple[Quantity, ...]:
    """The quantities of which any row has a figure: the columns of both tables."""
    return tuple(
        q
        for q in QUANTITIES
        if any(f.of(q) is not None for r in rows for f in (r.estimated, r.measured))
    )


def _sections(rows: Sequence[Comparison]) -> tuple[tuple[str, list[Comparison]], ...]:
    return (
        ("Single device", [r for r in rows if r.num_shard == 1]),
        ("Multi device", [r for r in rows if r.num_shard > 1]),
    )


def _sentences(rows: Sequence[Comparison], word: str) -> str:
    """What the columns mean, as far as they are there."""
    shown = shown_quantities(rows)
    said = [f"{ERROR_SENTENCE.replace(MEASURED, word)}."]
    if MEMORY in shown:
        said.append("Memory is the most that one device held; GiB is 2^30 bytes.")
    if ENERGY in shown:
        said.append("Energy is that of all devices.")
    return " ".join(said)


def _names(rows: Sequence[Comparison]) -> tuple[str, ...]:
    """Headers of the columns before the figures. ValueError where rows differ in them."""
    before = {tuple(name for name, _ in row.before) for row in rows}
    others = {tuple(name for name, _ in row.others) for row in rows}
    if len(others) != 1 or len(before) != 1:
        raise ValueError("the rows of a comparison have different columns")
    return (*before.pop(), *FIRST_HEADERS, *others.pop())


def _subheaders(word: str) -> tuple[str, str, str]:
    return ("Estimated", word, "Error")


def _cells(row: Comparison, shown: Sequence[Quantity]) -> tuple[str, ...]:
    device = row.accelerator if row.num_shard == 1 else f"{row.accelerator} x {row.num_shard}"
    cells = [value for _, value in row.before]
    cells += [row.model, device, *(value for _, value in row.others)]
    for quantity in shown:
        estimated, measured = row.estimated.of(quantity), row.measured.of(quantity)
        error = relative_error(estimated, measured)
        cells += [
            *(_figure(value, quantity) for value in (estimated, measured)),
            UNDEFINED if error is None else f"{error:.2%}",
        ]
    return tuple(cells)


def _figure(value: float | None, quantity: Quantity) -> str:
    """Its decimals; three are enough of what has many, where it is 1 or more."""
    if value is None:
        return UNDEFINED
    return f"{value:.{quantity.decimals if value < 1 else min(quantity.decimals, 3)}f}"


def _flat(rows: Sequence[Comparison], shown: Sequence[Quantity], word: str) -> Table:
    """Markdown has one header row: each column names its quantity."""
    names, three = _names(rows), _subheaders(word)
    headers = (
        *names,
        *(f"{q.name if sub == 'Error' else q.title}: {sub}" for q in shown for sub in three),
    )
    right = frozenset(range(len(names), len(headers)))
    return Table(headers, tuple(_cells(row, shown) for row in rows), right)


def _grid(rows: Sequence[Comparison], shown: Sequence[Quantity], word: str) -> str:
    """A grid table whose group headers span three columns."""
    names, three = _names(rows), _subheaders(word)
    below = (*("" for _ in names), *(sub for _ in shown for sub in three))
    body = [tuple(map(escaped, _cells(row, shown))) for row in rows]
    first = (*names, *("" for _ in shown for _ in three))
    widths = [max(3, *map(len, column)) for column in zip(first, below, *body, strict=True)]
    for place, quantity in enumerate(shown):
        start = len(names) + 3 * place
        missing = len(quantity.title) - (sum(widths[start : start + 3]) + 6)
        widths[start + 2] += max(0, missing)
    spans = [sum(widths[i : i + 3]) + 6 for i in range(len(names), len(widths), 3)]
    top = widths[: len(names)]
    titles = [*names, *(q.title for q in shown)]
    part = "|" + "|".join(" " * (w + 2) for w in top)
    rule = _rule(widths, "-")
    lines = [
        _rule([*top, *spans], "-"),
        _row(titles, [*top, *spans], 0),
        part + _rule(widths[len(names) :], "-"),
        _row(below, widths, len(names)),
        _rule(widths, "="),
    ]
    for cells in body:
        lines += [_row(cells, widths, len(names)), rule]
    return "".join(f"{line}\n" for line in lines)


def _rule(widths: Sequence[int], mark: str) -> str:
    return "+" + "+".join(mark * (width + 2) for width in widths) + "+"


def _row(cells: Sequence[str], widths: Sequence[int], left: int) -> str:
    """The first `left` cells are aligned to the left, as all are where it is 0."""
    padded = (
        cell.ljust(width) if place < left or left == 0 else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return f"| {' | '.join(padded)} |"

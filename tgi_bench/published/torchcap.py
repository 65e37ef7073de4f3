"""Reads TorchCAP's benchmark tables, as published or in our own layout, Markdown or reST.

What the tables leave out stands in facts.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from tgi_bench.analysis.run import LAYOUT, TableLayout
from tgi_bench.errors import TableError
from tgi_bench.observation import FigureKind, PublishedEntry, PublishedMetric, PublishedValue
from tgi_bench.published.facts import Facts, known
from tgi_bench.published.imported_table import OK, ImportedTable
from tgi_bench.published.reading import Grid, GridRow, Sentence, items, refuse_likeness, refused
from tgi_bench.published.torchcap_slips import Pair, Slips, Workload, corrected
from tgi_bench.report.torchcap_layout import ERROR_SENTENCE, FIRST_HEADERS, relative_error
from tgi_bench.report.words import UNDEFINED

METRICS = {
    "Runtime": PublishedMetric.FORWARD_MS,
    "Memory": PublishedMetric.MEMORY_GIB,
    "Energy": PublishedMetric.ENERGY_J_PER_TOKEN,
    "Throughput": PublishedMetric.PROMPT_TOKENS_PER_S,
}
UNITS = {
    "Runtime": ("ms",),
    "Memory": ("GB", "GiB"),
    "Energy": ("J/token",),
    "Throughput": ("token/sec", "token/s", "tokens/s"),
}
DTYPE = "float16"
BATCH_SIZE, PROMPT_TOKENS = 16, 1024
"""Of the tool's script, where the page does not say."""
_SLIP_NAME = ("AlCrossSim/", "AICrossSim/")

_TITLE = re.compile(r"(\w+) \(([^)]+)\)", re.ASCII)
_FLAT = re.compile(r"(\w+)(?: \(([^)]+)\))?: (Estimated|Measured|Error)", re.ASCII)
_SIZE = re.compile(
    r"Input Sequence Size = (?::math:)?`?(\d{1,6}) (?:\\times|x) (\d{1,6})`?", re.ASCII
)
_DEVICES = re.compile(r"(.+?) x ([1-9]\d{0,3})", re.ASCII)
_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,9})?", re.ASCII)
_PERCENT = re.compile(r"(-?\d{1,15}\.\d{1,4})%", re.ASCII)
_PRINTED_ERROR = 0.0000501
"""Half of the last digit that a percentage with two decimals has, as a fraction."""


@dataclass(frozen=True, slots=True)
class _Column:
    """Three columns of one quantity; kinds: of the first and the second, as the header says."""

    name: str
    unit: str
    kinds: tuple[FigureKind, FigureKind]


@dataclass(frozen=True, slots=True)
class _Row:
    """One configuration; pairs are in the file's column order."""

    model: str
    accelerator: str
    devices: int
    line: int
    pairs: tuple[Pair, ...]


@dataclass(slots=True)
class _Reader:
    """What has been read so far."""

    rows: list[_Row]
    columns: list[_Column]
    size: tuple[int, int] | None = None
    own: bool = False
    slips: Slips = field(default_factory=dict)


def holds(found: Sequence[Grid | Sentence]) -> bool:
    """Whether the document is of this layout."""
    return any(_is_ours(item) for item in found)


def read(text: str) -> ImportedTable:
    """The page's tables, or our own report's. Raises TableError."""
    reader = _Reader([], [])
    for item in items(text):
        if isinstance(item, Grid):
            if _is_ours(item):
                _table(item, reader)
            else:
                refuse_likeness(item, FIRST_HEADERS)
        elif found := _SIZE.fullmatch(item.text):
            reader.size = (int(found[1]), int(found[2]))
        elif item.text.startswith(ERROR_SENTENCE):
            reader.own = True
    if not any(pair.known for row in reader.rows for pair in row.pairs):
        raise TableError("line 1: no figures found in a table of Model and Device")
    batch_size, prompt_tokens = reader.size or (BATCH_SIZE, PROMPT_TOKENS)
    if not 1 <= batch_size * prompt_tokens <= 10**9:
        raise TableError("line 1: expected an Input Sequence Size above 0")
    if reader.own:
        _check_errors(reader.rows)
    else:
        pairs = [
            (Workload(r.model, r.accelerator, r.devices, batch_size * prompt_tokens), r.pairs)
            for r in reader.rows
        ]
        fixed = corrected(pairs, reader.slips)
        reader.rows = [
            _Row(r.model, r.accelerator, r.devices, r.line, p)
            for r, p in zip(reader.rows, fixed, strict=True)
        ]
    if any(column.unit == "GB" for column in reader.columns):
        reader.slips["gigabytes"] = []
    entries = tuple(_entry(row, (batch_size, prompt_tokens)) for row in reader.rows)
    _refuse_twins(reader.rows, entries)
    return ImportedTable(TableLayout.TORCHCAP, entries, _facts(reader, entries))


def _is_ours(item: Grid | Sentence) -> bool:
    return isinstance(item, Grid) and item.headers[0].cells[:2] == FIRST_HEADERS


def _table(grid: Grid, reader: _Reader) -> None:
    columns, rows = _columns(grid)
    reader.columns += columns
    for row in rows:
        model = row.cells[0]
        if not model or not row.cells[1]:
            raise refused(row.line, "expected a model and a device in this row")
        if model.startswith(_SLIP_NAME[0]):
            model, reader.slips["renamed"] = model.replace(*_SLIP_NAME), []
        found = _DEVICES.fullmatch(row.cells[1])
        accelerator, devices = (found[1], int(found[2])) if found else (row.cells[1], 1)
        pairs = tuple(
            _pair(row, column, row.cells[2 + 3 * place : 5 + 3 * place])
            for place, column in enumerate(columns)
        )
        reader.rows.append(_Row(model, accelerator, devices, row.line, pairs))


def _columns(grid: Grid) -> tuple[list[_Column], Sequence[GridRow]]:
    """The groups of three columns, and the rows that are left below their headers."""
    first = grid.headers[0].cells[2:]
    if len(grid.headers) == 2:
        titles, below = [t for t in first if t], grid.headers[1].cells[2:]
        return _grouped(titles, below, grid), grid.rows
    if grid.rows and not any(grid.rows[0].cells[:2]):
        # Markdown has one header row, so the columns' own names stand in the first row.
        return _grouped([t for t in first if t], grid.rows[0].cells[2:], grid), grid.rows[1:]
    found = [_FLAT.fullmatch(header) for header in first]
    if not found or None in found or len(found) % 3:
        raise refused(grid.line, _expected())
    grouped: list[str] = []
    kinds: list[str] = []
    for place, match in enumerate(m for m in found if m is not None):
        if place % 3 == 0:
            grouped.append(f"{match[1]} ({match[2]})")
        elif not grouped[-1].startswith(f"{match[1]} ("):
            raise refused(grid.line, _expected())
        kinds.append(match[3])
    return _grouped(grouped, kinds, grid), grid.rows


def _grouped(titles: Sequence[str], below: Sequence[str], grid: Grid) -> list[_Column]:
    if not titles or len(below) != 3 * len(titles):
        raise refused(grid.line, _expected())
    columns = []
    for place, title in enumerate(titles):
        found = _TITLE.fullmatch(title)
        kinds = below[3 * place : 3 * place + 2]
        if found is None or found[2] not in UNITS.get(found[1], ()):
            raise refused(grid.line, _expected())
        if sorted(kinds) != ["Estimated", "Measured"] or below[3 * place + 2] != "Error":
            raise refused(grid.line, _expected())
        order = (FigureKind(kinds[0].lower()), FigureKind(kinds[1].lower()))
        columns.append(_Column(found[1], found[2], order))
    if len({c.name for c in columns}) != len(columns):
        raise refused(grid.line, "a quantity stands twice in this header")
    return columns


def _expected() -> str:
    names = ", ".join(f"{name} ({' or '.join(units)})" for name, units in UNITS.items())
    return (
        f"expected columns Model and Device, then of {names}, each with Estimated, Measured and "
        "Error"
    )


def _pair(row: GridRow, column: _Column, texts: Sequence[str]) -> Pair:
    """Both figures and their error; all three, or none. Only our own pages write "-"."""
    plain = ["" if text == UNDEFINED else text for text in texts]
    first, second = (_figure(row, text) for text in plain[:2])
    error = None
    if plain[2]:
        found = _PERCENT.fullmatch(plain[2])
        if found is None:
            raise refused(row.line, f"expected an error such as `6.35%`, found `{texts[2]}`")
        error = float(found[1]) / 100
    if None in (first, second) and error is not None:
        raise refused(row.line, f"an error of {column.name} without both of its figures")
    return Pair(
        metric=METRICS[column.name],
        kinds=column.kinds,
        values=(first, second),
        error=error,
        printed=(texts[0], texts[1]),
        line=row.line,
    )


def _figure(row: GridRow, text: str) -> float | None:
    if not text:
        return None
    if _NUMBER.fullmatch(text) is None or float(text) <= 0:
        raise refused(row.line, f"expected a figure above 0, found `{text}`")
    return float(text)


def _check_errors(rows: Sequence[_Row]) -> None:
    """On our own pages each error is that of the two figures beside it."""
    for row in rows:
        for pair in row.pairs:
            error = relative_error(pair.of(FigureKind.ESTIMATED), pair.of(FigureKind.MEASURED))
            given = pair.error
            if (error is None) != (given is None) or (
                error is not None and given is not None and abs(error - given) > _PRINTED_ERROR
            ):
                wanted = UNDEFINED if error is None else f"{error:.2%}"
                raise refused(row.line, f"expected the error {wanted} beside {pair.printed}")


def _entry(row: _Row, size: tuple[int, int]) -> PublishedEntry:
    devices = f" x {row.devices}" if row.devices > 1 else ""
    values = tuple(
        PublishedValue(pair.metric, kind, value, printed, reason)
        for pair in row.pairs
        for kind, value, printed, reason in pair.figures()
    )
    return PublishedEntry(
        entry_id=f"{row.model}/{row.accelerator}{devices}",
        model=row.model,
        accelerator=row.accelerator,
        devices=row.devices,
        parallelism="" if row.devices == 1 else "tensor parallel MLPs, attention replicated",
        dtype=DTYPE,
        quantize=None,
        batch_size=size[0],
        prompt_tokens=size[1],
        new_tokens=0,
        runs=1,
        end=OK if values else None,
        values=values,
        doubts=_doubts(row),
    )


def _doubts(row: _Row) -> tuple[str, ...]:
    """Whether its stated degree is the one it ran with."""
    if row.devices <= 2 or not row.model.startswith(_SLIP_NAME[1]):
        return ()
    return (known("torchcap").reason("two_devices", devices=row.devices),)


def _facts(reader: _Reader, entries: Sequence[PublishedEntry]) -> Facts:
    """Every slip that was found, then what is in doubt."""
    metrics = {value.metric for entry in entries for value in entry.values}
    found = {name: ", ".join(dict.fromkeys(rows)) for name, rows in reader.slips.items()}
    if PublishedMetric.ENERGY_J_PER_TOKEN in metrics:
        found["energy"] = ""
    if reader.size is None:
        found["size_not_said"] = ""
    if any(entry.devices > 1 and entry.values for entry in entries):
        found["several_devices"] = ""
    size = f"{entries[0].batch_size} x {entries[0].prompt_tokens}"
    said = known("torchcap").facts(size=size, **found)
    if reader.own:
        said = tuple(
            (name, text.replace("TorchCAP, by hand", "TorchCAP's tables, laid out by tgi-bench"))
            for name, text in said
            if name != "Corrected: error"
        )
    return ((LAYOUT, TableLayout.TORCHCAP.value), *said)


def _refuse_twins(rows: Sequence[_Row], entries: Sequence[PublishedEntry]) -> None:
    seen: set[str] = set()
    for row, entry in zip(rows, entries, strict=True):
        if entry.entry_id in seen:
            raise refused(row.line, f"a second row of {entry.entry_id}")
        seen.add(entry.entry_id)

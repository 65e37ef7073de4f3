"""TorchCAP's benchmark tables, Markdown or reStructuredText: a forward pass, estimated | measured.

What the tables leave out stands in facts.yaml, their slips are found by torchcap_slips.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from tgi_bench.analysis.run import Run, TableLayout, layout_of
from tgi_bench.observation import FigureKind, PublishedEntry, PublishedMetric, PublishedValue
from tgi_bench.published.facts import known
from tgi_bench.published.reading import (
    OK,
    GridRow,
    ImportedTable,
    Items,
    PrintedGrid,
    Sentence,
    figure,
    imported,
    refuse_likeness,
    refused,
)
from tgi_bench.published.torchcap_slips import Pair, Slips, TorchcapRow, corrected
from tgi_bench.report.torchcap_layout import (
    FIRST_HEADERS,
    Comparison,
    Figures,
    comparison_markdown,
    comparison_rst,
)

Entries = Sequence[PublishedEntry]

QUANTITIES = {
    "Runtime": (PublishedMetric.FORWARD_MS, ("ms",)),
    "Memory": (PublishedMetric.MEMORY_GIB, ("GB", "GiB")),
    "Energy": (PublishedMetric.ENERGY_J_PER_TOKEN, ("J/token",)),
    "Throughput": (PublishedMetric.PROMPT_TOKENS_PER_S, ("token/sec", "token/s", "tokens/s")),
}
"""Metric and units of each name in a header."""
DTYPE = "float16"
BATCH_SIZE, PROMPT_TOKENS = 16, 1024
"""Of the tool's script, where the page does not say."""
_SLIP_NAME = ("AlCrossSim/", "AICrossSim/")

_TITLE = re.compile(r"(\w+) \(([^)]+)\)", re.ASCII)
_SIZE = re.compile(
    r"Input Sequence Size = (?::math:)?`?(\d{1,6}) (?:\\times|x) (\d{1,6})`?", re.ASCII
)
_DEVICES = re.compile(r"(.+?) x ([1-9]\d{0,3})", re.ASCII)
_PERCENT = re.compile(r"(-?\d{1,15}\.\d{1,4})%", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Column:
    """Three columns of one quantity; kinds: of the first and the second, as the header says."""

    name: str
    unit: str
    kinds: tuple[FigureKind, FigureKind]


@dataclass(slots=True)
class _Reader:
    """What has been read so far."""

    rows: list[TorchcapRow] = field(default_factory=list)
    slips: Slips = field(default_factory=dict)
    size: tuple[int, int] | None = None


def holds(found: Items) -> bool:
    """Whether the document is of this layout."""
    return any(_is_ours(item) for item in found)


def read(found: Items) -> ImportedTable:
    """The page's tables. Raises TableError."""
    reader = _Reader()
    for item in found:
        if isinstance(item, Sentence):
            if said := _SIZE.fullmatch(item.text):
                reader.size = (int(said[1]), int(said[2]))
        elif _is_ours(item):
            _table(item, reader)
        else:
            refuse_likeness(item, FIRST_HEADERS)
    if not any(pair.known for row in reader.rows for pair in row.pairs):
        raise refused(1, "no figures found in a table of Model and Device")
    size = batch_size, prompt_tokens = reader.size or (BATCH_SIZE, PROMPT_TOKENS)
    if not 1 <= batch_size * prompt_tokens <= 10**9:
        raise refused(1, "expected an Input Sequence Size above 0")
    rows = corrected(reader.rows, batch_size * prompt_tokens, reader.slips)
    entries = [_entry(row, size) for row in rows]
    _refuse_twins(rows, entries)
    return imported(TableLayout.TORCHCAP, entries, **_found(reader, entries))


def _is_ours(item: PrintedGrid | Sentence) -> bool:
    return isinstance(item, PrintedGrid) and item.headers[0].cells[:2] == FIRST_HEADERS


def _table(grid: PrintedGrid, reader: _Reader) -> None:
    columns, rows = _columns(grid)
    if any(column.unit == "GB" for column in columns):
        reader.slips["gigabytes"] = []
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
        reader.rows.append(TorchcapRow(model, accelerator, devices, row.line, pairs))


def _columns(grid: PrintedGrid) -> tuple[list[_Column], Sequence[GridRow]]:
    """The groups of three columns, and the rows that are left below their headers."""
    first = grid.headers[0].cells[2:]
    if len(grid.headers) == 2:
        titles, below = [t for t in first if t], grid.headers[1].cells[2:]
        return _grouped(titles, below, grid), grid.rows
    if grid.rows and not any(grid.rows[0].cells[:2]):
        # Markdown has one header row, so the columns' own names stand in the first row.
        return _grouped([t for t in first if t], grid.rows[0].cells[2:], grid), grid.rows[1:]
    raise refused(grid.line, _expected())


def _grouped(titles: Sequence[str], below: Sequence[str], grid: PrintedGrid) -> list[_Column]:
    if not titles or len(below) != 3 * len(titles):
        raise refused(grid.line, _expected())
    columns = []
    for place, title in enumerate(titles):
        found = _TITLE.fullmatch(title)
        kinds = below[3 * place : 3 * place + 2]
        if found is None or found[2] not in QUANTITIES.get(found[1], ("", ()))[1]:
            raise refused(grid.line, _expected())
        if sorted(kinds) != ["Estimated", "Measured"] or below[3 * place + 2] != "Error":
            raise refused(grid.line, _expected())
        order = (FigureKind(kinds[0].lower()), FigureKind(kinds[1].lower()))
        columns.append(_Column(found[1], found[2], order))
    if len({c.name for c in columns}) != len(columns):
        raise refused(grid.line, "a quantity stands twice in this header")
    return columns


def _expected() -> str:
    names = ", ".join(f"{name} ({' or '.join(units)})" for name, (_, units) in QUANTITIES.items())
    return (
        f"expected columns Model and Device, then of {names}, each with Estimated, Measured and "
        "Error"
    )


def _pair(row: GridRow, column: _Column, texts: Sequence[str]) -> Pair:
    """Both figures and their error; all three, or none."""
    first, second = (figure(row, text) if text else None for text in texts[:2])
    error = None
    if texts[2]:
        found = _PERCENT.fullmatch(texts[2])
        if found is None:
            raise refused(row.line, f"expected an error such as `6.35%`, found `{texts[2]}`")
        error = float(found[1]) / 100
    if None in (first, second) and error is not None:
        raise refused(row.line, f"an error of {column.name} without both of its figures")
    return Pair(
        metric=QUANTITIES[column.name][0],
        kinds=column.kinds,
        values=(first, second),
        error=error,
        printed=(texts[0], texts[1]),
        line=row.line,
    )


def _entry(row: TorchcapRow, size: tuple[int, int]) -> PublishedEntry:
    values = tuple(
        PublishedValue(pair.metric, kind, value, printed, reason)
        for pair in row.pairs
        for kind, value, printed, reason in pair.figures()
    )
    return PublishedEntry(
        entry_id=f"{row.model}/{row.device}",
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


def _doubts(row: TorchcapRow) -> tuple[str, ...]:
    """Whether its stated degree is the one it ran with."""
    if row.devices <= 2 or not row.model.startswith(_SLIP_NAME[1]):
        return ()
    return (known("torchcap").reason("two_devices", devices=row.devices),)


def _found(reader: _Reader, entries: Entries) -> dict[str, str]:
    """The slips, and what speaks against figures that only some pages have."""
    found = {name: ", ".join(dict.fromkeys(rows)) for name, rows in reader.slips.items()}
    found["size"] = f"{entries[0].batch_size} x {entries[0].prompt_tokens}"
    metrics = {value.metric for entry in entries for value in entry.values}
    if PublishedMetric.ENERGY_J_PER_TOKEN in metrics:
        found["energy"] = ""
    if reader.size is None:
        found["size_not_said"] = ""
    if any(entry.devices > 1 and entry.values for entry in entries):
        found["several_devices"] = ""
    return found


def _refuse_twins(rows: Sequence[TorchcapRow], entries: Sequence[PublishedEntry]) -> None:
    seen: set[str] = set()
    for row, entry in zip(rows, entries, strict=True):
        if entry.entry_id in seen:
            raise refused(row.line, f"a second row of {entry.entry_id}")
        seen.add(entry.entry_id)


_WHO_ESTIMATED = "Estimated by TorchCAP, not by tgi-bench.\n"


def tables(entries: Entries) -> str:
    """Estimated, Measured and Error of each configuration; see torchcap_layout."""
    return f"{_input_size(entries)}\n{comparison_markdown(comparisons(entries))}\n{_WHO_ESTIMATED}"


def rst_tables(run: Run) -> tuple[str, ...]:
    """The same in reStructuredText; () of a run that is not of this layout."""
    if not run.of(PublishedEntry) or layout_of(run.environment) is not TableLayout.TORCHCAP:
        return ()
    return (
        _input_size(run.of(PublishedEntry)),
        comparison_rst(comparisons(run.of(PublishedEntry))),
        _WHO_ESTIMATED,
    )


def _input_size(entries: Entries) -> str:
    """Batch size and prompt tokens, which are those of every entry."""
    return f"Input Sequence Size = {entries[0].batch_size} x {entries[0].prompt_tokens}\n"


def comparisons(entries: Entries) -> tuple[Comparison, ...]:
    """Entries with the estimates that their own table gives."""
    return tuple(
        Comparison(
            model=entry.model,
            accelerator=entry.accelerator,
            num_shard=entry.devices,
            estimated=_figures(entry, FigureKind.ESTIMATED),
            measured=_figures(entry, FigureKind.MEASURED),
        )
        for entry in entries
    )


def _figures(entry: PublishedEntry, kind: FigureKind) -> Figures:
    return Figures(
        runtime_ms=entry.value(PublishedMetric.FORWARD_MS, kind),
        memory_gib=entry.value(PublishedMetric.MEMORY_GIB, kind),
        energy_j_per_token=entry.value(PublishedMetric.ENERGY_J_PER_TOKEN, kind),
        tokens_per_s=entry.value(PublishedMetric.PROMPT_TOKENS_PER_S, kind),
    )

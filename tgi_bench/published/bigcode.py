"""Reads the tables of bigcode-inference-benchmark's README: one model, one device, batch sizes.

Two tables with a row for each batch size and a column for each dtype: tokens/s and ms/token in
one cell, then seconds. What the README leaves out stands in facts.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tgi_bench.analysis.run import LAYOUT, TableLayout
from tgi_bench.observation import (
    FigureKind,
    PublishedEntry,
    PublishedMetric,
    PublishedValue,
    TrialEnd,
)
from tgi_bench.published.facts import known
from tgi_bench.published.imported_table import OK, ImportedTable, out_of_memory, uncorrected
from tgi_bench.published.reading import Grid, GridRow, Sentence, items, refuse_likeness, refused

NEW_TOKENS = 100
CYCLES = 5
MODEL = "bigcode-inference-benchmark BLOOM"
RATE_CAPTION = "tokens/sec | msec/token"
TIME_CAPTION = "sec"
OUR_CAPTION = " (spread over the batch: no step's latency)"
"""After RATE_CAPTION in our own report."""
STEP_CAPTION = " | msec/step"
"""After RATE_CAPTION in a table that tgi-bench measured."""
MODEL_LINE = "Model: "
SEVERAL_DEVICES = "Several devices: each column names its own"
BREAK = "<br>"
FIRST_HEADER = "batch_size"
WEIGHTS = {
    "fp32": ("float32", None),
    "fp16": ("float16", None),
    "bf16": ("bfloat16", None),
    "int8<br>LLM.int8()": (None, "bitsandbytes"),
    "int4<br>NF4": (None, "bitsandbytes-nf4"),
}
"""By a column's header: dtype of what is not quantized, and quantize."""

_PAIR = re.compile(r"(\d{1,9}\.\d{1,6}) \| (\d{1,9}\.\d{1,6})", re.ASCII)
_TRIPLE = re.compile(_PAIR.pattern + r" \| (\d{1,9}\.\d{1,6}|-)", re.ASCII)
_NUMBER = re.compile(r"\d{1,9}\.\d{1,6}", re.ASCII)
_SIZE = re.compile(r"[1-9]\d{0,8}", re.ASCII)
OOM = "oom"
_WORKLOAD = re.compile(
    r"(\d{1,9}) prompt tokens, (\d{1,9}) new tokens, the mean of (\d{1,9}) runs\\?", re.ASCII
)
_MODEL = re.compile(rf"{MODEL_LINE}(.+?)\\?")
_COLUMN = re.compile(r"(.+?)(?:, run ([1-9]\d{0,2}))?", re.ASCII)
_PLACE = re.compile(r"(?:([1-9]\d{0,3}) x )?(.+?)(?:, (tensor parallel|layers split))?", re.ASCII)
_HALF = 0.5000001
_COARSE = 0.01
"""Half of a last digit, over its figure, above which the figure is in doubt."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of both tables. weights: a key of WEIGHTS.

    place: its devices, as in "NVIDIA A100-SXM4-80GB" or "2 x NVIDIA A100-SXM4-80GB, layers split";
    written where the columns have several. number: from 1, of runs that have the same column.
    """

    weights: str
    place: str
    number: int = 1

    def header(self, several: bool) -> str:
        """Its header. several: whether the columns have several places."""
        place = f"{BREAK}{self.place}" if several else ""
        number = f", run {self.number}" if self.number > 1 else ""
        return f"{self.weights}{place}{number}"

    def entry_id(self, size: int, several: bool) -> str:
        """Of its entry of that batch size: "fp32-b4", "fp32/NVIDIA L4-b4", "fp32-b4#2"."""
        name = self.weights.partition(BREAK)[0] + (f"/{self.place}" if several else "")
        return f"{name}-b{size}" + (f"#{self.number}" if self.number > 1 else "")


def column_of(entry: PublishedEntry) -> Column:
    """The column that an entry stands in."""
    headers = {weights: header for header, weights in WEIGHTS.items()}
    place = entry.accelerator
    if entry.devices > 1:
        place = f"{entry.devices} x {place}, {entry.parallelism}"
    number = entry.entry_id.rpartition("#")[2] if "#" in entry.entry_id else "1"
    return Column(headers[entry.dtype, entry.quantize], place, int(number))


def workload_line(entry: PublishedEntry) -> str:
    """What each call did, of a table that tgi-bench measured."""
    return (
        f"{entry.prompt_tokens} prompt tokens, {entry.new_tokens} new tokens, "
        f"the mean of {entry.runs} runs"
    )


@dataclass(frozen=True, slots=True)
class _Work:
    """What a table that tgi-bench measured says of itself."""

    model: str
    prompt_tokens: int
    new_tokens: int
    runs: int


@dataclass(frozen=True, slots=True)
class _Cell:
    """One batch size and dtype: both tables' cells, and where the first stands."""

    size: int
    column: Column
    several: bool
    pair: str
    seconds: str
    line: int


def holds(found: Sequence[Grid | Sentence]) -> bool:
    """Whether the document is of this layout."""
    captions = any(isinstance(i, Sentence) and i.text.startswith(RATE_CAPTION) for i in found)
    return captions and any(_is_ours(i) for i in found)


def read(text: str) -> ImportedTable:
    """The README's tables, or our own report's. Raises TableError."""
    rates, times, accelerator = _parts(text)
    work = _work(text)
    entries = tuple(_entry(cell, work) for cell in _cells(rates, times, accelerator))
    if not any(entry.values for entry in entries):
        raise refused(rates.line, "expected a figure such as `45.31 \\| 22.07` in this table")
    said = known("bigcode").facts(new_tokens=NEW_TOKENS, runs=CYCLES)
    facts = uncorrected(said) if RATE_CAPTION + OUR_CAPTION in text else said
    if work is not None:
        facts = (("Tables written by", "tgi-bench"), ("Workload", workload_line(entries[0])))
    return ImportedTable(
        TableLayout.BIGCODE, entries, ((LAYOUT, TableLayout.BIGCODE.value), *facts)
    )


def _work(text: str) -> _Work | None:
    """None of a table that tgi-bench did not measure."""
    lines = [item.text for item in items(text) if isinstance(item, Sentence)]
    said = next((found for line in lines if (found := _WORKLOAD.fullmatch(line))), None)
    model = next((found[1] for line in lines if (found := _MODEL.fullmatch(line))), None)
    if said is None or model is None or RATE_CAPTION + STEP_CAPTION not in text:
        return None
    return _Work(model, int(said[1]), int(said[2]), int(said[3]))


def _is_ours(item: Grid | Sentence) -> bool:
    return isinstance(item, Grid) and item.headers[0].cells[0] == FIRST_HEADER


def _parts(text: str) -> tuple[Grid, Grid, str]:
    """The table of rates, that of seconds, and the accelerator of the line above both."""
    caption, accelerator, line = "", "", 1
    rates: Grid | None = None
    times: Grid | None = None
    before = ""
    for item in items(text):
        if isinstance(item, Sentence):
            if item.text.startswith(RATE_CAPTION):
                accelerator, caption, line = before, RATE_CAPTION, item.line
            elif re.fullmatch(rf"{TIME_CAPTION}( .*)?", item.text):
                caption = TIME_CAPTION
            before = item.text
        elif not _is_ours(item):
            refuse_likeness(item, (FIRST_HEADER, *WEIGHTS))
        else:
            before_it = rates if caption == RATE_CAPTION else times
            if caption == "" or before_it is not None:
                expected = f"`{RATE_CAPTION}` or `{TIME_CAPTION}` above one table each"
                raise refused(item.line, f"expected {expected}")
            if caption == RATE_CAPTION:
                rates = item
            else:
                times = item
    if rates is None or times is None:
        missing = RATE_CAPTION if rates is None else TIME_CAPTION
        raise refused(line, f"expected a table under `{missing}`")
    if not accelerator or accelerator.endswith("\\") or accelerator.startswith("#"):
        raise refused(line, "expected the accelerator's name, such as A100 80GB, above this line")
    return rates, times, accelerator


def _cells(rates: Grid, times: Grid, accelerator: str) -> Iterable[_Cell]:
    """Each batch size and dtype; both tables have the same ones."""
    columns = rates.headers[0].cells[1:]
    several = accelerator == SEVERAL_DEVICES
    found = [_column(text, None if several else accelerator) for text in columns]
    for text, column in zip(columns, found, strict=True):
        if column is None or columns.count(text) > 1:
            raise refused(rates.line, f"expected columns of {', '.join(WEIGHTS)}, found `{text}`")
    if times.headers[0].cells[1:] != columns:
        raise refused(times.line, f"expected the columns {', '.join(columns)} here too")
    sizes = [_size(row) for row in rates.rows]
    if [_size(row) for row in times.rows] != sizes or len(set(sizes)) != len(sizes):
        raise refused(times.line, "expected each batch size once, and the same in both tables")
    for place, column in enumerate(found, 1):
        for row, time_row in zip(rates.rows, times.rows, strict=True):
            if column is not None:
                cells = (row.cells[place], time_row.cells[place])
                yield _Cell(_size(row), column, several, *cells, row.line)


def _column(text: str, accelerator: str | None) -> Column | None:
    """The column of a header; None where it is none. accelerator: None where it names its own."""
    found = _COLUMN.fullmatch(text)
    if found is None:
        return None
    header, number = found[1], int(found[2] or 1)
    if accelerator is not None:
        return Column(header, accelerator, number) if header in WEIGHTS else None
    weights = next((name for name in WEIGHTS if header.startswith(name + BREAK)), None)
    if weights is None:
        return None
    return Column(weights, header.removeprefix(weights + BREAK), number)


def _size(row: GridRow) -> int:
    text = row.cells[0]
    if _SIZE.fullmatch(text) is None:
        raise refused(row.line, f"expected a batch size above 0, found `{text}`")
    return int(text)


def _entry(cell: _Cell, work: _Work | None) -> PublishedEntry:
    dtype, quantize = WEIGHTS[cell.column.weights]
    place = _PLACE.fullmatch(cell.column.place)
    count, accelerator, parallelism = (None,) * 3 if place is None else place.groups()
    # By hand: the shortest dummy sentences come first, and seven of them are in every batch.
    theirs = _Work(MODEL, 7 if cell.size < 7 else 9, NEW_TOKENS, CYCLES)
    said = work or theirs
    end, values = _figures(cell, said)
    return PublishedEntry(
        entry_id=cell.column.entry_id(cell.size, cell.several),
        model=said.model,
        accelerator=accelerator or cell.column.place,
        devices=int(count or 1),
        parallelism=parallelism or "",
        dtype=dtype,
        quantize=quantize,
        batch_size=cell.size,
        prompt_tokens=said.prompt_tokens,
        new_tokens=said.new_tokens,
        runs=said.runs,
        end=end,
        values=values,
    )


def _figures(cell: _Cell, work: _Work) -> tuple[TrialEnd | None, tuple[PublishedValue, ...]]:
    words = {cell.pair, cell.seconds}
    if words == {OOM}:
        return out_of_memory(OOM), ()
    if words == {""}:
        return None, ()
    found = _TRIPLE.fullmatch(cell.pair) or _PAIR.fullmatch(cell.pair)
    if found is None or not _NUMBER.fullmatch(cell.seconds):
        raise refused(
            cell.line,
            f"expected a cell such as `45.31 \\| 22.07` and seconds for batch size {cell.size} of "
            f"{cell.column.weights}, or `oom` in both; found `{cell.pair}` and `{cell.seconds}`",
        )
    step = found[3] if found.re is _TRIPLE and found[3] != "-" else None
    if min(map(float, (found[1], found[2], step or "1", cell.seconds))) <= 0:
        raise refused(cell.line, f"expected figures above 0 for batch size {cell.size}")
    rate = float(found[1])
    steps = () if step is None else (_value((PublishedMetric.MS_PER_DECODE_STEP, step), None, 0),)
    return OK, (
        _value((PublishedMetric.NEW_TOKENS_PER_S, found[1]), None, 0),
        _value((PublishedMetric.MS_PER_NEW_TOKEN, found[2]), 1000 / rate, work.new_tokens),
        *steps,
        _value(
            (PublishedMetric.GENERATE_S, cell.seconds),
            cell.size * work.new_tokens / rate,
            work.new_tokens,
        ),
    )


def _value(
    cell: tuple[PublishedMetric, str], expected: float | None, new_tokens: int
) -> PublishedValue:
    """expected: what tokens/sec gives; a figure farther off than its last digit is in doubt."""
    metric, printed = cell
    value, reason = float(printed), ""
    last_digit = 10.0 ** -len(printed.partition(".")[2])
    if expected is not None and abs(value - expected) > _HALF * last_digit + 2e-4 * expected:
        reason = known("bigcode").reason("other", new_tokens=new_tokens, expected=f"{expected:.4g}")
    elif last_digit / 2 > _COARSE * value:
        reason = known("bigcode").reason("coarse", share=f"{2 * _COARSE:.0%}")
    return PublishedValue(metric, FigureKind.MEASURED, value, printed, reason)

"""bigcode-inference-benchmark's README: one model, generate calls by batch size and dtype.

Two tables with a row for each batch size and a column for each dtype: tokens/s and ms/token in
one cell, then seconds. What the README leaves out stands in facts.yaml. Figures of direct mode are
written in the same layout, with the latency of a decode step beside ms/token, which is spread over
the batch; several runs share the tables, and then each column names its device.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from tgi_bench.analysis.run import Run, TableLayout
from tgi_bench.kinds.direct.columns import task_asked, verdict_lines
from tgi_bench.kinds.direct.figures import TaskSummary
from tgi_bench.observation import (
    FigureKind,
    Outcome,
    PublishedEntry,
    PublishedMetric,
    PublishedValue,
    TrialEnd,
)
from tgi_bench.published.direct import generate_entries, one_of, require_direct
from tgi_bench.published.facts import known
from tgi_bench.published.reading import (
    OK,
    GridRow,
    ImportedTable,
    Items,
    PrintedGrid,
    Sentence,
    imported,
    refuse_likeness,
    refused,
)
from tgi_bench.report.markdown_page import begins_line
from tgi_bench.report.table import Table, markdown
from tgi_bench.report.words import UNDEFINED
from tgi_bench.trials.direct import GenerateTask

Entries = Sequence[PublishedEntry]

NEW_TOKENS = 100
CYCLES = 5
MODEL = "bigcode-inference-benchmark BLOOM"
RATE_CAPTION = "tokens/sec | msec/token"
TIME_CAPTION = "sec"
OWN_CAPTION = f"{RATE_CAPTION} | msec/step"
"""Of tables that tgi-bench measured."""
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
_SECONDS = re.compile(r"\d{1,9}\.\d{1,6}", re.ASCII)
_SIZE = re.compile(r"[1-9]\d{0,8}", re.ASCII)
_OOM = "oom"
_HALF = 0.5000001
_COARSE = 0.01
"""Half of a last digit, over its figure, above which the figure is in doubt."""
_RATES = (
    PublishedMetric.NEW_TOKENS_PER_S,
    PublishedMetric.MS_PER_NEW_TOKEN,
    PublishedMetric.MS_PER_DECODE_STEP,
)


def holds(found: Items) -> bool:
    """Whether the document is of this layout."""
    captions = any(isinstance(i, Sentence) and i.text.startswith(RATE_CAPTION) for i in found)
    return captions and any(_is_ours(i) for i in found)


def read(found: Items) -> ImportedTable:
    """The README's tables. Raises TableError."""
    rates, times, accelerator = _parts(found)
    entries = tuple(_entries(rates, times, accelerator))
    if not any(entry.values for entry in entries):
        raise refused(rates.line, "expected a figure such as `45.31 \\| 22.07` in this table")
    return imported(TableLayout.BIGCODE, entries, new_tokens=NEW_TOKENS, runs=CYCLES)


def _is_ours(item: PrintedGrid | Sentence) -> bool:
    return isinstance(item, PrintedGrid) and item.headers[0].cells[0] == FIRST_HEADER


def _parts(found: Items) -> tuple[PrintedGrid, PrintedGrid, str]:
    """The table of rates, that of seconds, and the accelerator of the line above both."""
    caption, accelerator, line, before = "", "", 1, ""
    tables: dict[str, PrintedGrid] = {}
    for item in found:
        if isinstance(item, Sentence):
            if item.text.startswith(RATE_CAPTION):
                accelerator, caption, line = before, RATE_CAPTION, item.line
            elif re.fullmatch(rf"{TIME_CAPTION}( .*)?", item.text):
                caption = TIME_CAPTION
            before = item.text
        elif not _is_ours(item):
            refuse_likeness(item, (FIRST_HEADER, *WEIGHTS))
        elif caption == "" or caption in tables:
            expected = f"`{RATE_CAPTION}` or `{TIME_CAPTION}` above one table each"
            raise refused(item.line, f"expected {expected}")
        else:
            tables[caption] = item
    for missing in (RATE_CAPTION, TIME_CAPTION):
        if missing not in tables:
            raise refused(line, f"expected a table under `{missing}`")
    if not accelerator or accelerator.endswith("\\") or accelerator.startswith("#"):
        raise refused(line, "expected the accelerator's name, such as A100 80GB, above this line")
    return tables[RATE_CAPTION], tables[TIME_CAPTION], accelerator


def _entries(rates: PrintedGrid, times: PrintedGrid, accelerator: str) -> Iterator[PublishedEntry]:
    """Of each dtype and batch size; both tables have the same ones."""
    columns = rates.headers[0].cells[1:]
    for text in columns:
        if text not in WEIGHTS or columns.count(text) > 1:
            raise refused(rates.line, f"expected columns of {', '.join(WEIGHTS)}, found `{text}`")
    if times.headers[0].cells[1:] != columns:
        raise refused(times.line, f"expected the columns {', '.join(columns)} here too")
    sizes = [_size(row) for row in rates.rows]
    if [_size(row) for row in times.rows] != sizes or len(set(sizes)) != len(sizes):
        raise refused(times.line, "expected each batch size once, and the same in both tables")
    for place, column in enumerate(columns, 1):
        for size, row, time_row in zip(sizes, rates.rows, times.rows, strict=True):
            end, values = _figures(row, (size, column), (row.cells[place], time_row.cells[place]))
            dtype, quantize = WEIGHTS[column]
            yield PublishedEntry(
                entry_id=f"{column.partition('<br>')[0]}-b{size}",
                model=MODEL,
                accelerator=accelerator,
                devices=1,
                parallelism="",
                dtype=dtype,
                quantize=quantize,
                batch_size=size,
                # By hand: the shortest dummy sentences come first, and seven are in every batch.
                prompt_tokens=7 if size < 7 else 9,
                new_tokens=NEW_TOKENS,
                runs=CYCLES,
                end=end,
                values=values,
            )


def _size(row: GridRow) -> int:
    text = row.cells[0]
    if _SIZE.fullmatch(text) is None:
        raise refused(row.line, f"expected a batch size above 0, found `{text}`")
    return int(text)


def _figures(
    row: GridRow, place: tuple[int, str], cells: tuple[str, str]
) -> tuple[TrialEnd | None, tuple[PublishedValue, ...]]:
    """What both tables say of one batch size and column."""
    (size, column), (pair, seconds) = place, cells
    if set(cells) == {_OOM}:
        return TrialEnd(Outcome.OUT_OF_MEMORY, f"the imported table says `{_OOM}`"), ()
    if set(cells) == {""}:
        return None, ()
    found = _PAIR.fullmatch(pair)
    if found is None or not _SECONDS.fullmatch(seconds):
        raise refused(
            row.line,
            f"expected a cell such as `45.31 \\| 22.07` and seconds for batch size {size} of "
            f"{column}, or `{_OOM}` in both; found `{pair}` and `{seconds}`",
        )
    rate = float(found[1])
    if min(rate, float(found[2]), float(seconds)) <= 0:
        raise refused(row.line, f"expected figures above 0 for batch size {size}")
    return OK, (
        _value(PublishedMetric.NEW_TOKENS_PER_S, found[1], None),
        _value(PublishedMetric.MS_PER_NEW_TOKEN, found[2], 1000 / rate),
        _value(PublishedMetric.GENERATE_S, seconds, size * NEW_TOKENS / rate),
    )


def _value(metric: PublishedMetric, printed: str, expected: float | None) -> PublishedValue:
    """expected: what tokens/sec gives; a figure farther off than its last digit is in doubt."""
    value, reason = float(printed), ""
    last_digit = 10.0 ** -len(printed.partition(".")[2])
    why = known("bigcode").reason
    if expected is not None and abs(value - expected) > _HALF * last_digit + 2e-4 * expected:
        reason = why("other", new_tokens=NEW_TOKENS, expected=f"{expected:.4g}")
    elif last_digit / 2 > _COARSE * value:
        reason = why("coarse", share=f"{2 * _COARSE:.0%}")
    return PublishedValue(metric, FigureKind.MEASURED, value, printed, reason)


def bigcode_layout(runs: Sequence[Run]) -> str:
    """The tables of several runs. Raises InputError where they are not of one model and work."""
    require_direct(runs)
    one_of(
        "number of prompt and new tokens in `generate`",
        [
            task_asked(task.trial)
            for run in runs
            for task in run.of(TaskSummary)
            if isinstance(task.trial.task, GenerateTask)
        ],
        "bigcode",
    )
    found = [generate_entries(run) for run in runs]
    one_of("model", [entry.model for entries in found for entry in entries], "bigcode")
    return _own_page(found) + verdict_lines(runs)


def tables(entries: Entries) -> str:
    """The page of an imported table, without its slips."""
    if any(
        value.metric is PublishedMetric.MS_PER_DECODE_STEP for e in entries for value in e.values
    ):
        return _own_page([entries])
    columns = _columns([entries])
    return (
        "# bigcode-inference-benchmark\n\n"
        f"{begins_line(entries[0].model)}, randomly initialised\\\n"
        "transformers, without accelerate\\\n"
        f"{begins_line(entries[0].accelerator)}\n\n"
        f"{RATE_CAPTION} (spread over the batch: no step's latency)\n\n"
        f"{_table(columns, _RATES[:2])}\n"
        f"{_time_caption(entries)}{_table(columns, (PublishedMetric.GENERATE_S,))}"
    )


def _own_page(groups: Sequence[Entries]) -> str:
    """Of a table that tgi-bench measured; groups: entries of each run."""
    entries = [entry for group in groups for entry in group]
    first, runs = entries[0], min(entry.runs or 0 for entry in entries)
    places = list(dict.fromkeys(map(_place, entries)))
    place = (
        begins_line(places[0]) if len(places) == 1 else "Several devices: each column names its own"
    )
    columns = _columns(groups, len(places) > 1)
    return (
        "# bigcode-inference-benchmark\n\n"
        f"Model: {first.model}\\\n"
        "transformers, in processes of tgi-bench's own\\\n"
        f"{first.prompt_tokens} prompt tokens, {first.new_tokens} new tokens, "
        f"the mean of {runs} runs\\\n"
        f"{place}\n\n"
        f"{OWN_CAPTION}\n\n"
        "msec/token is 1000 / (tokens/sec), spread over the batch: no step's latency. msec/step is "
        "the mean time of one decode step of the whole batch.\n\n"
        f"{_table(columns, _RATES)}\n"
        f"{_time_caption(entries)}{_table(columns, (PublishedMetric.GENERATE_S,))}"
    )


def _time_caption(entries: Entries) -> str:
    return f"{TIME_CAPTION} (one generate of {entries[0].new_tokens} new tokens a sequence)\n\n"


def _place(entry: PublishedEntry) -> str:
    """ "NVIDIA L4", or "2 x NVIDIA L4, layers split"."""
    if entry.devices == 1:
        return entry.accelerator
    return f"{entry.devices} x {entry.accelerator}, {entry.parallelism}"


Column = Mapping[int | None, PublishedEntry]
"""By batch size."""


def _columns(groups: Sequence[Entries], several: bool = False) -> Mapping[str, Column]:
    """By header, which tells runs with the same column apart. several: places, which it names."""
    headers = {weights: header for header, weights in WEIGHTS.items()}
    columns: dict[str, dict[int | None, PublishedEntry]] = {}
    for group in groups:
        others = set(columns)
        for entry in group:
            place = f"<br>{_place(entry)}" if several else ""
            header = name = f"{headers[entry.dtype, entry.quantize]}{place}"
            number = 1
            while header in others or entry.batch_size in columns.get(header, {}):
                number += 1
                header = f"{name}, run {number}"
            columns.setdefault(header, {})[entry.batch_size] = entry
    return columns


def _table(columns: Mapping[str, Column], metrics: Sequence[PublishedMetric]) -> str:
    sizes = sorted({size for column in columns.values() for size in column if size is not None})
    rows = tuple(
        (str(size), *(_cell(column.get(size), metrics) for column in columns.values()))
        for size in sizes
    )
    return markdown(Table((FIRST_HEADER, *columns), rows, frozenset(range(len(columns) + 1))))


def _cell(entry: PublishedEntry | None, metrics: Sequence[PublishedMetric]) -> str:
    """Figures as they were printed; blank where nothing was tried."""
    if entry is None or entry.end is None:
        return ""
    if entry.end.outcome is not Outcome.OK:
        return _OOM
    printed = {value.metric: value.printed for value in entry.values}
    return " | ".join(printed.get(metric, UNDEFINED) for metric in metrics)

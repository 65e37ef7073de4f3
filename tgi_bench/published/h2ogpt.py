"""h2oGPT's perf.md: a document's summary and a poem, by bits and GPUs.

What the page leaves out stands in facts.yaml. Figures of direct mode are written in the same
layout: tokens are then the tokenizer's, and the new tokens of a summary stand beside its seconds,
so that rows can be compared; several runs share the tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tgi_bench.analysis.run import Run, TableLayout
from tgi_bench.kinds.direct.columns import ON_CPU, task_asked, verdict_lines
from tgi_bench.kinds.direct.figures import TaskSummary
from tgi_bench.observation import (
    FigureKind,
    Outcome,
    PublishedEntry,
    PublishedMetric,
    PublishedValue,
)
from tgi_bench.published.direct import QUANTIZE, one_of, require_direct, summary_entries
from tgi_bench.published.facts import known
from tgi_bench.published.reading import (
    NO_FIGURE,
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
from tgi_bench.report.table import Table, markdown
from tgi_bench.report.words import UNDEFINED
from tgi_bench.trials.direct import GenerateTask, TaskTrial

Entries = Sequence[PublishedEntry]

_FIRST_HEADERS = ("bits", "gpus", "summarization time [sec]")
_PRINTED_HEADERS = (*_FIRST_HEADERS, "generation speed [tokens/sec]")
_SPEED = "generation speed [characters/4/sec]"
"""For which the page says tokens."""
OWN_SPEED = "generation speed [new tokens/sec]"
"""Of tables that tgi-bench measured."""
_PRINTED_FIGURES = (PublishedMetric.SUMMARIZE_S, PublishedMetric.QUARTER_CHARACTERS_PER_S)
_OWN_FIGURES = (
    PublishedMetric.SUMMARIZE_S,
    PublishedMetric.NEW_TOKENS_PER_S,
    PublishedMetric.SUMMARIZE_NEW_TOKENS,
)
_RUNS = 3
_QUANTIZE = {"16": None, "8": "bitsandbytes", "4": "bitsandbytes-fp4"}
_BITS = {"bitsandbytes": 8, "bitsandbytes-fp4": 4, "bitsandbytes-nf4": 4, "float32": 32}
"""By quantize, else dtype; 16 of any other."""
_NAIVE = "layers split over the devices by device_map, no tensor parallelism"
_OOM = "OOM"

_GPUS = re.compile(r"([1-9]\d{0,3}) x (.+)", re.ASCII)
_MODEL = re.compile(r"#+ Model: (\S.*)", re.ASCII)
_COUNT = re.compile(r"#+ Number of GPUs: ([1-9]\d{0,3})", re.ASCII)
_BACKEND = re.compile(r"#+ Backend: (.+)", re.ASCII)
_BACKEND_KNOWN = "transformers"


@dataclass(slots=True)
class _Place:
    """The headings that a row stands under."""

    model: str | None = None
    devices: int | None = None


def holds(found: Items) -> bool:
    """Whether the document is of this layout."""
    return any(_is_ours(item) for item in found)


def read(found: Items) -> ImportedTable:
    """The page's tables. Raises TableError."""
    place = _Place()
    entries: list[PublishedEntry] = []
    for item in found:
        if isinstance(item, Sentence):
            _heading(item, place)
        elif not _is_ours(item):
            refuse_likeness(item, _PRINTED_HEADERS)
        elif item.headers[0].cells != _PRINTED_HEADERS:
            raise refused(item.line, f"expected the columns {' | '.join(_PRINTED_HEADERS)}")
        else:
            entries.extend(_entry(row, place) for row in item.rows)
    if not any(entry.values for entry in entries):
        raise refused(1, "no figures found under the column `bits`")
    named = _numbered(entries)
    return imported(TableLayout.H2OGPT, named, **_found(named))


def _is_ours(item: PrintedGrid | Sentence) -> bool:
    return isinstance(item, PrintedGrid) and item.headers[0].cells[:3] == _FIRST_HEADERS


def _heading(item: Sentence, place: _Place) -> None:
    if found := _MODEL.fullmatch(item.text):
        place.model = found[1]
    elif found := _COUNT.fullmatch(item.text):
        place.devices = int(found[1])
    elif (found := _BACKEND.fullmatch(item.text)) and found[1] != _BACKEND_KNOWN:
        raise refused(item.line, f"expected backend {_BACKEND_KNOWN}, found `{found[1]}`")


def _entry(row: GridRow, place: _Place) -> PublishedEntry:
    bits, gpus, *_ = row.cells
    found = _GPUS.fullmatch(gpus)
    if bits not in _QUANTIZE:
        raise refused(row.line, f"expected 16, 8 or 4 bits, found `{bits}`")
    if place.model is None or place.devices is None:
        raise refused(row.line, "expected `### Model: NAME` and `### Number of GPUs: N` above")
    if found is None or int(found[1]) != place.devices:
        raise refused(row.line, f"expected `{place.devices} x` and a GPU's name, found `{gpus}`")
    values = tuple(_values(row))
    return PublishedEntry(
        entry_id=f"{bits}bit/{gpus}",
        model=place.model,
        accelerator=found[2],
        devices=place.devices,
        parallelism="" if place.devices == 1 else _NAIVE,
        dtype="float16",
        quantize=_QUANTIZE[bits],
        batch_size=1,
        prompt_tokens=None,
        new_tokens=None,
        runs=_RUNS,
        end=OK if len(values) == len(_PRINTED_FIGURES) else NO_FIGURE,
        values=values,
        doubts=(known("h2ogpt").reason("four_bits"),) if bits == "4" else (),
    )


def _values(row: GridRow) -> Iterator[PublishedValue]:
    slip = known("h2ogpt").reason("quarter_characters")
    for metric, text, reason in zip(_PRINTED_FIGURES, row.cells[2:], ("", slip), strict=True):
        if text not in (_OOM, "nan"):
            value = figure(row, text, "a figure above 0 or OOM")
            yield PublishedValue(metric, FigureKind.MEASURED, value, text, reason)


def _numbered(entries: Entries) -> tuple[PublishedEntry, ...]:
    """Configurations that stand twice are two runs of one: the second is numbered."""
    seen: dict[tuple[str, str], int] = {}
    found = []
    for entry in entries:
        key = (entry.model, entry.entry_id)
        seen[key] = seen.get(key, 0) + 1
        number = "" if seen[key] == 1 else f"#{seen[key]}"
        found.append(replace(entry, entry_id=f"{entry.entry_id}{number}"))
    if len({e.model for e in found}) > 1:
        found = [replace(e, entry_id=f"{e.model}/{e.entry_id}") for e in found]
    return tuple(found)


def _found(entries: Entries) -> dict[str, str]:
    """What only some pages have."""
    found = {}
    if missing := sum(len(entry.values) < 2 for entry in entries):
        found["missing"] = f"{missing} of {len(entries)}"
    if twice := sum(entry.entry_id.endswith("#2") for entry in entries):
        found["twice"] = str(twice)
    return found


def h2ogpt_layout(runs: Sequence[Run]) -> str:
    """The tables of several runs. Raises InputError where their work differs."""
    require_direct(runs)
    trials = [task.trial for run in runs for task in run.of(TaskSummary)]
    work = []
    if summaries := [t for t in trials if not isinstance(t.task, GenerateTask)]:
        asked = one_of("`summarize`", [task_asked(t) for t in summaries], "h2ogpt")
        work.append(f"- Summary: {asked}; {_runs(summaries)}\n")
    if calls := [t for t in trials if isinstance(t.task, GenerateTask) and t.batch_size == 1]:
        asked = one_of("`generate` with batch size 1", [task_asked(t) for t in calls], "h2ogpt")
        work.append(f"- Generation: {asked}; {_runs(calls)}\n")
    entries = [entry for run in runs for entry in summary_entries(run)]
    models = list(dict.fromkeys(entry.model for entry in entries))
    entries.sort(
        key=lambda e: (models.index(e.model), _gpus(e), e.parallelism, -_bits(e), _time(e))
    )
    return tables(entries, own=True) + "\n" + "".join(work) + verdict_lines(runs)


def _runs(trials: Sequence[TaskTrial]) -> str:
    return f"the mean of {min(trial.runs for trial in trials)} runs, batch size 1"


def _time(entry: PublishedEntry) -> float:
    """Rows without a time come last."""
    value = entry.value(PublishedMetric.SUMMARIZE_S)
    return float("inf") if value is None else value


def tables(entries: Entries, own: bool = False) -> str:
    """One for each model and number of GPUs. own: tgi-bench measured their figures."""
    own = own or any(
        v.metric is PublishedMetric.NEW_TOKENS_PER_S for e in entries for v in e.values
    )
    headers = (
        *_FIRST_HEADERS,
        *((OWN_SPEED, "summary [new tokens]", "weights") if own else (_SPEED,)),
    )
    parts = ["## Backend: transformers\n"]
    groups: dict[str, dict[str, list[PublishedEntry]]] = {}
    for entry in entries:
        shared = f", {entry.parallelism}" if own and entry.parallelism else ""
        heading = f"### Number of GPUs: {_gpus(entry)}{shared}"
        groups.setdefault(entry.model, {}).setdefault(heading, []).append(entry)
    for model, by_count in groups.items():
        parts.append(f"### Model: {model}\n")
        for heading, group in by_count.items():
            rows = tuple(_row(entry, own) for entry in group)
            right = frozenset({0, 2, 3, 4} if own else {0, 2, 3})
            parts.append(f"{heading}\n\n{markdown(Table(headers, rows, right))}")
    return "\n".join(parts)


def _row(entry: PublishedEntry, own: bool) -> tuple[str, ...]:
    """Figures as they were printed."""
    printed = {value.metric: value.printed for value in entry.values}
    failed = entry.end is not None and entry.end.outcome is Outcome.OUT_OF_MEMORY
    gpus = _gpus(entry)
    return (
        str(_bits(entry)),
        f"{gpus} x {entry.accelerator}" if gpus else entry.accelerator,
        *(
            printed.get(metric, _OOM if failed else UNDEFINED)
            for metric in (_OWN_FIGURES if own else _PRINTED_FIGURES)
        ),
        *((_weights(entry),) if own else ()),
    )


def _gpus(entry: PublishedEntry) -> int:
    """How many GPUs; 0 on a CPU."""
    return 0 if entry.accelerator.startswith(ON_CPU) else entry.devices


def _bits(entry: PublishedEntry) -> int:
    """Of a weight."""
    return _BITS.get(entry.quantize or entry.dtype or "", 16)


def _weights(entry: PublishedEntry) -> str:
    """In words of our own experiments: "nf4", "float16"."""
    words = {quantize: word for word, quantize in QUANTIZE.items()}
    return words.get(entry.quantize or "", entry.dtype or UNDEFINED)

"""Reads h2oGPT's perf.md: a document's summary and a poem, by bits and GPUs.

What the page leaves out stands in facts.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tgi_bench.analysis.run import LAYOUT, TableLayout
from tgi_bench.errors import TableError
from tgi_bench.observation import (
    FigureKind,
    Outcome,
    PublishedEntry,
    PublishedMetric,
    PublishedValue,
    TrialEnd,
)
from tgi_bench.published.facts import known
from tgi_bench.published.imported_table import OK, ImportedTable, out_of_memory, uncorrected
from tgi_bench.published.reading import Grid, GridRow, Sentence, items, refuse_likeness, refused

HEADERS = ("bits", "gpus", "summarization time [sec]", "generation speed [characters/4/sec]")
"""As our own report has them; the page says tokens for characters / 4."""
OWN_HEADERS = (
    *HEADERS[:3],
    "generation speed [new tokens/sec]",
    "summary [new tokens]",
    "weights",
)
"""Of a table that tgi-bench measured: tokens are the tokenizer's."""
SUMMARY_LINE = "Summary: "
GENERATION_LINE = "Generation: "
OOM = "OOM"
SPEED_AS_PRINTED = "generation speed [tokens/sec]"
RUNS = 3
_WEIGHTS = {"16": None, "8": "bitsandbytes", "4": "bitsandbytes-fp4"}
BITS = {quantize: bits for bits, quantize in _WEIGHTS.items()}
"""By quantize."""
_OWN_WEIGHTS: dict[str, tuple[int, str | None, str | None]] = {
    "float32": (32, "float32", None),
    "float16": (16, "float16", None),
    "bfloat16": (16, "bfloat16", None),
    "int8": (8, None, "bitsandbytes"),
    "nf4": (4, None, "bitsandbytes-nf4"),
    "fp4": (4, None, "bitsandbytes-fp4"),
}
"""Bits, dtype and quantize, by the word in our own column of weights."""
_ON_CPU = "CPU: "
_NAIVE = "layers split over the devices by device_map, no tensor parallelism"

_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,9})?", re.ASCII)
_GPUS = re.compile(r"([1-9]\d{0,3}) x (.+)", re.ASCII)
_MODEL = re.compile(r"#+ Model: (\S.*)", re.ASCII)
_COUNT = re.compile(
    r"#+ Number of GPUs: (0|[1-9]\d{0,3})(?:, (tensor parallel|layers split))?", re.ASCII
)
_RUNS_OF = re.compile(r"the mean of ([1-9]\d{0,8}) runs", re.ASCII)
_BACKEND = re.compile(r"#+ Backend: (.+)", re.ASCII)
_BACKEND_KNOWN = "transformers"
_WORDS = (OOM, "nan")
_CALL = re.compile(
    rf"{GENERATION_LINE}([1-9]\d{{0,8}}) prompt tokens, ([1-9]\d{{0,8}}) new tokens", re.ASCII
)
_NOT_MEASURED = "-"


@dataclass(slots=True)
class _Place:
    """The headings that a row stands under."""

    model: str | None = None
    devices: int | None = None
    parallelism: str = ""


def holds(found: Sequence[Grid | Sentence]) -> bool:
    """Whether the document is of this layout."""
    return any(_is_ours(item) for item in found)


def read(text: str) -> ImportedTable:
    """The page's tables, or our own report's. Raises TableError."""
    place = _Place()
    own, measured = True, False
    entries: list[PublishedEntry] = []
    for item in items(text):
        if isinstance(item, Sentence):
            _heading(item, place)
        elif _is_ours(item) and item.headers[0].cells == OWN_HEADERS:
            measured = True
            entries.extend(_own_entry(row, place) for row in item.rows)
        elif _is_ours(item):
            if item.headers[0].cells[3:] not in ((HEADERS[3],), (SPEED_AS_PRINTED,)):
                raise refused(item.line, f"expected the columns {' | '.join(HEADERS)}")
            printed = item.headers[0].cells[3] == SPEED_AS_PRINTED
            slip = known("h2ogpt").reason("quarter_characters") if printed else ""
            own = own and not slip
            entries.extend(_entry(row, place, slip) for row in item.rows)
        else:
            refuse_likeness(item, (*HEADERS, SPEED_AS_PRINTED))
    runs = [int(n) for n in _RUNS_OF.findall(text)] if measured else []
    if runs:
        entries = [replace(entry, runs=min(runs)) for entry in entries]
    if measured and (call := _CALL.search(text)):
        prompt, new = int(call[1]), int(call[2])
        entries = [replace(e, prompt_tokens=prompt, new_tokens=new) for e in entries]
    named = numbered(entries)
    if not any(entry.values for entry in named):
        raise TableError("line 1: no figures found under the column `bits`")
    if measured:
        written = ((LAYOUT, TableLayout.H2OGPT.value), ("Tables written by", "tgi-bench"))
        return ImportedTable(TableLayout.H2OGPT, named, (*written, *_work(text)))
    facts = known("h2ogpt").facts(**_found(named))
    layout = (LAYOUT, TableLayout.H2OGPT.value)
    return ImportedTable(
        TableLayout.H2OGPT, named, (layout, *(uncorrected(facts) if own else facts))
    )


def _work(text: str) -> tuple[tuple[str, str], ...]:
    """What a table that tgi-bench measured says of its calls."""
    lines = [line.strip().removeprefix("- ") for line in text.splitlines()]
    return tuple(
        (f"Workload, {line.partition(': ')[0].lower()}", line.partition(": ")[2])
        for line in lines
        if line.startswith((SUMMARY_LINE, GENERATION_LINE))
    )


def _is_ours(item: Grid | Sentence) -> bool:
    return isinstance(item, Grid) and item.headers[0].cells[:3] == HEADERS[:3]


def _heading(item: Sentence, place: _Place) -> None:
    if found := _MODEL.fullmatch(item.text):
        place.model = found[1]
    elif found := _COUNT.fullmatch(item.text):
        place.devices, place.parallelism = int(found[1]), found[2] or ""
    elif (found := _BACKEND.fullmatch(item.text)) and found[1] != _BACKEND_KNOWN:
        raise refused(item.line, f"expected backend {_BACKEND_KNOWN}, found `{found[1]}`")


def _entry(row: GridRow, place: _Place, slip: str) -> PublishedEntry:
    bits, gpus, summary, speed = row.cells
    found = _GPUS.fullmatch(gpus)
    if bits not in _WEIGHTS:
        raise refused(row.line, f"expected 16, 8 or 4 bits, found `{bits}`")
    if place.model is None or not place.devices:
        raise refused(row.line, "expected `### Model: NAME` and `### Number of GPUs: N` above")
    if found is None or int(found[1]) != place.devices:
        raise refused(row.line, f"expected `{place.devices} x` and a GPU's name, found `{gpus}`")
    values = tuple(
        value
        for value in (
            _value(row, (PublishedMetric.SUMMARIZE_S, summary), ""),
            _value(row, (PublishedMetric.QUARTER_CHARACTERS_PER_S, speed), slip),
        )
        if value is not None
    )
    return PublishedEntry(
        entry_id=f"{bits}bit/{gpus}",
        model=place.model,
        accelerator=found[2],
        devices=place.devices,
        parallelism="" if place.devices == 1 else _NAIVE,
        dtype="float16",
        quantize=_WEIGHTS[bits],
        batch_size=1,
        prompt_tokens=None,
        new_tokens=None,
        runs=RUNS,
        end=_end(len(values)),
        values=values,
        doubts=(known("h2ogpt").reason("four_bits"),) if bits == "4" else (),
    )


def _own_entry(row: GridRow, place: _Place) -> PublishedEntry:
    """A row of a table that tgi-bench measured."""
    printed, gpus, summary, speed, tokens, kept = row.cells
    if place.model is None or place.devices is None:
        raise refused(row.line, "expected `### Model: NAME` and `### Number of GPUs: N` above")
    if kept not in _OWN_WEIGHTS or printed != str(_OWN_WEIGHTS[kept][0]):
        raise refused(row.line, f"expected weights of {', '.join(_OWN_WEIGHTS)} and their bits")
    found = _GPUS.fullmatch(gpus)
    if place.devices == 0:
        name = gpus if gpus.startswith(_ON_CPU) else ""
    else:
        name = found[2] if found is not None and int(found[1]) == place.devices else ""
    if not name:
        what = f"`{place.devices} x` and a GPU's name" if place.devices else f"`{_ON_CPU}`"
        raise refused(row.line, f"expected {what}, found `{gpus}`")
    cells = (
        (PublishedMetric.SUMMARIZE_S, summary),
        (PublishedMetric.NEW_TOKENS_PER_S, speed),
        (PublishedMetric.SUMMARIZE_NEW_TOKENS, tokens),
    )
    found_values = (_value(row, cell, "") for cell in cells if cell[1] != _NOT_MEASURED)
    values = tuple(value for value in found_values if value is not None)
    ran_out = any(text in _WORDS for _, text in cells)
    entry = PublishedEntry(
        entry_id="",
        model=place.model,
        accelerator=name,
        devices=max(place.devices, 1),
        parallelism=place.parallelism,
        dtype=_OWN_WEIGHTS[kept][1],
        quantize=_OWN_WEIGHTS[kept][2],
        batch_size=1,
        prompt_tokens=None,
        new_tokens=None,
        runs=None,
        end=out_of_memory(OOM) if ran_out else (OK if values else None),
        values=values,
    )
    return replace(entry, entry_id=entry_id(entry))


def weights(entry: PublishedEntry) -> str:
    """The word in our own column of weights."""
    kept = (entry.dtype, entry.quantize)
    return next(word for word, (_, *known) in _OWN_WEIGHTS.items() if tuple(known) == kept)


def bits(entry: PublishedEntry) -> int:
    """Of a weight, by our own column of weights."""
    return _OWN_WEIGHTS[weights(entry)][0]


def gpus(entry: PublishedEntry) -> int:
    """How many GPUs; 0 on a CPU."""
    return 0 if entry.accelerator.startswith(_ON_CPU) else entry.devices


def gpus_cell(entry: PublishedEntry) -> str:
    """ "2 x NVIDIA L4 (23034 MiB)", or the CPU's name."""
    return f"{gpus(entry)} x {entry.accelerator}" if gpus(entry) else entry.accelerator


def count_heading(entry: PublishedEntry) -> str:
    """The heading of the rows with as many GPUs, which share the model in the same way."""
    shared = f", {entry.parallelism}" if entry.parallelism else ""
    return f"### Number of GPUs: {gpus(entry)}{shared}"


def entry_id(entry: PublishedEntry) -> str:
    """Of an entry of ours, before it is numbered."""
    shared = f", {entry.parallelism}" if entry.parallelism else ""
    return f"{weights(entry)}/{gpus_cell(entry)}{shared}"


def _end(figures: int) -> TrialEnd:
    if figures == 2:
        return OK
    return TrialEnd(
        Outcome.OUT_OF_MEMORY, "no figure in the published table; read as out of memory (inferred)"
    )


def _value(row: GridRow, cell: tuple[PublishedMetric, str], reason: str) -> PublishedValue | None:
    metric, text = cell
    if text in _WORDS:
        return None
    if _NUMBER.fullmatch(text) is None or float(text) <= 0:
        raise refused(row.line, f"expected a figure above 0 or OOM, found `{text}`")
    return PublishedValue(metric, FigureKind.MEASURED, float(text), text, reason)


def numbered(entries: Sequence[PublishedEntry]) -> tuple[PublishedEntry, ...]:
    """Configurations that stand twice are two runs of one: the second is numbered."""
    seen: dict[str, int] = {}
    found = []
    for entry in entries:
        key = f"{entry.model}/{entry.entry_id}"
        seen[key] = seen.get(key, 0) + 1
        found.append(
            entry if seen[key] == 1 else replace(entry, entry_id=f"{entry.entry_id}#{seen[key]}")
        )
    if len({e.model for e in found}) > 1:
        found = [replace(e, entry_id=f"{e.model}/{e.entry_id}") for e in found]
    return tuple(found)


def _found(entries: Sequence[PublishedEntry]) -> dict[str, str]:
    """What only some pages have."""
    found = {}
    if missing := sum(len(entry.values) < 2 for entry in entries):
        found["missing"] = f"{missing} of {len(entries)}"
    if twice := sum(entry.entry_id.endswith("#2") for entry in entries):
        found["twice"] = str(twice)
    return found

"""The documents of an imported table that is not of TGI's steps: a page, its tables, a CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tgi_bench.analysis.accelerator_of import published_row
from tgi_bench.analysis.run import Run, TableLayout, layout_of
from tgi_bench.errors import RunFileError
from tgi_bench.inert import all_on_one_line
from tgi_bench.kinds.batch.estimated import section as estimated
from tgi_bench.kinds.kind import TrialKind, View
from tgi_bench.observation import PublishedEntry, PublishedMetric, PublishedValue
from tgi_bench.published import bigcode, h2ogpt, torchcap
from tgi_bench.published.verdict import judge_entries
from tgi_bench.report.json_text import Json
from tgi_bench.report.table import Table, csv_text, markdown
from tgi_bench.report.words import UNDEFINED

TERMS = {
    PublishedMetric.FORWARD_MS: (
        "Runtime",
        "one forward pass over the whole batch, the sum of its kernels' times",
    ),
    PublishedMetric.MEMORY_GIB: ("Memory", "the most that was allocated on one device, in GiB"),
    PublishedMetric.ENERGY_J_PER_TOKEN: (
        "Energy",
        "rated power of all devices x runtime / (batch size x prompt tokens)",
    ),
    PublishedMetric.PROMPT_TOKENS_PER_S: (
        "Throughput",
        "batch size x prompt tokens / runtime",
    ),
    PublishedMetric.GENERATE_S: (
        "sec",
        "wall time of one generate call: prefill and all new tokens of the whole batch",
    ),
    PublishedMetric.NEW_TOKENS_PER_S: ("tokens/sec", "batch size x new tokens / sec"),
    PublishedMetric.MS_PER_NEW_TOKEN: (
        "msec/token",
        "1000 / (tokens/sec): spread over the batch, so no step's latency",
    ),
    PublishedMetric.MS_PER_DECODE_STEP: (
        "msec/step",
        "mean time of one decode step of the whole batch",
    ),
    PublishedMetric.SUMMARIZE_S: (
        "summarization time",
        "wall time of one summary of a document: several generate calls, of unknown lengths where "
        "their new tokens are not given",
    ),
    PublishedMetric.SUMMARIZE_NEW_TOKENS: (
        "summary",
        "new tokens of all calls of one summary",
    ),
    PublishedMetric.QUARTER_CHARACTERS_PER_S: (
        "generation speed",
        "characters of one answer / 4 / the mean wall time of its calls",
    ),
}
"""Name in the tables and formula of each metric."""

ENTRY_CSV_HEADERS = (
    "run_id",
    "entry_id",
    "model",
    "accelerator",
    "accelerator_row",
    "devices",
    "parallelism",
    "dtype",
    "quantize",
    "batch_size",
    "prompt_tokens",
    "new_tokens",
    "runs",
    "outcome",
    "metric",
    "kind",
    "value",
    "printed",
    "reason",
    "doubts",
)

_WORKLOAD_HEADERS = (
    "Models",
    "Accelerators",
    "Devices",
    "Parallelism",
    "Weights",
    "Batch Size",
    "Prompt tokens",
    "New tokens",
    "Runs",
)
_MODEL, _ACCELERATOR, _WEIGHTS, _BATCH_SIZE = 0, 1, 4, 5


_TABLES: dict[TableLayout, Callable[[Sequence[PublishedEntry]], str]] = {
    TableLayout.H2OGPT: h2ogpt.tables,
    TableLayout.BIGCODE: bigcode.tables,
    TableLayout.TORCHCAP: torchcap.tables,
}


def _tables(run: Run) -> str:
    """The tables as they were published. Raises RunFileError where the run names no layout."""
    layout = layout_of(run.environment)
    if layout is None:
        raise RunFileError(f"run {run.run_id}: its environment names no layout of its table")
    return _TABLES[layout](run.of(PublishedEntry))


def entries_csv(run: Run) -> str:
    """One row per entry and figure; an entry without figures has one row without them."""
    rows = tuple(
        (*_shared(run, entry), *figure, "; ".join(entry.doubts))
        for entry in run.of(PublishedEntry)
        for figure in ([_figure(v) for v in entry.values] or [("", "", "", "", "")])
    )
    return csv_text(Table(ENTRY_CSV_HEADERS, rows))


def _shared(run: Run, entry: PublishedEntry) -> tuple[str, ...]:
    sizes = (entry.batch_size, entry.prompt_tokens, entry.new_tokens, entry.runs)
    return (
        run.run_id,
        entry.entry_id,
        entry.model,
        entry.accelerator,
        published_row(entry.accelerator) or "",
        str(entry.devices),
        entry.parallelism,
        entry.dtype or "",
        entry.quantize or "",
        *("" if size is None else str(size) for size in sizes),
        "" if entry.end is None else entry.end.outcome.value,
    )


def _figure(value: PublishedValue) -> tuple[str, ...]:
    return (
        value.metric.value,
        value.kind.value,
        repr(value.value),
        value.printed,
        value.reason,
    )


def _workloads(run: Run) -> str:
    """What each configuration ran; rows that are equal but for one column are one."""
    entries = run.of(PublishedEntry)
    rows = [_workload(entry) for entry in entries]
    for place in (_BATCH_SIZE, _ACCELERATOR, _WEIGHTS, _MODEL):
        rows = _joined(rows, place)
    accelerators = dict.fromkeys(entry.accelerator for entry in entries)
    known = ((name, published_row(name) or UNDEFINED) for name in accelerators)
    return (
        "# Workloads\n\nAs far as the table and its tool say; - is not known.\n\n"
        + markdown(Table(_WORKLOAD_HEADERS, tuple(rows), frozenset({2, 6, 7, 8})))
        + "\n"
        + markdown(Table(("Accelerator", "In the estimate's table"), tuple(known)))
    )


def _workload(entry: PublishedEntry) -> tuple[str, ...]:
    sizes = (entry.batch_size, entry.prompt_tokens, entry.new_tokens, entry.runs)
    return (
        entry.model,
        entry.accelerator,
        str(entry.devices),
        entry.parallelism or UNDEFINED,
        entry.quantize or entry.dtype or UNDEFINED,
        *(UNDEFINED if size is None else str(size) for size in sizes),
    )


def _joined(rows: Sequence[tuple[str, ...]], place: int) -> list[tuple[str, ...]]:
    """Rows that differ in that column only as one row that lists its values.

    Values stand in the order that they first have, so that rows with the same ones are equal.
    """
    values = dict.fromkeys(row[place] for row in rows)
    order = {value: position for position, value in enumerate(values)}
    found: dict[tuple[str, ...], set[str]] = {}
    for row in rows:
        found.setdefault((*row[:place], *row[place + 1 :]), set()).add(row[place])
    return [
        (*key[:place], ", ".join(sorted(joined, key=lambda value: order[value])), *key[place:])
        for key, joined in found.items()
    ]


def _corrections(run: Run) -> str:
    """Each reason once, with the figures that it is of."""
    entries = run.of(PublishedEntry)
    by_reason: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        for value in entry.values:
            if value.reason:
                change = f"{entry.entry_id}, {value.kind.value}: `{value.printed}`"
                if float(value.printed) != value.value:
                    change += f" is {value.value!r}"
                by_reason.setdefault((TERMS[value.metric][0], value.reason), []).append(change)
    if not by_reason:
        return ""
    rows = tuple(
        (term, str(len(changes)), reason, changes[0])
        for (term, reason), changes in by_reason.items()
    )
    headers = ("Quantity", "Figures", "Reason", "First of them")
    return (
        "# Corrected or doubtful figures\n\nrun.db and the CSV document hold each figure as "
        f"printed.\n\n{markdown(Table(headers, rows, frozenset({1})))}"
    )


def _doubts(run: Run) -> str:
    entries = run.of(PublishedEntry)
    by_doubt: dict[str, list[str]] = {}
    for entry in entries:
        for doubt in entry.doubts if entry.values else ():
            by_doubt.setdefault(doubt, []).append(entry.entry_id)
    if not by_doubt:
        return ""
    lines = (f"- {doubt}: {'; '.join(ids)}\n" for doubt, ids in by_doubt.items())
    return f"# Doubts about entries\n\n{''.join(lines)}"


def _terms(run: Run) -> Iterator[tuple[str, str]]:
    """Of the metrics that the table has."""
    values = (value for entry in run.of(PublishedEntry) for value in entry.values)
    yield from (TERMS[metric] for metric in dict.fromkeys(value.metric for value in values))


def _entry(entry: PublishedEntry) -> Json:
    return {
        "entry_id": entry.entry_id,
        "model": entry.model,
        "accelerator": entry.accelerator,
        "accelerator_row": published_row(entry.accelerator),
        "devices": entry.devices,
        "parallelism": entry.parallelism,
        "dtype": entry.dtype,
        "quantize": entry.quantize,
        "batch_size": entry.batch_size,
        "prompt_tokens": entry.prompt_tokens,
        "new_tokens": entry.new_tokens,
        "runs": entry.runs,
        "outcome": None if entry.end is None else entry.end.outcome.value,
        "reason": "" if entry.end is None else entry.end.reason,
        "doubts": list(entry.doubts),
        "values": [
            {
                "metric": v.metric.value,
                "kind": v.kind.value,
                "value": v.value,
                "printed": v.printed,
                "reason": v.reason,
            }
            for v in entry.values
        ],
    }


VIEW: View[PublishedEntry] = View(
    summary=PublishedEntry,
    read=lambda stored: all_on_one_line(stored.store.of_run(PublishedEntry)),
    checks=lambda run: judge_entries(run.of(PublishedEntry)).checks,
    has_figures=lambda entry: bool(entry.values),
    started=lambda entry: bool(entry.values),
    overview=(_tables, estimated, _workloads, _corrections, _doubts),
    terms=_terms,
    data=lambda run: {"entries": [_entry(entry) for entry in run.of(PublishedEntry)]},
    tables={"entries.csv": entries_csv},
    screen=lambda run: Table((), ()),
    keys=1,
)
KIND = TrialKind("published", lambda _: (), lambda: VIEW)

"""Generate calls by batch size and dtype, in the layout of bigcode-inference-benchmark's README.

Two tables, as there: tokens/sec | msec/token, and seconds. msec/token is what it is there, spread
over the batch; the latency of a decode step stands beside it. Several runs share the tables, and
then each column names its device.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from tgi_bench.analysis.run import Run
from tgi_bench.observation import Outcome, PublishedEntry, PublishedMetric
from tgi_bench.plan.task_trial import GenerateTask
from tgi_bench.published import bigcode as b
from tgi_bench.published.direct import generate_entries, one_of, require_direct
from tgi_bench.report.markdown_page import begins_line
from tgi_bench.report.table import Table, markdown
from tgi_bench.report.task_words import task_asked, verdict_lines
from tgi_bench.report.words import UNDEFINED

Entries = Sequence[PublishedEntry]

_RATES = (
    PublishedMetric.NEW_TOKENS_PER_S,
    PublishedMetric.MS_PER_NEW_TOKEN,
    PublishedMetric.MS_PER_DECODE_STEP,
)
_CAPTION = (
    "msec/token is 1000 / (tokens/sec), spread over the batch: no step's latency. msec/step is the "
    "mean time of one decode step of the whole batch."
)


def bigcode_layout(runs: Sequence[Run]) -> str:
    """The tables of several runs. Raises InputError where they are not of one model and work."""
    return bigcode_page(bigcode_entries(runs)) + verdict_lines(runs)


def bigcode_entries(runs: Sequence[Run]) -> tuple[PublishedEntry, ...]:
    """As the importer reads them from the page."""
    require_direct(runs)
    one_of(
        "number of prompt and new tokens in `generate`",
        [
            task_asked(task.trial)
            for run in runs
            for task in run.tasks
            if isinstance(task.trial.task, GenerateTask)
        ],
        "bigcode",
    )
    found = [generate_entries(run) for run in runs]
    one_of("model", [entry.model for entries in found for entry in entries], "bigcode")
    runs_of_each = min(entry.runs or 0 for entries in found for entry in entries)
    columns: dict[b.Column, list[PublishedEntry]] = {}
    for entries in found:
        own: dict[b.Column, list[PublishedEntry]] = {}
        for entry in entries:
            own.setdefault(_free(b.column_of(entry), columns), []).append(entry)
        columns |= own
    sizes = sorted({e.batch_size for c in columns.values() for e in c if e.batch_size is not None})
    several = len({column.place for column in columns}) > 1
    return tuple(
        replace(entry, entry_id=column.entry_id(size, several), runs=runs_of_each)
        for column, made in columns.items()
        for size in sizes
        for entry in [_of_size(made, size)]
    )


def _free(column: b.Column, taken: Collection[b.Column]) -> b.Column:
    """The column, or its next number where another run has it."""
    while column in taken:
        column = replace(column, number=column.number + 1)
    return column


def _of_size(column: Entries, size: int) -> PublishedEntry:
    """The column's entry of that batch size; one without end where it was not tried."""
    blank = replace(column[0], batch_size=size, end=None, values=())
    return next((entry for entry in column if entry.batch_size == size), blank)


def bigcode_page(entries: Entries) -> str:
    """The page of entries as `bigcode_entries` gives them, or the importer."""
    columns = list(dict.fromkeys(b.column_of(entry) for entry in entries))
    sizes = list(dict.fromkeys(entry.batch_size for entry in entries))
    by_place = {(entry.batch_size, b.column_of(entry)): entry for entry in entries}
    places = list(dict.fromkeys(column.place for column in columns))
    headers = (b.FIRST_HEADER, *(column.header(len(places) > 1) for column in columns))
    first = entries[0]

    def table(seconds: bool) -> str:
        rows = tuple(
            (str(size), *(_cell(by_place[size, column], seconds) for column in columns))
            for size in sizes
        )
        right = frozenset(range(len(columns) + 1))
        return markdown(Table(headers, rows, right))

    return (
        "# bigcode-inference-benchmark\n\n"
        f"{b.MODEL_LINE}{first.model}\\\n"
        "transformers, in processes of tgi-bench's own\\\n"
        f"{b.workload_line(first)}\\\n"
        f"{begins_line(places[0]) if len(places) == 1 else b.SEVERAL_DEVICES}\n\n"
        f"{b.RATE_CAPTION}{b.STEP_CAPTION}\n\n{_CAPTION}\n\n"
        f"{table(False)}\n"
        f"{b.TIME_CAPTION} (one generate of {first.new_tokens} new tokens a sequence)\n\n"
        f"{table(True)}"
    )


def _cell(entry: PublishedEntry, seconds: bool) -> str:
    if entry.end is None:
        return ""
    if entry.end.outcome is not Outcome.OK:
        return b.OOM
    metrics = (PublishedMetric.GENERATE_S,) if seconds else _RATES
    found = {value.metric: value.printed for value in entry.values}
    return " | ".join(found.get(metric, UNDEFINED) for metric in metrics)

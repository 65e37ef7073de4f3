"""A document's summary and a generate call by bits and GPUs, in the layout of h2oGPT's perf.md.

Tokens are the tokenizer's, and the new tokens of a summary stand beside its seconds, so that rows
can be compared. Several runs share the tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tgi_bench.analysis.run import Run
from tgi_bench.observation import Outcome, PublishedEntry, PublishedMetric
from tgi_bench.plan.task_trial import GenerateTask, TaskTrial
from tgi_bench.published import h2ogpt as h
from tgi_bench.published.direct import one_of, require_direct, summary_entries
from tgi_bench.report.table import Table, markdown
from tgi_bench.report.task_words import task_asked, verdict_lines
from tgi_bench.report.words import UNDEFINED

Entries = Sequence[PublishedEntry]

_FIGURES = (
    PublishedMetric.SUMMARIZE_S,
    PublishedMetric.NEW_TOKENS_PER_S,
    PublishedMetric.SUMMARIZE_NEW_TOKENS,
)


def h2ogpt_layout(runs: Sequence[Run]) -> str:
    """The tables of several runs. Raises InputError where their work differs."""
    require_direct(runs)
    trials = [task.trial for run in runs for task in run.tasks]
    work = []
    if summaries := [t for t in trials if not isinstance(t.task, GenerateTask)]:
        asked = one_of("`summarize`", [task_asked(t) for t in summaries], "h2ogpt")
        work.append(f"- {h.SUMMARY_LINE}{asked}; {_runs(summaries)}\n")
    if calls := [t for t in trials if isinstance(t.task, GenerateTask) and t.batch_size == 1]:
        asked = one_of("`generate` with batch size 1", [task_asked(t) for t in calls], "h2ogpt")
        work.append(f"- {h.GENERATION_LINE}{asked}; {_runs(calls)}\n")
    return h2ogpt_page(h2ogpt_entries(runs)) + "\n" + "".join(work) + verdict_lines(runs)


def _runs(trials: Sequence[TaskTrial]) -> str:
    return f"the mean of {min(trial.runs for trial in trials)} runs, batch size 1"


def h2ogpt_entries(runs: Sequence[Run]) -> tuple[PublishedEntry, ...]:
    """As the importer reads them from the page: by model, number of GPUs, bits and time.

    Prompt and new tokens are those of the generate call.
    """
    require_direct(runs)
    found = [entry for run in runs for entry in summary_entries(run)]
    sizes = [
        (task.trial.task.prompt_tokens, task.trial.task.new_tokens)
        for run in runs
        for task in run.tasks
        if isinstance(task.trial.task, GenerateTask) and task.trial.batch_size == 1
    ]
    prompt, new = sizes[0] if sizes else (None, None)
    fewest = min(entry.runs or 0 for entry in found)
    models = list(dict.fromkeys(entry.model for entry in found))
    found.sort(
        key=lambda e: (models.index(e.model), h.gpus(e), e.parallelism, -h.bits(e), _time(e))
    )
    return h.numbered(
        [
            replace(e, entry_id=h.entry_id(e), prompt_tokens=prompt, new_tokens=new, runs=fewest)
            for e in found
        ]
    )


def _time(entry: PublishedEntry) -> float:
    """Rows without a time come last."""
    value = entry.value(PublishedMetric.SUMMARIZE_S)
    return float("inf") if value is None else value


def h2ogpt_page(entries: Entries) -> str:
    """The tables of entries as `h2ogpt_entries` gives them, or the importer."""
    parts = ["## Backend: transformers\n"]
    groups: dict[str, dict[str, list[PublishedEntry]]] = {}
    for entry in entries:
        groups.setdefault(entry.model, {}).setdefault(h.count_heading(entry), []).append(entry)
    for model, by_count in groups.items():
        parts.append(f"### Model: {model}\n")
        for heading, group in by_count.items():
            rows = tuple(_row(entry) for entry in group)
            table = markdown(Table(h.OWN_HEADERS, rows, frozenset({0, 2, 3, 4})))
            parts.append(f"{heading}\n\n{table}")
    return "\n".join(parts)


def _row(entry: PublishedEntry) -> tuple[str, ...]:
    printed = {value.metric: value.printed for value in entry.values}
    failed = entry.end is not None and entry.end.outcome is Outcome.OUT_OF_MEMORY
    missing = h.OOM if failed else UNDEFINED
    return (
        str(h.bits(entry)),
        h.gpus_cell(entry),
        *(printed.get(metric, missing) for metric in _FIGURES),
        h.weights(entry),
    )

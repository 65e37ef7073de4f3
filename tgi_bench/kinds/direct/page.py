"""report.md of direct mode: figures of each model, batch size and document."""

from __future__ import annotations

from tgi_bench.analysis.run import Run
from tgi_bench.analysis.telemetry import TELEMETRY_DEFINITIONS
from tgi_bench.kinds.devices import devices_section
from tgi_bench.kinds.direct import columns as figures
from tgi_bench.kinds.direct import words as task_words
from tgi_bench.kinds.direct.columns import RUN, SIZES, SPEED, STEP, DirectRow, task_rows
from tgi_bench.kinds.direct.figures import DirectRecord, TaskSummary
from tgi_bench.kinds.direct.summary import TASK_DEFINITIONS
from tgi_bench.kinds.index import reproduce
from tgi_bench.kinds.sections import environment, verdict
from tgi_bench.plan.task_trial import GenerateTask, SummarizeTask
from tgi_bench.report import units
from tgi_bench.report.column import VERDICT, Column, Grid, of
from tgi_bench.report.table import Table, markdown
from tgi_bench.report.words import (
    NOT_FINISHED,
    UNDEFINED,
    origin_line,
    outcome_words,
    short_reason,
)

_PROMPT, _NEW, _CALLS = SIZES
_PER_S, _ = SPEED
_GENERATE: tuple[Column[DirectRow], ...] = (
    figures.MODEL,
    figures.BATCH_SIZE,
    *of(DirectRow.figures, (*SPEED, *STEP, *figures.PREFILL, RUN[0], *figures.BESIDE)),
    VERDICT,
)
_FACTS: tuple[Column[DirectRecord], ...] = of(lambda record: record.facts, figures.FACTS)
_SUMMARIZE: tuple[Column[DirectRow], ...] = (
    figures.MODEL,
    *of(DirectRow.figures, (*RUN, _CALLS, _PROMPT, _NEW, _PER_S, STEP[0], *figures.BESIDE)),
    VERDICT,
)


def task_page(run: Run) -> str:
    """The page of a run of direct mode."""
    state = "." if run.finished else "; the sweep is not finished."
    sections = (
        f"# {run.plan.experiment}: {run.plan.model}\n",
        f"{origin_line(run)}\n",
        f"Run {run.run_id}. Verdict: **{run.verdict.word}**{state}\n",
        _models(run),
        _generates(run),
        _largest(run),
        _summaries(run),
        _without_figures(run),
        devices_section(run, {task.trial.trial_id for task in run.of(TaskSummary)}),
        verdict(run),
        reproduce(run),
        environment(run),
        _definitions(run),
    )
    return "\n".join(section for section in sections if section)


def _models(run: Run) -> str:
    """What was loaded, and the versions that loaded it."""
    columns: tuple[Column[DirectRecord], ...] = (
        Column("", lambda record: record.model.model_id, "Weights", units.NAME),
        Column("", lambda record: task_words.device(run, record), "Device", units.NAME),
        Column("", lambda record: record.model.devices, "Devices"),
        Column("", lambda r: task_words.parallelism(r.model) or None, "Parallelism", units.WORD),
        *_FACTS,
    )
    said: dict[str, dict[str, None]] = {}
    for record in run.of(DirectRecord):
        for name, value in () if record.facts is None else record.facts.details:
            said.setdefault(name, {})[value] = None
    details = "".join(f"- {name}: {', '.join(values)}\n" for name, values in said.items())
    tokenizers = dict.fromkeys(
        r.facts.tokenizer for r in run.of(DirectRecord) if r.facts is not None
    )
    if tokenizers:
        details += f"- tokens counted by: {', '.join(tokenizers)}\n"
    drawn = "Weights are random: steps take as long as with trained ones, texts mean nothing.\n\n"
    random = any(record.model.random_weights for record in run.of(DirectRecord))
    table = markdown(Grid(columns, run.of(DirectRecord)).page())
    return f"# Models\n\n{drawn if random else ''}{table}\n{details}"


def _generates(run: Run) -> str:
    """A table for each number of prompt and new tokens, a row for each model and batch size."""
    by_asked = _by_asked(run, GenerateTask)
    text = "# Generate\n" if by_asked else ""
    for asked, rows in by_asked.items():
        models = list(dict.fromkeys(row.task.trial.model for row in rows))
        rows.sort(key=lambda row: (models.index(row.task.trial.model), row.found.batch_size))
        text += f"\n## {asked}\n\n{markdown(Grid(_GENERATE, rows, DirectRow.word).page())}"
    return text


def _by_asked(run: Run, kind: type[GenerateTask | SummarizeTask]) -> dict[str, list[DirectRow]]:
    found: dict[str, list[DirectRow]] = {}
    for task in run.of(TaskSummary):
        if isinstance(task.trial.task, kind):
            rows = found.setdefault(task_words.task_asked(task.trial), [])
            rows += task_rows(run, [task])
    return found


def _largest(run: Run) -> str:
    """What searches found."""
    sought = [task for task in run.of(TaskSummary) if task.trial.batch_size is None]
    lines = "".join(
        f"- {task.trial.model.model_id}, {task_words.task_asked(task.trial)}: {_answer(task)}\n"
        for task in sought
    )
    return f"# Largest batch size\n\n{lines}" if lines else ""


def _answer(task: TaskSummary) -> str:
    found = task.largest
    if found is None:
        return NOT_FINISHED
    if found.fits is None:
        return f"**none**: not even {found.too_large} fits"
    if found.too_large is None:
        return f"**{found.fits}** fits; none larger was tried"
    so_far = "" if task.end is not None else ", so far"
    return f"**{found.fits}** fits and {found.too_large} does not{so_far}"


def _summaries(run: Run) -> str:
    """A table for each document, a row for each model."""
    by_asked = _by_asked(run, SummarizeTask)
    text = "# Summarize\n" if by_asked else ""
    for asked, rows in sorted(by_asked.items()):
        text += f"\n## {asked}\n\n{markdown(Grid(_SUMMARIZE, rows, DirectRow.word).page())}"
    return text


def _without_figures(run: Run) -> str:
    """Every trial and every batch size that did not end OK, with its reason."""
    rows = []
    for task in run.of(TaskSummary):
        name = task.trial.trial_id
        size = ", batch size {}" if task.trial.batch_size is None else ""
        ends = [
            (name + size.format(row.found.batch_size), row.end)
            for row in task_rows(run, [task])
            if row.word() is not None
        ]
        for named, end in ends if task.figures else [(name, task.end)]:
            reason = UNDEFINED if end is None else short_reason(end.reason) or UNDEFINED
            rows.append((named, outcome_words(end), reason))
    if not rows:
        return ""
    return "# Trials without figures\n\n" + markdown(
        Table(("Trial", "Outcome", "Reason"), tuple(rows))
    )


def _definitions(run: Run) -> str:
    used = TELEMETRY_DEFINITIONS if any(seen.devices for seen in run.telemetry) else ()
    terms = (*TASK_DEFINITIONS[:-1], *used, TASK_DEFINITIONS[-1])
    lines = "".join(f"- **{term}**: {text}.\n" for term, text in terms)
    return f"# Definitions\n\n{lines}"

"""The pages' parts about direct mode: figures of each model, batch size and document."""

from __future__ import annotations

from collections.abc import Iterator

from tgi_bench.analysis.run import Run
from tgi_bench.inert import all_on_one_line, on_one_line
from tgi_bench.kinds.direct import columns as figures
from tgi_bench.kinds.direct.columns import (
    RUN,
    SIZES,
    SPEED,
    STEP,
    DirectRow,
    model_json,
    task_json,
    task_rows,
    tasks_csv,
    tasks_on_screen,
)
from tgi_bench.kinds.direct.figures import (
    TASK_DEFINITIONS,
    DirectRecord,
    TaskSummary,
    summarise_task,
)
from tgi_bench.kinds.direct.rules import mends, rows_of, task_checks
from tgi_bench.kinds.kind import NoFigures, Stored, View
from tgi_bench.kinds.measured_windows import measured_tasks
from tgi_bench.report import units
from tgi_bench.report.column import VERDICT, Column, Grid, of
from tgi_bench.report.json_text import Json
from tgi_bench.report.table import markdown
from tgi_bench.report.words import (
    NOT_FINISHED,
    UNDEFINED,
    outcome_words,
    short_reason,
)
from tgi_bench.task_observation import DirectFacts, TaskRun
from tgi_bench.trials.direct import GenerateTask, SummarizeTask

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


def _models(run: Run) -> str:
    """What was loaded, and the versions that loaded it."""
    columns: tuple[Column[DirectRecord], ...] = (
        Column("", lambda record: record.model.model_id, "Weights", units.NAME),
        Column("", lambda record: figures.device(run, record), "Device", units.NAME),
        Column("", lambda record: record.model.devices, "Devices"),
        Column("", lambda r: figures.parallelism(r.model) or None, "Parallelism", units.WORD),
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
            rows = found.setdefault(figures.task_asked(task.trial), [])
            rows += task_rows(run, [task])
    return found


def _largest(run: Run) -> str:
    """What searches found."""
    sought = [task for task in run.of(TaskSummary) if task.trial.batch_size is None]
    lines = "".join(
        f"- {task.trial.model.model_id}, {figures.task_asked(task.trial)}: {_answer(task)}\n"
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


def _unfinished(run: Run) -> Iterator[NoFigures]:
    """Every trial and every batch size that did not end OK, with its reason."""
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
            yield NoFigures(named, outcome_words(end), reason)


def _read(stored: Stored) -> Iterator[TaskSummary | DirectRecord]:
    store = stored.store
    for trial in stored.plan.task_trials:
        runs = tuple(store.seen(trial.trial_id, TaskRun))
        yield summarise_task(trial, runs, stored.ends.get(trial.trial_id))
    for model in stored.plan.direct_models:
        facts = all_on_one_line(store.facts(model.model_id, DirectFacts))
        yield DirectRecord(model, facts, on_one_line(store.failure(model.model_id)))


def _data(run: Run) -> dict[str, Json]:
    word = run.verdict.word_of
    return {
        "models": [model_json(record) for record in run.of(DirectRecord)],
        "tasks": [task_json(task, word(task.trial_id, None)) for task in run.of(TaskSummary)],
    }


VIEW: View[TaskSummary] = View(
    summary=TaskSummary,
    read=_read,
    measured=lambda _store, task, _seen: measured_tasks(task),
    has_figures=lambda task: bool(rows_of(task)),
    started=lambda task: bool(task.figures),
    figureless="choose a smaller batch_size, prompt_tokens or model, or another dtype",
    mends=mends,
    checks=task_checks,
    overview=(_models, _generates, _largest, _summaries),
    terms=lambda _: TASK_DEFINITIONS,
    unfinished=_unfinished,
    data=_data,
    tables={"tasks.csv": tasks_csv},
    screen=tasks_on_screen,
    keys=3,
    means="tasks",
)

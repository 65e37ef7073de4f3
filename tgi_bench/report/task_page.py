"""report.md of direct mode: figures of each model, batch size and document."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from tgi_bench.analysis.distribution import Distribution
from tgi_bench.analysis.run import Run
from tgi_bench.analysis.task_run import DirectRecord, TaskFigures, TaskSummary
from tgi_bench.analysis.task_summary import TASK_DEFINITIONS
from tgi_bench.analysis.telemetry import TELEMETRY_DEFINITIONS
from tgi_bench.observation import Outcome
from tgi_bench.plan.task_trial import GenerateTask
from tgi_bench.report import task_words
from tgi_bench.report.index import reproduce
from tgi_bench.report.table import Table, markdown
from tgi_bench.report.telemetry_section import devices_section
from tgi_bench.report.verdict import environment, verdict
from tgi_bench.report.words import (
    NOT_FINISHED,
    UNDEFINED,
    cell_word,
    milliseconds,
    origin_line,
    short_reason,
)

_GIB = 2**30
_GENERATE_HEADERS = (
    "Weights",
    "Batch Size",
    "tokens/sec",
    "msec/token",
    "msec/step",
    "step p50",
    "step p99",
    "Prefill",
    "sec",
    "Peak memory",
    "Verdict",
)
_SUMMARIZE_HEADERS = (
    "Weights",
    "sec",
    "lowest",
    "highest",
    "Calls",
    "Prompt tokens",
    "New tokens",
    "tokens/sec",
    "msec/step",
    "Peak memory",
    "Verdict",
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
        devices_section(run, {task.trial.trial_id for task in run.tasks}),
        verdict(run),
        reproduce(run),
        environment(run),
        _definitions(run),
    )
    return "\n".join(section for section in sections if section)


def _models(run: Run) -> str:
    """What was loaded, and the versions that loaded it."""
    headers = (
        "Weights",
        "Device",
        "Devices",
        "Parallelism",
        "In effect",
        "Parameters",
        "Size of weights",
        "Loaded in",
    )
    rows = tuple(_model_row(run, record) for record in run.models)
    said: dict[str, dict[str, None]] = {}
    for record in run.models:
        for name, value in () if record.facts is None else record.facts.details:
            said.setdefault(name, {})[value] = None
    details = "".join(f"- {name}: {', '.join(values)}\n" for name, values in said.items())
    tokenizers = dict.fromkeys(r.facts.tokenizer for r in run.models if r.facts is not None)
    if tokenizers:
        details += f"- tokens counted by: {', '.join(tokenizers)}\n"
    drawn = "Weights are random: steps take as long as with trained ones, texts mean nothing.\n\n"
    random = any(record.model.random_weights for record in run.models)
    table = markdown(Table(headers, rows, frozenset({2, 5, 6, 7})))
    return f"# Models\n\n{drawn if random else ''}{table}\n{details}"


def _model_row(run: Run, record: DirectRecord) -> tuple[str, ...]:
    model, facts = record.model, record.facts
    place = (
        model.model_id,
        task_words.device(run, record),
        str(model.devices),
        task_words.parallelism(model) or UNDEFINED,
    )
    if facts is None:
        return (*place, *[UNDEFINED] * 4)
    return (
        *place,
        facts.dtype,
        f"{facts.parameters:,}",
        f"{facts.weights_bytes / _GIB:.2f} GiB",
        f"{facts.load_ns / 1e9:.1f} s",
    )


def _generates(run: Run) -> str:
    """A table for each number of prompt and new tokens, a row for each model and batch size."""
    tasks = [t for t in run.tasks if isinstance(t.trial.task, GenerateTask)]
    by_asked: dict[str, list[tuple[TaskSummary, TaskFigures]]] = {}
    for task in tasks:
        rows = by_asked.setdefault(task_words.task_asked(task.trial), [])
        rows += [(task, figures) for figures in task.figures]
    text = "" if not by_asked else "# Generate\n"
    for asked, rows in by_asked.items():
        models = list(dict.fromkeys(task.trial.model.model_id for task, _ in rows))
        rows.sort(key=lambda row: (models.index(row[0].trial.model.model_id), row[1].batch_size))
        cells = tuple(
            (
                task.trial.model.model_id,
                str(f.batch_size),
                *_generate_cells(f),
                run.verdict.word_of(task.trial.trial_id, None),
            )
            for task, f in rows
        )
        table = markdown(Table(_GENERATE_HEADERS, cells, frozenset(range(1, 10))))
        text += f"\n## {asked}\n\n{table}"
    return text


def _generate_cells(figures: TaskFigures) -> tuple[str, ...]:
    if (word := _word(figures)) is not None:
        return (word,) * 8
    step = figures.decode_step
    return (
        _rate(figures.new_tokens_per_s),
        UNDEFINED if figures.ns_per_new_token is None else f"{figures.ns_per_new_token / 1e6:.4g}",
        UNDEFINED if step is None else f"{step.mean / 1e6:.4g}",
        _milliseconds(step, "p50"),
        _milliseconds(step, "p99"),
        UNDEFINED if figures.prefill is None else milliseconds(figures.prefill.mean),
        UNDEFINED if figures.run is None else f"{figures.run.mean / 1e9:.4g}",
        _gib(figures.peak_bytes),
    )


def _word(figures: TaskFigures) -> str | None:
    """What stands in the cells of a batch size without figures; None where it has some."""
    if figures.end is not None and figures.end.outcome is Outcome.OK and figures.runs:
        return None
    word = cell_word(figures.end)
    return word.lower() if word == "OOM" else word


def _largest(run: Run) -> str:
    """What searches found."""
    sought = [task for task in run.tasks if task.trial.batch_size is None]
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
    tasks = [t for t in run.tasks if not isinstance(t.trial.task, GenerateTask)]
    text = "" if not tasks else "# Summarize\n"
    for asked, group in groupby(
        sorted(tasks, key=lambda t: task_words.task_asked(t.trial)),
        key=lambda t: task_words.task_asked(t.trial),
    ):
        rows = tuple(
            (
                task.trial.model.model_id,
                *_summary_cells(task.figures),
                run.verdict.word_of(task.trial.trial_id, None),
            )
            for task in group
        )
        table = markdown(Table(_SUMMARIZE_HEADERS, rows, frozenset(range(1, 10))))
        text += f"\n## {asked}\n\n{table}"
    return text


def _summary_cells(figures: Sequence[TaskFigures]) -> tuple[str, ...]:
    f = figures[0]
    if (word := _word(f)) is not None or f.run is None:
        return (word or UNDEFINED,) * 9
    return (
        *(f"{ns / 1e9:.4g}" for ns in (f.run.mean, f.run.lowest, f.run.highest)),
        *(UNDEFINED if n is None else str(n) for n in (f.calls, f.prompt_tokens, f.new_tokens)),
        _rate(f.new_tokens_per_s),
        UNDEFINED if f.decode_step is None else f"{f.decode_step.mean / 1e6:.4g}",
        _gib(f.peak_bytes),
    )


def _without_figures(run: Run) -> str:
    """Every trial and every batch size that did not end OK, with its reason."""
    rows = []
    for task in run.tasks:
        for figures in task.figures:
            if _word(figures) is not None:
                end = figures.end
                word = NOT_FINISHED if end is None else end.outcome.value.replace("_", " ")
                name = task.trial.trial_id
                if task.trial.batch_size is None:
                    name += f", batch size {figures.batch_size}"
                reason = UNDEFINED if end is None else short_reason(end.reason) or UNDEFINED
                rows.append((name, word, reason))
        if not task.figures:
            word, reason = NOT_FINISHED, UNDEFINED
            if task.end is not None:
                word = task.end.outcome.value.replace("_", " ")
                reason = short_reason(task.end.reason) or UNDEFINED
            rows.append((task.trial.trial_id, word, reason))
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


def _rate(rate: float | None) -> str:
    return UNDEFINED if rate is None else f"{rate:.2f}"


def _milliseconds(found: Distribution | None, which: str) -> str:
    value = None if found is None else found.p50 if which == "p50" else found.p99
    return UNDEFINED if value is None else f"{value / 1e6:.4g}"


def _gib(size: int | None) -> str:
    return UNDEFINED if size is None else f"{size / _GIB:.2f} GiB"

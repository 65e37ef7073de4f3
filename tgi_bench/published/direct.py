"""Runs of direct mode as entries of the published tables that did the same work.

Figures are rounded here, to what the tables print, so that a table that is imported gives the
same entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tgi_bench.analysis.run import Run
from tgi_bench.errors import InputError
from tgi_bench.kinds.direct import columns as task_words
from tgi_bench.kinds.direct.figures import DirectRecord, TaskFigures, TaskSummary
from tgi_bench.observation import (
    FigureKind,
    Outcome,
    PublishedEntry,
    PublishedMetric,
    PublishedValue,
    TrialEnd,
)
from tgi_bench.trials.direct import GenerateTask

QUANTIZE = {"int8": "bitsandbytes", "nf4": "bitsandbytes-nf4", "fp4": "bitsandbytes-fp4"}
"""text-generation-launcher's word for weights that are not of a dtype."""

_DIGITS = 6
_MOST_DECIMALS = 6
_OUT_OF_MEMORY = (Outcome.OUT_OF_MEMORY, Outcome.SKIPPED)


def require_direct(runs: Sequence[Run]) -> None:
    """Raise InputError where a run is not of direct mode: it has no figures of these tables."""
    for run in runs:
        if not run.of(TaskSummary):
            raise InputError(
                f"run {run.run_id} is not of direct mode: --layout needs runs of experiments with "
                "`backend: transformers`"
            )


def one_of(what: str, values: Sequence[str], layout: str) -> str:
    """The one value that all runs have; InputError where they differ or there is none."""
    distinct = list(dict.fromkeys(values))
    if not distinct:
        raise InputError(f"the layout {layout} needs {what}, and no run has any")
    if len(distinct) > 1:
        raise InputError(
            f"the layout {layout} compares runs of one {what}, and these differ: "
            f"{'; '.join(distinct)}. Give each an experiment of its own"
        )
    return distinct[0]


def generate_entries(run: Run) -> tuple[PublishedEntry, ...]:
    """One entry for each model and batch size of generate, as bigcode's tables have them."""
    records = {record.model.model_id: record for record in run.of(DirectRecord)}
    return tuple(
        _generate_entry(run, records[task.trial.model.model_id], (task.trial.task, figures))
        for task in run.of(TaskSummary)
        if isinstance(task.trial.task, GenerateTask)
        for figures in _once(run, task)
    )


def _once(run: Run, task: TaskSummary) -> tuple[TaskFigures, ...]:
    """A search's batch sizes that have no trial of their own."""
    if task.trial.batch_size is not None:
        return task.figures
    own = {
        other.trial.batch_size
        for other in run.of(TaskSummary)
        if other.trial.model == task.trial.model and isinstance(other.trial.task, GenerateTask)
    }
    return tuple(f for f in task.figures if f.batch_size not in own)


def _generate_entry(
    run: Run, record: DirectRecord, found: tuple[GenerateTask, TaskFigures]
) -> PublishedEntry:
    task, figures = found
    values: tuple[PublishedValue, ...] = ()
    if _is_good(figures):
        values = _values(
            (PublishedMetric.NEW_TOKENS_PER_S, figures.new_tokens_per_s),
            (PublishedMetric.MS_PER_NEW_TOKEN, _ms(figures.ns_per_new_token)),
            (PublishedMetric.MS_PER_DECODE_STEP, _step(figures)),
            (PublishedMetric.GENERATE_S, _seconds(figures)),
        )
    return replace(
        _entry(run, record, values),
        batch_size=figures.batch_size,
        prompt_tokens=task.prompt_tokens,
        new_tokens=task.new_tokens,
        runs=min(
            t.trial.runs for t in run.of(TaskSummary) if isinstance(t.trial.task, GenerateTask)
        ),
        end=end_of(figures),
    )


def _entry(run: Run, record: DirectRecord, values: tuple[PublishedValue, ...]) -> PublishedEntry:
    """Of batch size 1. runs: the fewest of any trial that is in the tables."""
    weights = task_words.weights(record)
    if weights not in task_words.WEIGHTS:
        raise InputError(
            f"weights of {weights}: no column of the layout is theirs; leave --layout out"
        )
    return PublishedEntry(
        entry_id="",
        model=task_words.model_name(record.model),
        accelerator=task_words.device(run, record),
        devices=record.model.devices,
        parallelism=task_words.parallelism(record.model),
        dtype=None if weights in QUANTIZE else weights,
        quantize=QUANTIZE.get(weights),
        batch_size=1,
        prompt_tokens=None,
        new_tokens=None,
        runs=min(task.trial.runs for task in run.of(TaskSummary)),
        end=TrialEnd(Outcome.OK, "") if values else None,
        values=values,
    )


def summary_entries(run: Run) -> tuple[PublishedEntry, ...]:
    """One entry for each model: its summary and its generate call of batch size 1."""
    return tuple(_summary_entry(run, record) for record in run.of(DirectRecord))


def _summary_entry(run: Run, record: DirectRecord) -> PublishedEntry:
    tasks = [task for task in run.of(TaskSummary) if task.trial.model == record.model]
    call = next((f for t in tasks for f in _generates(t) if f.batch_size == 1), None)
    summary = next((t.figures[0] for t in tasks if _is_summary(t) and t.figures), None)
    ends = [end_of(figures) for figures in (summary, call) if figures is not None]
    bad = next((e for e in ends if e is not None and e.outcome is not Outcome.OK), None)
    ran = call if call is not None and _is_good(call) else None
    good = summary if summary is not None and _is_good(summary) else None
    values = _values(
        (PublishedMetric.SUMMARIZE_S, _seconds(good)),
        (PublishedMetric.NEW_TOKENS_PER_S, None if ran is None else ran.new_tokens_per_s),
        (PublishedMetric.SUMMARIZE_NEW_TOKENS, None if good is None else good.new_tokens),
    )
    entry = replace(
        _entry(run, record, values), accelerator=task_words.device_with_memory(run, record)
    )
    return entry if bad is None else replace(entry, end=bad)


def _generates(task: TaskSummary) -> tuple[TaskFigures, ...]:
    return task.figures if isinstance(task.trial.task, GenerateTask) else ()


def _is_summary(task: TaskSummary) -> bool:
    return not isinstance(task.trial.task, GenerateTask)


def _is_good(figures: TaskFigures) -> bool:
    return figures.end is not None and figures.end.outcome is Outcome.OK and figures.runs > 0


def end_of(figures: TaskFigures) -> TrialEnd | None:
    """OK, out of memory, or None: the tables have no word for anything else."""
    if _is_good(figures):
        return TrialEnd(Outcome.OK, "")
    if figures.end is not None and figures.end.outcome in _OUT_OF_MEMORY:
        return TrialEnd(Outcome.OUT_OF_MEMORY, figures.end.reason)
    return None


def _values(*found: tuple[PublishedMetric, float | None]) -> tuple[PublishedValue, ...]:
    return tuple(
        PublishedValue(metric, FigureKind.MEASURED, float(printed(value)), printed(value), "")
        for metric, value in found
        if value is not None
    )


def printed(value: float) -> str:
    """A count as it is; six significant digits, two decimals at least and six at most."""
    if isinstance(value, int):
        return str(value)
    whole = len(str(int(value))) if value >= 1 else 0
    decimals = min(_MOST_DECIMALS, max(2, _DIGITS - whole))
    return f"{value:.{decimals}f}"


def _seconds(figures: TaskFigures | None) -> float | None:
    return None if figures is None or figures.run is None else figures.run.mean / 1e9


def _step(figures: TaskFigures) -> float | None:
    return None if figures.decode_step is None else figures.decode_step.mean / 1e6


def _ms(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6

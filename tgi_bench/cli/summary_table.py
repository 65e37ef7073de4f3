"""The table that a sweep ends with on the screen."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from tgi_bench.analysis.run import Run
from tgi_bench.analysis.task_run import TaskFigures, TaskSummary
from tgi_bench.cli.folded_table import print_folded
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.report.batch_figures import batches_on_screen
from tgi_bench.report.durations import duration
from tgi_bench.report.load_figures import loads_on_screen
from tgi_bench.report.load_goals import goals_line, missed_lines
from tgi_bench.report.load_search import answer
from tgi_bench.report.table import Table

_LEFT = ("Deployment", "Outcome", "Load", "Model", "Task", "SLOs", "Verdict")
_TASK_HEADERS = (
    "Model",
    "Task",
    "Batch",
    "Outcome",
    "Run",
    "Prefill",
    "Decode step",
    "Tokens/s",
    "Verdict",
)


def print_summary(console: Console, run: Run) -> None:
    """A row for each trial and each stage of a load, then the verdict with what failed, and what
    was missed."""
    if run.tasks:
        tasks = [_task_cells(run, t, figures) for t in run.tasks for figures in t.figures]
        _print_table(console, _TASK_HEADERS, tasks, 3)
    elif run.trials or not run.loads:
        console.print()
        print_folded(console, batches_on_screen(run), 3, named=True)
    if run.loads:
        console.print()
        print_folded(console, loads_on_screen(run), 2, named=True)
    for load in run.loads:
        if load.trial.find is not None:
            console.print()
            said = answer(load, load.trial.find).replace("**", "")
            line = f"{load.trial.trial_id}: {said}"
            console.print(line, markup=False, highlight=False, soft_wrap=not console.is_terminal)
    console.print()
    goals = goals_line(run)
    ends = f"; {goals}" if goals else ""
    console.print(
        f"{_means(run)}{run.origin.value}; verdict: {run.verdict.word}{ends}",
        markup=False,
        highlight=False,
    )
    lines = [
        f"  failed: {check.name}: {check.finding}. Remedy: {check.remedy}"
        for check in run.verdict.checks
        if not check.passed
    ]
    lines += [f"  missed: {line}" for line in missed_lines(run)]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=not console.is_terminal)


def _means(run: Run) -> str:
    """Which of the latencies above are means: those of batches."""
    if not run.loads:
        return "means, "
    return "batches: means; " if run.trials else ""


def _print_table(
    console: Console, headers: Sequence[str], rows: Sequence[tuple[str, ...]], keys: int
) -> None:
    """keys: columns that tell a row from others, of which the first may be long."""
    right = frozenset(i for i, name in enumerate(headers) if name not in _LEFT)
    console.print()
    print_folded(console, Table(tuple(headers), tuple(rows), right), keys, named=True)


def _task_cells(run: Run, task: TaskSummary, figures: TaskFigures) -> tuple[str, ...]:
    shown = figures.end is not None and figures.end.outcome is Outcome.OK
    found = (figures.run, figures.prefill, figures.decode_step)
    rate = figures.new_tokens_per_s if shown else None
    return (
        task.trial.model.model_id,
        task.trial.trial_id.partition("/")[2],
        str(figures.batch_size),
        _outcome(figures.end),
        *("-" if d is None or not shown else duration(d.mean / 1e9) for d in found),
        "-" if rate is None else f"{rate:.1f}",
        run.verdict.word_of(task.trial.trial_id, None),
    )


def _outcome(end: TrialEnd | None) -> str:
    return "not finished" if end is None else end.outcome.value.replace("_", " ")

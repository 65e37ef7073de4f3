"""The table that a sweep ends with on the screen."""

from __future__ import annotations

from rich.console import Console

from tgi_bench.analysis.run import Run
from tgi_bench.cli.tables import print_folded
from tgi_bench.kinds.batch.columns import batches_on_screen
from tgi_bench.kinds.batch.metrics import TrialSummary
from tgi_bench.kinds.direct.columns import tasks_on_screen
from tgi_bench.kinds.direct.figures import TaskSummary
from tgi_bench.kinds.load.columns import loads_on_screen
from tgi_bench.kinds.load.figures import LoadSummary
from tgi_bench.kinds.load.goals import goals_line, missed_lines
from tgi_bench.kinds.load.search_page import answer
from tgi_bench.report.table import Table


def print_summary(console: Console, run: Run) -> None:
    """A row for each trial and each stage of a load, then the verdict with what failed, and what
    was missed."""
    if run.of(TaskSummary):
        _print(console, tasks_on_screen(run), 3)
    elif run.of(TrialSummary) or not run.of(LoadSummary):
        _print(console, batches_on_screen(run), 3)
    if run.of(LoadSummary):
        _print(console, loads_on_screen(run), 2)
    for load in run.of(LoadSummary):
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
    if not run.of(LoadSummary):
        return "means, "
    return "batches: means; " if run.of(TrialSummary) else ""


def _print(console: Console, table: Table, keys: int) -> None:
    """keys: columns that tell a row from others, of which the first may be long."""
    console.print()
    print_folded(console, table, keys, named=True)

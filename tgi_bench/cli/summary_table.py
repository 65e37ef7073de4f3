"""The table that a sweep ends with on the screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from tgi_bench.analysis.run import Run
from tgi_bench.cli.tables import print_folded
from tgi_bench.kinds.kind import Kinds, View, views
from tgi_bench.report.table import Table


def print_summary(console: Console, run: Run, kinds: Kinds) -> None:
    """A row for each trial and each stage of a load, then the verdict with what failed, and what
    was missed."""
    of_run = views(run, kinds)
    for view in of_run:
        _print(console, view.screen(run), view.keys)
    for line in (line for view in of_run for line in view.answers(run)):
        console.print()
        console.print(line, markup=False, highlight=False, soft_wrap=not console.is_terminal)
    console.print()
    goals = [line for view in of_run if (line := view.goals(run))]
    said = "; ".join((f"{run.origin.value}", f"verdict: {run.verdict.word}", *goals))
    console.print(f"{_means(of_run)}{said}", markup=False, highlight=False)
    lines = [
        f"  failed: {check.name}: {check.finding}. Remedy: {check.remedy}"
        for check in run.verdict.checks
        if not check.passed
    ]
    lines += [f"  missed: {line}" for view in of_run for line, _ in view.missed(run)]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=not console.is_terminal)


def _means(of_run: Sequence[View[Any]]) -> str:
    """Which of the latencies above are means."""
    meant = [view.means for view in of_run if view.means]
    if len(meant) == len(of_run):
        return "means, "
    return f"{', '.join(meant)}: means; " if meant else ""


def _print(console: Console, table: Table, keys: int) -> None:
    """keys: columns that tell a row from others, of which the first may be long."""
    console.print()
    print_folded(console, table, keys, named=True)

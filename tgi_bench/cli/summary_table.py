"""The table that a sweep ends with on the screen."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from tgi_bench.analysis.run import Run, StepFigures, TrialSummary
from tgi_bench.cli.durations import duration
from tgi_bench.cli.screen import fitting
from tgi_bench.observation import Outcome

_GAP = 2
_HEADERS = ("Deployment", "Sequence", "Batch", "Outcome", "Prefill", "Decode (token)", "Tokens/s")


def print_summary(console: Console, run: Run) -> None:
    """A row for each trial, then the verdict with what failed."""
    rows = [_cells(summary) for summary in run.trials]
    widths = [max(map(cell_len, column)) + _GAP for column in zip(_HEADERS, *rows, strict=True)]
    console.print()
    if sum(widths) <= console.width:
        console.print(_table(_HEADERS, rows))
    else:
        # A cropped name would not tell deployments apart: it gets a line of its own.
        for name, group in groupby(rows, key=itemgetter(0)):
            console.print(Text(fitting(console, name), style="bold"))
            console.print(_table(_HEADERS[1:], [row[1:] for row in group]))
    console.print()
    console.print(
        f"means, {run.origin.value}; verdict: {run.verdict.word}", markup=False, highlight=False
    )
    for check in run.verdict.checks:
        if not check.passed:
            line = f"  failed: {check.name}: {check.finding}. Remedy: {check.remedy}"
            console.print(line, markup=False, highlight=False, soft_wrap=not console.is_terminal)


def _table(headers: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Table:
    table = Table(box=None, padding=(0, _GAP, 0, 0), header_style="bold")
    for name in headers:
        justify: JustifyMethod = "left" if name in ("Deployment", "Outcome") else "right"
        table.add_column(name, justify=justify, no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _cells(summary: TrialSummary) -> tuple[str, ...]:
    trial, end = summary.trial, summary.end
    outcome = "not finished" if end is None else end.outcome.value.replace("_", " ")
    shown = end is not None and end.outcome is Outcome.OK
    total = summary.decode_total
    rate = total.throughput if total is not None and shown else None
    return (
        trial.deployment_id,
        str(trial.sequence_length),
        str(trial.batch_size),
        outcome,
        _mean(summary.prefill if shown else None),
        _mean(summary.decode_token if shown else None),
        "-" if rate is None else f"{rate.mean:.1f}",
    )


def _mean(figures: StepFigures | None) -> str:
    return "-" if figures is None else duration(figures.latency.mean / 1e9)

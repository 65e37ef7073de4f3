"""The table that a sweep ends with on the screen."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tgi_bench.analysis.run import Run, StepFigures, TrialSummary
from tgi_bench.cli.durations import duration
from tgi_bench.observation import Outcome

_HEADERS = ("Deployment", "Sequence", "Batch", "Outcome", "Prefill", "Decode (token)", "Tokens/s")


def print_summary(console: Console, run: Run) -> None:
    """A row for each trial, then the verdict with what failed."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in _HEADERS:
        table.add_column(name, justify="left" if name in ("Deployment", "Outcome") else "right")
    for summary in run.trials:
        table.add_row(*map(Text, _cells(summary)))
    console.print()
    console.print(table)
    console.print()
    console.print(
        f"means, {run.origin.value}; verdict: {run.verdict.word}", markup=False, highlight=False
    )
    for check in run.verdict.checks:
        if not check.passed:
            line = f"  failed: {check.name}: {check.finding}. Remedy: {check.remedy}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def _cells(summary: TrialSummary) -> tuple[str, ...]:
    trial, end = summary.trial, summary.end
    outcome = "open" if end is None else end.outcome.value.replace("_", " ")
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

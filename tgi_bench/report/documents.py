"""A run as files: Markdown, JSON and CSV."""

from __future__ import annotations

from collections.abc import Sequence

from tgi_bench.analysis.run import Run, StepFigures, TrialSummary
from tgi_bench.report.estimated_documents import estimates_csv
from tgi_bench.report.index import index, shard_counts
from tgi_bench.report.json_document import as_json
from tgi_bench.report.load_documents import LOAD_CSV_HEADERS, loads_csv
from tgi_bench.report.load_goals import slos_csv
from tgi_bench.report.markdown_page import page
from tgi_bench.report.per_shard import file_name, per_shard
from tgi_bench.report.rst_page import rst_page
from tgi_bench.report.table import Table, csv_text
from tgi_bench.report.task_documents import tasks_csv
from tgi_bench.report.task_page import task_page
from tgi_bench.report.words import NOT_FINISHED, known_num_shard

__all__ = [
    "CSV_HEADERS",
    "LOAD_CSV_HEADERS",
    "as_csv",
    "as_json",
    "documents",
    "estimates_csv",
    "loads_csv",
    "rst_page",
    "slos_csv",
    "tasks_csv",
]

CSV_HEADERS = (
    "run_id",
    "origin",
    "trial_id",
    "num_shard",
    "quantize",
    "sequence_length",
    "decode_length",
    "batch_size",
    "step",
    "outcome",
    "runs",
    "samples",
    "mean_ns",
    "lowest_ns",
    "highest_ns",
    "p50_ns",
    "p90_ns",
    "p99_ns",
    "mean_tokens_per_s",
    "lowest_tokens_per_s",
    "highest_tokens_per_s",
    "verdict",
)


def documents(run: Run) -> dict[str, str]:
    """File name -> text: report.md, and one num_shard-N.md for each tensor-parallel degree."""
    if run.tasks:
        pages = {"report.md": task_page(run)}
    else:
        shards = {file_name(n): per_shard(run, n) for n in shard_counts(run)}
        pages = {"report.md": index(run), **shards}
    return {name: page(text) for name, text in pages.items()}


def as_csv(run: Run) -> str:
    """One row per batch trial and step; an undefined figure is an empty cell."""
    return csv_text(Table(CSV_HEADERS, tuple(r for t in run.trials for r in _rows(run, t))))


def _rows(run: Run, summary: TrialSummary) -> tuple[tuple[str, ...], ...]:
    trial = summary.trial
    record = run.record(trial.deployment_id)
    shared = (
        run.run_id,
        run.origin.value,
        trial.trial_id,
        "" if (num_shard := known_num_shard(record)) is None else str(num_shard),
        record.deployment.quantize or "",
        str(trial.sequence_length),
        str(trial.decode_length),
        str(trial.batch_size),
    )
    outcome = NOT_FINISHED.replace(" ", "_") if summary.end is None else summary.end.outcome.value
    steps = (
        ("prefill", summary.prefill),
        ("decode_token", summary.decode_token),
        ("decode_total", summary.decode_total),
    )
    word = run.verdict.word_of(summary.trial_id, summary.deployment_id)
    return tuple(
        (*shared, step, outcome, str(summary.runs), *_figures(figures), word)
        for step, figures in steps
    )


def _figures(figures: StepFigures | None) -> tuple[str, ...]:
    if figures is None:
        return ("0", *[""] * 9)
    latency, rates = figures.latency, figures.throughput
    values: Sequence[float | None] = (
        latency.mean,
        latency.lowest,
        latency.highest,
        latency.p50,
        latency.p90,
        latency.p99,
        *((None, None, None) if rates is None else (rates.mean, rates.lowest, rates.highest)),
    )
    return (str(latency.count), *("" if v is None else repr(v) for v in values))

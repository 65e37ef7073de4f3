"""The figures of batches, each declared once: for pages, the screen, CSV and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tgi_bench.analysis.run import Run
from tgi_bench.analysis.samples import Distribution
from tgi_bench.kinds.batch.metrics import Rates, StepFigures, TrialSummary
from tgi_bench.kinds.batch.scaling import Setting, has_figures
from tgi_bench.observation import Outcome
from tgi_bench.report import units
from tgi_bench.report.column import (
    DEPLOYMENT,
    OUTCOME,
    PLACE,
    SERVER,
    VERDICT,
    Column,
    Grid,
    TrialRow,
    fields,
    of,
)
from tgi_bench.report.json_text import Json, ended
from tgi_bench.report.table import Table
from tgi_bench.report.words import UNDEFINED, cell_word, quantization, values_heading


def setting_heading(setting: Setting) -> str:
    """The quantization and every other value that the experiment varies."""
    return values_heading(quantization(setting.quantize), setting.others)


DISTRIBUTION: tuple[Column[Distribution], ...] = (
    Column("samples", lambda d: d.count, unit=units.COUNT),
    Column("mean", lambda d: d.mean, "Average", units.MS),
    Column("lowest", lambda d: d.lowest, "Lowest", units.MS),
    Column("highest", lambda d: d.highest, "Highest", units.MS),
    Column("p50", lambda d: d.p50, "p50", units.MS),
    Column("p90", lambda d: d.p90, "p90", units.MS),
    Column("p99", lambda d: d.p99, "p99", units.MS),
)
RATES: tuple[Column[Rates], ...] = (
    Column("mean", lambda r: r.mean, "Average", units.TOKENS_PER_S),
    Column("lowest", lambda r: r.lowest, "Lowest", units.TOKENS_PER_S),
    Column("highest", lambda r: r.highest, "Highest", units.TOKENS_PER_S),
)
OF_A_TRIAL: tuple[Column[TrialSummary], ...] = (
    Column("client_share", lambda t: t.client_share, csv=False),
    Column("rank_spread", lambda t: t.rank_spread, csv=False),
    Column("first_run_excess", lambda t: t.first_run_excess, csv=False),
    Column("prompt_tokens", lambda t: t.prompt_tokens, csv=False),
)
"""Of a trial as a whole, not of one of its steps."""


@dataclass(frozen=True, slots=True)
class BatchRow(TrialRow):
    """A trial, and one of its steps where a row is of a step."""

    summary: TrialSummary
    step: str = ""
    figures: StepFigures | None = None


BATCH_SIZE: Column[BatchRow] = Column(
    "batch_size", lambda row: row.summary.trial.batch_size, "Batch Size", units.ASKED, "Batch"
)
_STEP: Column[BatchRow] = Column("step", lambda row: row.step, "Step", units.NAME)
_LATENCY: tuple[Column[BatchRow], ...] = of(
    lambda row: row.figures.latency if row.figures else None, DISTRIBUTION
)
_RATES: tuple[Column[BatchRow], ...] = of(
    lambda row: row.figures.throughput if row.figures else None, RATES
)
WHOLE: tuple[Column[BatchRow], ...] = of(lambda row: row.summary, OF_A_TRIAL)
_COLUMNS: tuple[Column[BatchRow], ...] = (
    *PLACE,
    *SERVER,
    DEPLOYMENT,
    Column(
        "sequence_length",
        lambda row: row.summary.trial.sequence_length,
        "",
        units.ASKED,
        "Sequence",
    ),
    Column("decode_length", lambda row: row.summary.trial.decode_length),
    BATCH_SIZE,
    _STEP,
    OUTCOME,
    Column("runs", lambda row: row.summary.runs),
    *_LATENCY,
    *_RATES,
    Column("", lambda row: _mean(row.summary.prefill), "", units.MS, "Prefill"),
    Column("", lambda row: _mean(row.summary.decode_token), "", units.MS, "Decode (token)"),
    Column("", lambda row: _rate(row.summary.decode_total), "", units.TOKENS_PER_S, "Tokens/s"),
    *WHOLE,
    VERDICT,
)
"""A row of the CSV is of a step, one on the screen of a trial."""


def as_csv(run: Run) -> str:
    """One row per batch trial and step; an undefined figure is an empty cell."""
    rows = [
        batch_row(run, t, step, figures)
        for t in run.of(TrialSummary)
        for step, figures in (
            ("prefill", t.prefill),
            ("decode_token", t.decode_token),
            ("decode_total", t.decode_total),
        )
    ]
    return Grid(_COLUMNS, rows).csv()


def batches_on_screen(run: Run) -> Table:
    """A row for each trial."""
    rows = [batch_row(run, t) for t in run.of(TrialSummary)]
    return Grid(_COLUMNS, rows, lambda row: None if row.ok else UNDEFINED).screen()


def latency(run: Run, group: Sequence[TrialSummary]) -> Table:
    """In the published report's columns: a row for each step and trial."""
    rows = [
        *(batch_row(run, t, "Prefill", t.prefill) for t in group),
        *(batch_row(run, t, "Decode (token)", t.decode_token) for t in group),
        *(batch_row(run, t, "Decode (total)", t.decode_total) for t in group),
    ]
    return Grid((_STEP, BATCH_SIZE, *_LATENCY), rows, _word).page()


def throughput(run: Run, group: Sequence[TrialSummary]) -> Table:
    """As latency; a single decode step has none."""
    rows = [
        *(batch_row(run, t, "Prefill", t.prefill) for t in group),
        *(batch_row(run, t, "Decode", t.decode_total) for t in group),
    ]
    return Grid((_STEP, BATCH_SIZE, *_RATES), rows, _word).page()


def batch_row(
    run: Run, summary: TrialSummary, step: str = "", figures: StepFigures | None = None
) -> BatchRow:
    """Of one step, or of the trial as a whole."""
    place = (summary.trial_id, summary.deployment_id)
    return BatchRow(run, *place, summary.end, summary, step, figures)


def trial_word(summary: TrialSummary) -> str:
    """Of a trial without figures; one that ended OK without a whole run has "-"."""
    if summary.end is not None and summary.end.outcome is Outcome.OK:
        return UNDEFINED
    return cell_word(summary.end)


def _word(row: BatchRow) -> str | None:
    return None if has_figures(row.summary) else trial_word(row.summary)


def _mean(figures: StepFigures | None) -> float | None:
    return None if figures is None else figures.latency.mean


def _rate(figures: StepFigures | None) -> float | None:
    return None if figures is None or figures.throughput is None else figures.throughput.mean


def trial_json(summary: TrialSummary, verdict: str) -> Json:
    """One batch trial of the JSON document. verdict: VALID or INVALID, its own."""
    trial = summary.trial
    return {
        "trial_id": trial.trial_id,
        "deployment_id": trial.deployment_id,
        "batch_size": trial.batch_size,
        "sequence_length": trial.sequence_length,
        "decode_length": trial.decode_length,
        "runs_asked": trial.runs,
        "warmups": trial.warmups,
        "runs_counted": summary.runs,
        **ended(summary.end),
        "prefill": _step_json(summary.prefill),
        "decode_token": _step_json(summary.decode_token),
        "decode_total": _step_json(summary.decode_total),
        **fields(OF_A_TRIAL, summary),
        "verdict": verdict,
    }


def _step_json(figures: StepFigures | None) -> Json:
    if figures is None:
        return None
    rates = figures.throughput
    return {
        **fields(DISTRIBUTION, figures.latency),
        "throughput": None if rates is None else fields(RATES, rates),
    }

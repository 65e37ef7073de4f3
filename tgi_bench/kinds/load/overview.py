"""The parts of report.md that are about load over HTTP."""

from __future__ import annotations

from tgi_bench.analysis.run import Run
from tgi_bench.analysis.samples import Figure
from tgi_bench.kinds.load import words
from tgi_bench.kinds.load.columns import StageRow, load_rows
from tgi_bench.kinds.load.figures import LoadSummary, StageSummary
from tgi_bench.kinds.load.group import PARTIAL, has_figures
from tgi_bench.kinds.load.search_page import answer
from tgi_bench.load_observation import ClientFloor
from tgi_bench.report import units
from tgi_bench.report.column import VERDICT, Column, Grid, of
from tgi_bench.report.table import markdown
from tgi_bench.report.units import Value
from tgi_bench.report.words import UNDEFINED, deployment_heading, num_shard

_FIGURES: tuple[Column[StageSummary], ...] = (
    Column("", lambda s: _value(s.requests_per_s), "Requests/s", units.RATE),
    Column("", lambda s: _value(s.output_tokens_per_s), "Output tokens/s", units.RATE),
    Column("", lambda s: _value(s.ttft.p50 if s.ttft else None), "TTFT p50", units.FINE_MS),
    Column("", lambda s: _value(s.ttft.p99 if s.ttft else None), "TTFT p99", units.FINE_MS),
    Column("", lambda s: _itl(s), "ITL p50", units.FINE_MS),
    Column("", lambda s: _value(s.itl.p99 if s.itl else None), "ITL p99", units.FINE_MS),
    Column("", lambda s: _value(s.e2e.p50 if s.e2e else None), "E2E p50", units.FINE_MS),
)


_OF_STAGE: tuple[Column[StageRow], ...] = of(lambda row: row.summary, _FIGURES)


def _value(figure: Figure | None) -> float | None:
    """Without its interval."""
    return None if figure is None else figure.value


def _itl(stage: StageSummary) -> Value:
    if stage.itl is None:
        return words.unmeasurable("itl", stage) or None
    return stage.itl.p50.value


def against_throughput(run: Run) -> str:
    """One row for each load stage with figures and each step of a search, then the answers."""
    columns: tuple[Column[StageRow], ...] = (
        Column("", lambda row: num_shard(row.record), "num_shard"),
        Column("", lambda row: deployment_heading(row.record.deployment), "Setting", units.NAME),
        Column("", _load, "Load", units.NAME),
        *_OF_STAGE,
        VERDICT,
    )
    rows = [
        row
        for load in run.of(LoadSummary)
        if has_figures(load) or load.trial.find is not None
        for row in load_rows(run, load, True)
    ]
    answers = [
        f"- num_shard {num_shard(record)}, {deployment_heading(record.deployment)}: "
        f"{answer(load, load.trial.find)}\n"
        for load in run.of(LoadSummary)
        if load.trial.find is not None
        for record in (run.record(load.trial.deployment_id),)
    ]
    table = markdown(Grid(columns, rows).page()) if rows else ""
    sections = [part for part in (table, "".join(answers)) if part]
    return "\n".join(["# Latency against throughput\n", *sections]) if sections else ""


def _load(row: StageRow) -> str:
    if row.summary is None:
        return words.load_planned(row.load.trial)
    cut_off = f", {PARTIAL}" if row.load.cut_off(row.summary) else ""
    return words.load_asked(row.load.trial, row.summary.stage) + cut_off


def client_error(run: Run) -> str:
    """The load client against a null server on the same machine; empty where not measured."""
    if not run.of(ClientFloor):
        return ""
    return (
        "# The client's own error\n\nThe load client against a server that logs when it sent each "
        "event and does nothing else, on the same machine. Differences smaller than these are the "
        "client's. A row with start lateness is of an open loop.\n\n"
        + markdown(Grid(_FLOORS, run.of(ClientFloor)).page())
    )


def _errors(percentiles_ns: tuple[float, float, float] | None) -> str:
    """ "21.0, 80.0, 230.0 µs"."""
    if percentiles_ns is None:
        return UNDEFINED
    return ", ".join(f"{ns / 1e3:.1f}" for ns in percentiles_ns) + " µs"


_FLOORS: tuple[Column[ClientFloor], ...] = (
    Column("", lambda f: f.streams, "Streams", units.COUNT),
    Column("", lambda f: words.seconds(f.interval_ns) if f.interval_ns else "none", "Interval"),
    Column("", lambda f: f"{f.events_per_s:,.0f}", "Events/s"),
    Column("", lambda f: f.cpu_ns_per_event, "CPU per event", units.MICROSECONDS),
    Column("", lambda f: _errors(f.ttft_error_ns), "TTFT error p50, p90, p99"),
    Column("", lambda f: _errors(f.itl_error_ns), "ITL error p50, p90, p99"),
    Column("", lambda f: _errors(f.start_lateness_ns), "Start lateness p50, p90, p99"),
    Column("", lambda f: "kernel" if f.kernel_stamps else "user space", "Stamps", units.WORD),
)

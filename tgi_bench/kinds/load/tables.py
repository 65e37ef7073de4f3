"""The tables of a group of loads: latency, throughput, SLOs, samples, lengths, client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from tgi_bench.analysis.rules import Verdict
from tgi_bench.analysis.samples import Figure, LoadDistribution
from tgi_bench.kinds.load import columns as figures
from tgi_bench.kinds.load import words
from tgi_bench.kinds.load.figures import StageSummary
from tgi_bench.kinds.load.group import GroupRow, missing
from tgi_bench.kinds.load.host_rules import others_text
from tgi_bench.kinds.load.metrics import split_metric
from tgi_bench.load_observation import LoadPart
from tgi_bench.report import units
from tgi_bench.report.column import Column, Grid, of
from tgi_bench.report.table import Table
from tgi_bench.report.units import Value
from tgi_bench.report.words import UNDEFINED
from tgi_bench.trials.load import METRICS, SUCCESS, ClosedLoop, LoadTrial, Slo


@dataclass(frozen=True, slots=True)
class _Metric:
    """One metric of one stage. found: without the intervals that are not shown."""

    name: str
    asked: str
    stage: StageSummary
    found: LoadDistribution | None

    def distribution(self) -> LoadDistribution | None:
        return self.found


def latency(trial: LoadTrial, rows: Sequence[GroupRow]) -> Table:
    """A row for each metric and value asked, of rows with figures.

    With intervals: mean, p50, p99, and whatever statistic an SLO or `until` decides by.
    """
    deciding = _deciding(trial)
    found = [
        _Metric(metric, row.asked, row.stage, _shown(dict(words.metrics(row.stage))[metric], also))
        for metric in METRICS
        for also in (deciding.get(metric, ()),)
        for row in rows
        if row.stage is not None
    ]
    columns: tuple[Column[_Metric], ...] = (
        Column("", lambda m: words.METRIC_NAMES[m.name], "Metric", units.NAME),
        Column("", lambda m: m.asked, words.value_header(trial), units.ASKED),
        *of(_Metric.distribution, (figures.SAMPLES,)),
        Column("", _mean, "Mean", units.FINE_MS),
        *of(_Metric.distribution, figures.PERCENTILES),
    )
    return Grid(columns, found).page()


def _mean(metric: _Metric) -> Value:
    if metric.found is None:
        return words.unmeasurable(metric.name, metric.stage) or None
    return metric.found.mean


def _deciding(trial: LoadTrial) -> dict[str, tuple[str, ...]]:
    """Of each metric the statistics that an SLO or `until` decides by."""
    names = [slo.metric for slo in trial.slos if slo.metric != SUCCESS]
    if trial.extent.until is not None:
        names.append(trial.extent.until.metric)
    found: dict[str, tuple[str, ...]] = {}
    for metric, statistic in map(split_metric, names):
        found[metric] = (*found.get(metric, ()), statistic)
    return found


def _shown(found: LoadDistribution | None, also: Sequence[str]) -> LoadDistribution | None:
    """Without the intervals of p90, p95 and p99.9, but of those named."""

    def without(name: str, figure: Figure | None) -> Figure | None:
        return figure if figure is None or name in also else Figure(figure.value, None, None)

    if found is None:
        return None
    return replace(
        found,
        p90=without("p90", found.p90),
        p95=without("p95", found.p95),
        p999=without("p999", found.p999),
    )


def throughput(trial: LoadTrial, rows: Sequence[GroupRow], verdict: Verdict) -> Table:
    """What was asked, delivered and answered, and each load's own verdict; one without figures has
    its word instead."""
    closed = isinstance(trial.arrivals, ClosedLoop)
    in_flight, delivered = figures.SENT
    sent = [replace(in_flight, title="Delivered")] if closed else [delivered, in_flight]
    rates = (c for c in figures.RATES if trial.slos or c is not figures.GOODPUT)
    ends = (figures.SUCCESS, figures.LATE, figures.DROPPED)
    columns: tuple[Column[GroupRow], ...] = (
        Column("", lambda row: row.asked, words.value_header(trial), units.ASKED),
        *of(_stage, (*sent, *rates, *ends)),
        Column(
            "",
            lambda row: verdict.word_of(row.load.trial.trial_id, row.load.trial.deployment_id),
            "Verdict",
            units.ASKED,
        ),
    )
    return Grid(
        columns, rows, lambda row: missing(row.load)[0] if row.stage is None else None
    ).page()


def _stage(row: GroupRow) -> StageSummary | None:
    return row.stage


def slos(trial: LoadTrial, rows: Sequence[GroupRow]) -> Table:
    """What was found of each SLO and whether it was met."""

    wanted = [
        Column("", partial(_slo_cell, slo, number), words.slo(slo))
        for number, slo in enumerate(trial.slos)
    ]
    return of_stages(trial, rows, wanted)


def _slo_cell(slo: Slo, number: int, stage: StageSummary) -> str:
    """ "312.00 ms, met"."""
    value, met = stage.slos_met[number]
    if value is None:
        return words.unmeasurable(slo.metric.rpartition("_")[0], stage) or UNDEFINED
    return words.slo_value(slo, value) + words.slo_met(value, met)


def _window(stage: StageSummary) -> str:
    length_ns = stage.window.end_ns - stage.window.begin_ns
    return words.seconds(round(length_ns / 1e8) * 1e8)


REQUESTS: tuple[Column[StageSummary], ...] = (
    Column("", lambda s: dict(s.by_part).get(LoadPart.WARMUP, 0), "Warm-up", units.COUNT),
    Column("", lambda s: dict(s.by_part).get(LoadPart.MEASURED, 0), "Measured", units.COUNT),
    Column("", lambda s: dict(s.by_part).get(LoadPart.COOLDOWN, 0), "Cool-down", units.COUNT),
    Column("", lambda s: s.requests, "In the window", units.COUNT),
    Column("", _window, "Window"),
    Column("", lambda s: "found in the data" if s.window.steady else "as planned", "Window is"),
    Column("", lambda s: s.drift, "Drift", units.CHANGE),
)
"""Which requests the figures are of."""


def _of_prompts(stage: StageSummary, count: int) -> int | None:
    """None where no answer says how long its prompt was."""
    return count if stage.lengths.prompts_said else None


TOKENS: tuple[Column[StageSummary], ...] = (
    Column("", lambda s: s.lengths.requests, "Requests", units.COUNT),
    Column("", lambda s: _of_prompts(s, s.lengths.prompt_tokens), "Prompt tokens", units.NUMBER),
    Column("", lambda s: _of_prompts(s, s.lengths.wrong_prompts), "Wrong prompts", units.NUMBER),
    Column("", lambda s: s.lengths.cached, "Cached prompts", units.COUNT),
    Column("", lambda s: s.lengths.output_tokens, "Output tokens", units.COUNT),
    Column("", lambda s: s.lengths.early, "Ended early", units.COUNT),
    Column("", lambda s: s.lengths.short_or_long, "Other lengths", units.COUNT),
    Column("", lambda s: ", ".join(s.counted_by) or None, "Tokens counted by"),
)
"""Tokens that were sent and came, against those asked."""


def _others(stage: StageSummary) -> str | None:
    """On the client's machine; a server there of which nobody knows is one of them."""
    host = stage.stage.conditions.host
    return None if host is None else others_text(host) or None


def _busiest(stage: StageSummary) -> str | None:
    """The worker that used the most."""
    return _cpu_share(stage, max(stage.client.worker_cpu_ns, default=None))


def _cpu_share(stage: StageSummary, cpu_ns: int | None) -> str | None:
    """Of one core over the stage."""
    wall_ns = stage.client.wall_ns
    return f"{cpu_ns / wall_ns:.0%} of a core" if cpu_ns is not None and wall_ns > 0 else None


CLIENT: tuple[Column[StageSummary], ...] = (
    Column("", lambda s: s.client.workers, "Workers"),
    Column("", _busiest, "Busiest worker"),
    Column("", lambda s: _cpu_share(s, s.client.parent_cpu_ns), "Parent"),
    Column("", lambda s: "kernel" if s.client.kernel_stamps else "user space", "Stamps"),
    Column(
        "",
        lambda s: s.shared_reads / s.events if s.events else None,
        "Events sharing a read",
        units.SHARE,
    ),
    Column("", lambda s: s.client.connections_opened, "Connections", units.COUNT),
    Column("", lambda s: s.client.connections_reopened, "Reopened", units.COUNT),
    Column("", lambda s: s.client.clock_step_ns, "Clock moved", units.MICROSECONDS),
    Column("", _others, "CPU of other programs"),
)
"""What the load client was and how busy."""


def of_stages(
    trial: LoadTrial, rows: Sequence[GroupRow], columns: Sequence[Column[StageSummary]]
) -> Table:
    """A row for each row that has figures."""
    asked: Column[GroupRow] = Column(
        "", lambda row: row.asked, words.value_header(trial), units.ASKED
    )
    return Grid(
        (asked, *of(_stage, columns)), [row for row in rows if row.stage is not None]
    ).page()

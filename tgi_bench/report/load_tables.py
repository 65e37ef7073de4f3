"""The tables of a group of loads: latency, throughput, SLOs, samples, lengths, client."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tgi_bench.analysis.host_checks import others_text
from tgi_bench.analysis.load_metrics import split_metric
from tgi_bench.analysis.load_run import LoadDistribution, StageSummary
from tgi_bench.analysis.rules import Verdict
from tgi_bench.load_observation import ClientFacts, LoadPart, ServerHost
from tgi_bench.plan.load_trial import SUCCESS, ClosedLoop, LoadTrial, Slo
from tgi_bench.report import load_words as words
from tgi_bench.report.load_group import Row, missing
from tgi_bench.report.table import Table
from tgi_bench.report.words import UNDEFINED

Cells = tuple[str, ...]

LATENCY_HEADERS = ("Count", "Mean", "p50", "p90", "p95", "p99", "p99.9", "Max")


def latency(trial: LoadTrial, rows: Sequence[Row]) -> Table:
    """A row for each metric and value asked, of rows with figures.

    With intervals: mean, p50, p99, and whatever statistic an SLO or `until` decides by.
    """
    stages = [(row.asked, row.stage) for row in rows if row.stage is not None]
    by_metric: dict[str, list[tuple[str, LoadDistribution | None, str]]] = {}
    for asked, stage in stages:
        for metric, found in words.metrics(stage):
            why = words.unmeasurable(metric, stage) or UNDEFINED
            by_metric.setdefault(metric, []).append((asked, found, why))
    deciding = _deciding(trial)
    return _aligned(
        ("Metric", words.value_header(trial), *LATENCY_HEADERS),
        tuple(
            (
                words.METRIC_NAMES[metric],
                asked,
                *_distribution(found, why, deciding.get(metric, ())),
            )
            for metric, values in by_metric.items()
            for asked, found, why in values
        ),
        left=1,
    )


def _deciding(trial: LoadTrial) -> dict[str, tuple[str, ...]]:
    """Of each metric the statistics that an SLO or `until` decides by."""
    names = [slo.metric for slo in trial.slos if slo.metric != SUCCESS]
    if trial.extent.until is not None:
        names.append(trial.extent.until.metric)
    found: dict[str, tuple[str, ...]] = {}
    for metric, statistic in map(split_metric, names):
        found[metric] = (*found.get(metric, ()), statistic)
    return found


def _distribution(found: LoadDistribution | None, why: str, deciding: Sequence[str]) -> Cells:
    """why: in the place of a mean that is undefined."""
    if found is None:
        return ("0", why, *[UNDEFINED] * (len(LATENCY_HEADERS) - 2))
    figures = (
        ("mean", found.mean),
        ("p50", found.p50),
        ("p90", found.p90),
        ("p95", found.p95),
        ("p99", found.p99),
        ("p999", found.p999),
    )
    shown = {"mean", "p50", "p99", *deciding}
    return (
        f"{found.count:,}",
        *(words.interval_ms(f) if name in shown else words.figure_ms(f) for name, f in figures),
        words.milliseconds(found.highest),
    )


def throughput(trial: LoadTrial, rows: Sequence[Row], verdict: Verdict) -> Table:
    """What was asked, delivered and answered, and each load's own verdict; one without figures has
    its word instead."""
    closed = isinstance(trial.arrivals, ClosedLoop)
    goodput = bool(trial.slos)
    headers = (
        words.value_header(trial),
        *(("Delivered",) if closed else ("Delivered (1/s)", "In flight")),
        "Requests/s",
        "Output tokens/s",
        "Total tokens/s",
        *(("Goodput (1/s)",) if goodput else ()),
        "Success",
        "Late",
        "Dropped",
        "Verdict",
    )

    def cells(stage: StageSummary) -> Cells:
        delivered = (_number(stage.rate_per_s), _number(stage.concurrency))
        return (
            *(delivered[1:] if closed else delivered),
            words.rate(stage.requests_per_s),
            words.rate(stage.output_tokens_per_s),
            words.rate(stage.total_tokens_per_s),
            *((words.rate(stage.goodput_per_s),) if goodput else ()),
            words.share(words.success(stage)),
            f"{stage.late:,}",
            f"{stage.dropped:,}",
        )

    def of(row: Row) -> Cells:
        own = verdict.word_of(row.load.trial.trial_id, row.load.trial.deployment_id)
        if row.stage is None:
            return (row.asked, *[missing(row.load)[0]] * (len(headers) - 2), own)
        return (row.asked, *cells(row.stage), own)

    return _aligned(headers, tuple(map(of, rows)))


def slos(trial: LoadTrial, rows: Sequence[Row]) -> Table:
    """What was found of each SLO and whether it was met."""
    return _aligned(
        (words.value_header(trial), *map(words.slo, trial.slos)),
        tuple(
            (row.asked, *slo_cells(trial.slos, row.stage)) for row in rows if row.stage is not None
        ),
    )


def slo_cells(wanted: Sequence[Slo], stage: StageSummary) -> Cells:
    """ "312.00 ms, met" for each."""
    return tuple(
        words.slo_value(slo, value) + words.slo_met(value, met)
        if value is not None
        else words.unmeasurable(slo.metric.rpartition("_")[0], stage) or UNDEFINED
        for slo, (value, met) in zip(wanted, stage.slos_met, strict=True)
    )


def samples(trial: LoadTrial, rows: Sequence[Row]) -> Table:
    """Which requests the figures are of."""

    def cells(stage: StageSummary) -> Cells:
        parts = dict(stage.by_part)
        window = stage.window
        drift = UNDEFINED if stage.drift is None else f"{stage.drift:+.1%}"
        return (
            *(f"{parts.get(part.value, 0):,}" for part in LoadPart),
            f"{stage.requests:,}",
            words.seconds(round((window.end_ns - window.begin_ns) / 1e8) * 1e8),
            "found in the data" if window.steady else "as planned",
            drift,
        )

    headers = ("Warm-up", "Measured", "Cool-down", "In the window", "Window", "Window is", "Drift")
    return _of_stages(trial, rows, headers, cells)


def lengths(trial: LoadTrial, rows: Sequence[Row]) -> Table:
    """Tokens that were sent and came, against those asked."""

    def cells(stage: StageSummary) -> Cells:
        found = stage.lengths
        return (
            f"{found.requests:,}",
            f"{found.prompt_tokens:,}" if found.prompts_said else UNDEFINED,
            f"{found.wrong_prompts:,}" if found.prompts_said else UNDEFINED,
            f"{found.cached:,}",
            f"{found.output_tokens:,}",
            f"{found.early:,}",
            f"{found.short_or_long:,}",
            ", ".join(stage.counted_by) or UNDEFINED,
        )

    headers = (
        "Requests",
        "Prompt tokens",
        "Wrong prompts",
        "Cached prompts",
        "Output tokens",
        "Ended early",
        "Other lengths",
        "Tokens counted by",
    )
    return _of_stages(trial, rows, headers, cells)


def clients(trial: LoadTrial, rows: Sequence[Row]) -> Table:
    """What the load client was and how busy."""

    def cells(stage: StageSummary) -> Cells:
        client = stage.client
        return (
            str(client.workers),
            _busiest(client),
            _cpu_share(client.parent_cpu_ns, client.wall_ns),
            "kernel" if client.kernel_stamps else "user space",
            words.share(stage.shared_reads / stage.events) if stage.events else UNDEFINED,
            f"{client.connections_opened:,}",
            f"{client.connections_reopened:,}",
            f"{client.clock_step_ns / 1e3:.1f} µs",
            _others(stage.stage.conditions.host),
        )

    headers = (
        "Workers",
        "Busiest worker",
        "Parent",
        "Stamps",
        "Events sharing a read",
        "Connections",
        "Reopened",
        "Clock moved",
        "CPU of other programs",
    )
    return _of_stages(trial, rows, headers, cells)


def _others(host: ServerHost | None) -> str:
    """On the client's machine; a server there of which nobody knows is one of them."""
    return UNDEFINED if host is None else others_text(host) or UNDEFINED


def _busiest(client: ClientFacts) -> str:
    """The CPU share of the worker that used the most."""
    if not client.worker_cpu_ns:
        return UNDEFINED
    return _cpu_share(max(client.worker_cpu_ns), client.wall_ns)


def _cpu_share(cpu_ns: int, wall_ns: int) -> str:
    """Of one core over the stage."""
    return f"{cpu_ns / wall_ns:.0%} of a core" if wall_ns > 0 else UNDEFINED


def _of_stages(
    trial: LoadTrial, rows: Sequence[Row], headers: Cells, cells: Callable[[StageSummary], Cells]
) -> Table:
    """A row for each row that has figures."""
    return _aligned(
        (words.value_header(trial), *headers),
        tuple((row.asked, *cells(row.stage)) for row in rows if row.stage is not None),
    )


def _aligned(headers: Cells, rows: tuple[Cells, ...], left: int = 0) -> Table:
    """All columns but the first `left` to the right."""
    return Table(headers, rows, frozenset(range(left, len(headers))))


def _number(value: float | None) -> str:
    return UNDEFINED if value is None else f"{value:.2f}"

"""Loads as JSON values and as CSV: every figure of every stage with its interval."""

from __future__ import annotations

from dataclasses import asdict

from tgi_bench.analysis.load_run import (
    Figure,
    Found,
    LoadDistribution,
    LoadSummary,
    StageSummary,
)
from tgi_bench.analysis.missed import all_met, goals_of
from tgi_bench.analysis.rules import Verdict
from tgi_bench.analysis.run import Run
from tgi_bench.load_observation import ClientFacts, ClientFloor, StageConditions
from tgi_bench.plan.load_trial import LoadTrial
from tgi_bench.plan.load_trial_fields import arrivals_fields, arrivals_kind, workload_fields
from tgi_bench.report.json_text import Json
from tgi_bench.report.load_words import metrics, success
from tgi_bench.report.table import Table, csv_text
from tgi_bench.report.words import NOT_FINISHED, known_num_shard

_FIGURES = ("mean", "p50", "p90", "p95", "p99", "p999")
_RATES = ("requests_per_s", "output_tokens_per_s", "total_tokens_per_s", "goodput_per_s")

LOAD_CSV_HEADERS = (
    "run_id",
    "origin",
    "trial_id",
    "num_shard",
    "quantize",
    "arrivals",
    "outcome",
    "stage",
    "repeat",
    "concurrency_asked",
    "rate_asked_per_s",
    "metric",
    "samples",
    "requests",
    *(f"{name}{end}_ns" for name in _FIGURES for end in ("", "_low", "_high")),
    "max_ns",
    *(f"{name}{end}" for name in _RATES for end in ("", "_low", "_high")),
    "concurrency",
    "rate_per_s",
    "success_share",
    "late",
    "dropped",
    "scheduled_per_s",
    "cut_off",
    "unmeasurable_tokens_per_event",
    "verdict",
    "slos_met",
)


def loads_csv(run: Run) -> str:
    """One row per trial, stage and metric; a load without a stage has one row without figures."""
    return csv_text(
        Table(LOAD_CSV_HEADERS, tuple(r for load in run.loads for r in _rows(run, load)))
    )


def _rows(run: Run, load: LoadSummary) -> tuple[tuple[str, ...], ...]:
    trial = load.trial
    record = run.record(trial.deployment_id)
    shared = (
        run.run_id,
        run.origin.value,
        trial.trial_id,
        text(known_num_shard(record)),
        record.deployment.quantize or "",
        arrivals_kind(trial.arrivals),
        NOT_FINISHED.replace(" ", "_") if load.end is None else load.end.outcome.value,
    )
    ends = (
        run.verdict.word_of(trial.trial_id, trial.deployment_id),
        truth(all_met(goals_of(load))),
    )
    if not load.stages:
        blank = [""] * (len(LOAD_CSV_HEADERS) - len(shared) - len(ends))
        return ((*shared, *blank, *ends),)
    return tuple(
        (
            *shared,
            str(summary.stage.index),
            str(summary.stage.repeat),
            text(summary.stage.concurrency),
            text(summary.stage.rate_per_s),
            metric,
            *_distribution_cells(found),
            *_throughput_cells(summary),
            load.cut_off(summary),
            text(summary.unmeasurable.get(metric)),
            *ends,
        )
        for summary in load.stages
        for metric, found in metrics(summary)
    )


def _distribution_cells(found: LoadDistribution | None) -> tuple[str, ...]:
    if found is None:
        return ("0", "0", *[""] * (3 * len(_FIGURES) + 1))
    figures = (found.mean, found.p50, found.p90, found.p95, found.p99, found.p999)
    cells = (cell for figure in figures for cell in _figure_cells(figure))
    return (str(found.count), str(found.requests), *cells, text(found.highest))


def _throughput_cells(summary: StageSummary) -> tuple[str, ...]:
    rates = (
        summary.requests_per_s,
        summary.output_tokens_per_s,
        summary.total_tokens_per_s,
        summary.goodput_per_s,
    )
    return (
        *(cell for figure in rates for cell in _figure_cells(figure)),
        text(summary.concurrency),
        text(summary.rate_per_s),
        text(success(summary)),
        str(summary.late),
        str(summary.dropped),
        text(summary.scheduled_per_s),
    )


def _figure_cells(figure: Figure | None) -> tuple[str, str, str]:
    if figure is None:
        return "", "", ""
    return text(figure.value), text(figure.low), text(figure.high)


def truth(met: bool | None) -> str:
    """ "true" or "false"; empty where it is not known."""
    return "" if met is None else str(met).lower()


def text(value: float | None) -> str:
    """An undefined figure is an empty cell."""
    return "" if value is None else repr(value)


def load(verdict: Verdict, summary: LoadSummary) -> Json:
    """One load trial: what was asked, every stage, what its search found, its own verdict."""
    end, trial = summary.end, summary.trial
    return {
        "trial_id": trial.trial_id,
        "deployment_id": trial.deployment_id,
        "outcome": None if end is None else end.outcome.value,
        "reason": "" if end is None else end.reason,
        "verdict": verdict.word_of(trial.trial_id, trial.deployment_id),
        "slos_met": all_met(goals_of(summary)),
        "asked": _asked(trial),
        "partial": summary.partial,
        "stages": [
            {**_stage(trial, s), "cut_off": summary.cut_off(s) or None} for s in summary.stages
        ],
        "search": None if trial.find is None else _search(summary.found),
    }


def _asked(trial: LoadTrial) -> Json:
    return {
        "api": trial.spoken.value,
        "stream": trial.stream,
        "workload": workload_fields(trial.workload),
        "arrivals": arrivals_fields(trial.arrivals),
        "extent": asdict(trial.extent),
        "slos": [asdict(slo) for slo in trial.slos],
        "find": None if trial.find is None else asdict(trial.find),
        "sampling": asdict(trial.sampling),
        "request_timeout_ns": trial.request_timeout_ns,
        "max_in_flight": trial.max_in_flight,
        "workers": trial.workers,
        "tokenizer": trial.tokenizer,
        "quickack": trial.quickack,
    }


def _search(found: Found | None) -> Json:
    """The answer and its bracket; null where no value was tried to its end."""
    if found is None:
        return None
    return {
        "value": found.value,
        "low": found.low,
        "high": found.high,
        "done": found.done,
        "confidence_interval": {"low": found.sure_low, "high": found.sure_high},
        "met_in": dict(zip(("repeats", "tried"), found.met_in, strict=True)),
        "missed_in": dict(zip(("repeats", "tried"), found.missed_in, strict=True)),
        "contradiction": found.contradiction
        and dict(zip(("missed", "met"), found.contradiction, strict=True)),
    }


def _stage(trial: LoadTrial, summary: StageSummary) -> dict[str, Json]:
    stage, window = summary.stage, summary.window
    return {
        "stage": stage.index,
        "concurrency_asked": stage.concurrency,
        "rate_asked_per_s": stage.rate_per_s,
        "repeat": stage.repeat,
        "dialect": stage.dialect,
        "details": dict(stage.details),
        "conditions": _conditions(stage.conditions),
        "wall_ns": stage.ended_ns - stage.began_ns,
        "window": {
            # From the stage's begin: the clock's own zero says nothing.
            "from_ns": window.begin_ns - stage.began_ns,
            "until_ns": window.end_ns - stage.began_ns,
            "steady": window.steady,
        },
        "requests": summary.requests,
        "by_part": dict(summary.by_part),
        "outcomes": {outcome.value: count for outcome, count in summary.outcomes},
        "reasons": [{"reason": text, "requests": count} for text, count in summary.reasons],
        "success_share": success(summary),
        "latency": {metric: _distribution(found) for metric, found in metrics(summary)},
        "throughput": _throughput(summary),
        "late": summary.late,
        "lag_moves": None if summary.lag_moves is None else asdict(summary.lag_moves),
        "dropped": summary.dropped,
        "events": summary.events,
        "shared_reads": summary.shared_reads,
        "lengths": asdict(summary.lengths),
        "cached": None if summary.cached is None else asdict(summary.cached),
        "counted_by": list(summary.counted_by),
        "unmeasurable_tokens_per_event": dict(summary.unmeasurable),
        "drift": summary.drift,
        "steadiness": asdict(summary.steadiness),
        "prefix_suspicion": summary.prefix_suspicion,
        "reopening": None if summary.reopening is None else asdict(summary.reopening),
        "slos": [
            {"metric": slo.metric, "limit": slo.limit, "found": value, "met": met}
            for slo, (value, met) in zip(trial.slos, summary.slos_met, strict=True)
        ],
        "client": _client(summary.client),
    }


def _conditions(seen: StageConditions) -> Json:
    """What was seen of the server, with how many answers said so where answers did."""
    return {
        **asdict(seen),
        "answered_by": dict(seen.answered_by),
        "fingerprints": dict(seen.fingerprints),
        "own_names": list(seen.own_names),
        "versions": [{"where": where, "version": text} for where, text in seen.versions],
    }


def _throughput(summary: StageSummary) -> Json:
    return {
        "requests_per_s": _figure(summary.requests_per_s),
        "output_tokens_per_s": _figure(summary.output_tokens_per_s),
        "total_tokens_per_s": _figure(summary.total_tokens_per_s),
        "goodput_per_s": _figure(summary.goodput_per_s),
        "concurrency": summary.concurrency,
        "rate_per_s": summary.rate_per_s,
        "scheduled_per_s": summary.scheduled_per_s,
    }


def _distribution(found: LoadDistribution | None) -> Json:
    if found is None:
        return None
    return {
        "samples": found.count,
        "requests": found.requests,
        "mean_ns": _figure(found.mean),
        "p50_ns": _figure(found.p50),
        "p90_ns": _figure(found.p90),
        "p95_ns": _figure(found.p95),
        "p99_ns": _figure(found.p99),
        "p999_ns": _figure(found.p999),
        "max_ns": found.highest,
    }


def _figure(figure: Figure | None) -> Json:
    """A value with the ends of its 95 % interval, in the unit of its key."""
    if figure is None:
        return None
    return {"value": figure.value, "low": figure.low, "high": figure.high}


def _client(client: ClientFacts) -> Json:
    return {**asdict(client), "worker_cpu_ns": list(client.worker_cpu_ns)}


def floor(floor: ClientFloor) -> Json:
    """The client's own error at one number of streams; percentiles are p50, p90, p99."""

    def three(values: tuple[float, float, float] | None) -> Json:
        return None if values is None else dict(zip(("p50", "p90", "p99"), values, strict=True))

    return {
        "streams": floor.streams,
        "interval_ns": floor.interval_ns,
        "events": floor.events,
        "events_per_s": floor.events_per_s,
        "cpu_ns_per_event": floor.cpu_ns_per_event,
        "ttft_error_ns": three(floor.ttft_error_ns),
        "itl_error_ns": three(floor.itl_error_ns),
        "start_lateness_ns": three(floor.start_lateness_ns),
        "kernel_stamps": floor.kernel_stamps,
    }

"""The figures of loads, each declared once: for pages, the screen, CSV and JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from tgi_bench.analysis.rules import Verdict
from tgi_bench.analysis.run import Run
from tgi_bench.analysis.samples import Figure, LoadDistribution
from tgi_bench.kinds.load import words
from tgi_bench.kinds.load.figures import LoadSummary, SearchAnswer, StageSummary
from tgi_bench.kinds.load.group import PARTIAL, has_figures
from tgi_bench.kinds.load.missed import all_met, goals_of
from tgi_bench.kinds.load.search import met
from tgi_bench.load_observation import ClientFloor, LoadStage, StageConditions
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
from tgi_bench.report.units import Value
from tgi_bench.report.words import UNDEFINED, outcome_words
from tgi_bench.trials.load import LoadTrial


def _time(
    key: str, value: Callable[[LoadDistribution], Figure | None], title: str
) -> Column[LoadDistribution]:
    return Column(key, value, title, units.FINE_MS, interval=True)


def _rate(
    key: str, value: Callable[[StageSummary], Figure | None], title: str, screen: str = ""
) -> Column[StageSummary]:
    return Column(key, value, title, units.RATE, screen, interval=True)


SAMPLES: Column[LoadDistribution] = Column("samples", lambda d: d.count, "Count", units.COUNT)
MEAN = _time("mean", lambda d: d.mean, "Mean")
PERCENTILES: tuple[Column[LoadDistribution], ...] = (
    _time("p50", lambda d: d.p50, "p50"),
    _time("p90", lambda d: d.p90, "p90"),
    _time("p95", lambda d: d.p95, "p95"),
    _time("p99", lambda d: d.p99, "p99"),
    _time("p999", lambda d: d.p999, "p99.9"),
    Column("max", lambda d: d.highest, "Max", units.FINE_MS),
)
DISTRIBUTION: tuple[Column[LoadDistribution], ...] = (
    SAMPLES,
    Column("requests", lambda d: d.requests, unit=units.COUNT),
    MEAN,
    *PERCENTILES,
)
GOODPUT = _rate("goodput_per_s", lambda s: s.goodput_per_s, "Goodput (1/s)")
"""On pages only of loads with SLOs."""
RATES: tuple[Column[StageSummary], ...] = (
    _rate("requests_per_s", lambda s: s.requests_per_s, "Requests/s", "Requests/s"),
    _rate("output_tokens_per_s", lambda s: s.output_tokens_per_s, "Output tokens/s", "Tokens/s"),
    _rate("total_tokens_per_s", lambda s: s.total_tokens_per_s, "Total tokens/s"),
    GOODPUT,
)
SENT: tuple[Column[StageSummary], ...] = (
    Column("concurrency", lambda s: s.concurrency, "In flight", units.RATE),
    Column("rate_per_s", lambda s: s.rate_per_s, "Delivered (1/s)", units.RATE),
)
_SCHEDULED: Column[StageSummary] = Column("scheduled_per_s", lambda s: s.scheduled_per_s)
SUCCESS: Column[StageSummary] = Column("success_share", words.success, "Success", units.SHARE)
LATE: Column[StageSummary] = Column("late", lambda s: s.late, "Late", units.COUNT)
DROPPED: Column[StageSummary] = Column("dropped", lambda s: s.dropped, "Dropped", units.COUNT)
STAGE: Column[LoadStage] = Column("stage", lambda s: s.index)
_REPEAT: Column[LoadStage] = Column("repeat", lambda s: s.repeat)
VALUE: tuple[Column[LoadStage], ...] = (
    Column("concurrency_asked", lambda s: s.concurrency),
    Column("rate_asked_per_s", lambda s: s.rate_per_s),
)


@dataclass(frozen=True, slots=True)
class StageRow(TrialRow):
    """A stage of a load, None of one without a stage; and a metric, where a row is of one."""

    load: LoadSummary
    summary: StageSummary | None
    metric: str = ""
    found: LoadDistribution | None = None


_TIMES: tuple[Column[StageSummary], ...] = (
    Column("", lambda s: s.ttft.p50 if s.ttft else None, "", units.MS, "TTFT p50"),
    Column("", lambda s: s.ttft.p99 if s.ttft else None, "", units.MS, "TTFT p99"),
    Column("", lambda s: _itl_p99(s), "", units.MS, "ITL p99"),
)
_ASKED: tuple[Column[StageRow], ...] = of(
    lambda row: row.summary.stage if row.summary else None, (STAGE, _REPEAT, *VALUE)
)
_DISTRIBUTION: tuple[Column[StageRow], ...] = of(lambda row: row.found, DISTRIBUTION)
_OF_STAGE: tuple[Column[StageRow], ...] = of(
    lambda row: row.summary, (*RATES, *_TIMES, *SENT, SUCCESS, LATE, DROPPED, _SCHEDULED)
)
_COLUMNS: tuple[Column[StageRow], ...] = (
    *PLACE,
    *SERVER,
    DEPLOYMENT,
    Column("", lambda row: _asked_in_words(row), "", units.NAME, "Load"),
    Column("arrivals", lambda row: row.load.trial.arrivals.kind, unit=units.NAME),
    replace(OUTCOME, screen=""),
    Column("", lambda row: _outcome(row), "", units.OUTCOME, "Outcome"),
    *_ASKED,
    Column("metric", lambda row: row.metric),
    *_DISTRIBUTION,
    *_OF_STAGE,
    Column("cut_off", lambda row: row.load.cut_off(row.summary) if row.summary else None),
    Column(
        "unmeasurable_tokens_per_event",
        lambda row: row.summary.unmeasurable.get(row.metric) if row.summary else None,
    ),
    Column("", lambda row: _slos(row), "", units.WORD, "SLOs"),
    VERDICT,
    Column("slos_met", lambda row: all_met(goals_of(row.load)), unit=units.NAME),
)
"""A row of the CSV is of a metric, one on the screen of a stage."""


def loads_csv(run: Run) -> str:
    """One row per trial, stage and metric; a load without a stage has one row without figures."""
    rows = [
        replace(row, metric=metric, found=found)
        for load in run.of(LoadSummary)
        for row in load_rows(run, load, bool(load.stages))
        for metric, found in (words.metrics(row.summary) if row.summary else (("", None),))
    ]
    return Grid(_COLUMNS, rows, lambda row: "" if row.summary is None else None).csv()


def loads_on_screen(run: Run) -> Table:
    """A row for each stage; one without figures where there is none to show."""
    rows = [row for load in run.of(LoadSummary) for row in load_rows(run, load, has_figures(load))]
    return Grid(_COLUMNS, rows, lambda row: UNDEFINED if row.summary is None else None).screen()


def load_rows(run: Run, load: LoadSummary, shown: bool) -> list[StageRow]:
    """One for each stage; one without figures where they are not shown."""
    trial = load.trial
    return [
        StageRow(run, trial.trial_id, trial.deployment_id, load.end, load, stage)
        for stage in (load.stages if shown else (None,))
    ]


def _asked_in_words(row: StageRow) -> str:
    trial, summary = row.load.trial, row.summary
    return words.load_asked(trial, summary.stage) if summary else words.load_planned(trial)


def _outcome(row: StageRow) -> str:
    """A step of a search may be whole although the search was cut off."""
    goes_on = row.end is None or row.load.trial.find is not None
    if goes_on and row.summary is not None and not row.load.cut_off(row.summary):
        return Outcome.OK.value
    return outcome_words(row.end)


def _itl_p99(stage: StageSummary) -> Value:
    if stage.itl is None:
        return words.unmeasurable("itl", stage) or None
    return stage.itl.p99


def _slos(row: StageRow) -> str | None:
    """Of a step of a search whether it is one that the search goes up from."""
    trial, stage = row.load.trial, row.summary
    if stage is None or not trial.slos:
        return None
    if trial.find is not None:
        return PARTIAL if row.load.cut_off(stage) else met_word(met(trial, stage))
    found = [met for _, met in stage.slos_met]
    return met_word(False if False in found else None if None in found else True)


def met_word(met: bool | None) -> str:
    """ "met", "missed" or "not known"."""
    return {True: "met", False: "missed", None: "not known"}[met]


def load_json(verdict: Verdict, summary: LoadSummary) -> Json:
    """One load trial: what was asked, every stage, what its search found, its own verdict."""
    trial = summary.trial
    return {
        "trial_id": trial.trial_id,
        "deployment_id": trial.deployment_id,
        **ended(summary.end),
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
    """All of the trial but its ids."""
    asked = asdict(trial)
    del asked["trial_id"], asked["deployment_id"], asked["spoken"]
    return {"api": trial.spoken, **asked}


def _search(found: SearchAnswer | None) -> Json:
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
        **fields((STAGE, *VALUE, _REPEAT), stage),
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
        **fields((SUCCESS,), summary),
        "latency": {
            metric: None if found is None else fields(DISTRIBUTION, found)
            for metric, found in words.metrics(summary)
        },
        "throughput": fields((*RATES, *SENT, _SCHEDULED), summary),
        **fields((LATE,), summary),
        "lag_moves": None if summary.lag_moves is None else asdict(summary.lag_moves),
        **fields((DROPPED,), summary),
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
        "client": asdict(summary.client),
    }


def _conditions(seen: StageConditions) -> Json:
    """What was seen of the server, with how many answers said so where answers did."""
    return {
        **asdict(seen),
        "answered_by": dict(seen.answered_by),
        "fingerprints": dict(seen.fingerprints),
        "versions": [{"where": where, "version": text} for where, text in seen.versions],
    }


def floor(floor: ClientFloor) -> Json:
    """The client's own error at one number of streams; percentiles are p50, p90, p99."""
    return {
        name: dict(zip(("p50", "p90", "p99"), value, strict=True))
        if isinstance(value, tuple)
        else value
        for name, value in asdict(floor).items()
    }

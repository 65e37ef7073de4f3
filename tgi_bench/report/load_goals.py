"""What loads had to meet, and whether they did: in report.md, on the screen, as CSV and JSON."""

from __future__ import annotations

from tgi_bench.analysis.missed import Goal, goals
from tgi_bench.analysis.run import Run
from tgi_bench.plan.load_trial import Sought
from tgi_bench.report import load_words as words
from tgi_bench.report.json_text import Json
from tgi_bench.report.load_figures import text, truth
from tgi_bench.report.table import Table, csv_text, markdown
from tgi_bench.report.words import UNDEFINED, deployment_heading, num_shard

_HEADERS = ("num_shard", "Setting", "Load", "Asked", "Found", "Met", "Verdict")
_MET = {True: "met", False: "missed", None: "not known"}


def met_word(met: bool | None) -> str:
    """ "met", "missed" or "not known"."""
    return _MET[met]


def goals_section(run: Run) -> str:
    """A row for each SLO of each load, and for each search; empty where nothing was asked."""
    rows = tuple(
        (
            num_shard(record),
            deployment_heading(record.deployment),
            _load(goal),
            _asked(goal),
            _found(goal),
            met_word(goal.met),
            run.verdict.word_of(trial.trial_id, trial.deployment_id),
        )
        for goal in goals(run.loads)
        for trial in (goal.load.trial,)
        for record in (run.record(trial.deployment_id),)
    )
    if not rows:
        return ""
    return f"# What was to be met\n\n{markdown(Table(_HEADERS, rows, frozenset({0, 4})))}"


def goals_line(run: Run) -> str:
    """ "of 6 SLOs and searches 2 missed, 1 not known"; empty where nothing was asked."""
    asked = goals(run.loads)
    if not asked:
        return ""
    missed = sum(goal.met is False for goal in asked)
    unknown = sum(goal.met is None for goal in asked)
    text = f"of {len(asked)} SLOs and searches {missed or 'none'} missed"
    return text + (f", {unknown} not known" if unknown else "")


def missed_lines(run: Run) -> tuple[str, ...]:
    """A line for each that was missed: whose it is, what was found and what was asked."""
    return tuple(
        f"{goal.load.trial.trial_id}: {_asked(goal)}; found: {_found(goal)}"
        for goal in goals(run.loads)
        if goal.met is False
    )


def _load(goal: Goal) -> str:
    trial, stage = goal.load.trial, goal.stage
    return words.load_planned(trial) if stage is None else words.load_asked(trial, stage.stage)


def _asked(goal: Goal) -> str:
    if goal.slo is not None:
        return words.slo(goal.slo)
    find = goal.load.trial.find
    one = "rate" if find is not None and find.sought is Sought.MAX_RATE else "concurrency"
    return f"a {one} that meets every SLO"


def _found(goal: Goal) -> str:
    if goal.found is None:
        return "none" if goal.slo is None and goal.met is False else UNDEFINED
    return words.plain(goal.found) if goal.slo is None else words.slo_value(goal.slo, goal.found)


SLO_CSV_HEADERS = (
    "run_id",
    "origin",
    "trial_id",
    "stage",
    "concurrency_asked",
    "rate_asked_per_s",
    "metric",
    "limit",
    "found",
    "met",
    "verdict",
)


def slos_csv(run: Run) -> str:
    """One row for each SLO of each stage: limits and what was found in ns, of success as a share.

    A search has one row of its answer, without a metric: found is the highest value that met
    every SLO. Empty where nothing was asked.
    """
    rows = tuple(_slo_row(run, goal) for goal in goals(run.loads))
    return csv_text(Table(SLO_CSV_HEADERS, rows)) if rows else ""


def _slo_row(run: Run, goal: Goal) -> tuple[str, ...]:
    trial, stage = goal.load.trial, None if goal.stage is None else goal.stage.stage
    return (
        run.run_id,
        run.origin.value,
        trial.trial_id,
        "" if stage is None else str(stage.index),
        "" if stage is None else text(stage.concurrency),
        "" if stage is None else text(stage.rate_per_s),
        "" if goal.slo is None else goal.slo.metric,
        "" if goal.slo is None else text(goal.slo.limit),
        text(goal.found),
        truth(goal.met),
        run.verdict.word_of(trial.trial_id, trial.deployment_id),
    )


def missed_goal(goal: Goal) -> Json:
    """One that was missed, for the JSON document."""
    return {
        "trial_id": goal.load.trial.trial_id,
        "stage": None if goal.stage is None else goal.stage.stage.index,
        "metric": None if goal.slo is None else goal.slo.metric,
        "limit": None if goal.slo is None else goal.slo.limit,
        "found": goal.found,
    }

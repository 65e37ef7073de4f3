"""What loads had to meet, and whether they did: in report.md, on the screen, as CSV and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tgi_bench.analysis.run import Run
from tgi_bench.kinds.load import words
from tgi_bench.kinds.load.columns import STAGE, VALUE, met_word
from tgi_bench.kinds.load.figures import LoadSummary
from tgi_bench.kinds.load.missed import Goal, goals
from tgi_bench.report import units
from tgi_bench.report.column import PLACE, VERDICT, Column, Grid, TrialRow, fields, of
from tgi_bench.report.json_text import Json
from tgi_bench.report.table import markdown
from tgi_bench.report.words import UNDEFINED, deployment_heading, num_shard
from tgi_bench.trials.load import Sought


@dataclass(frozen=True, slots=True)
class _GoalRow(TrialRow):
    """One thing that a load had to meet."""

    goal: Goal


def goals_section(run: Run) -> str:
    """A row for each SLO of each load, and for each search; empty where nothing was asked."""
    rows = _rows(run)
    return f"# What was to be met\n\n{markdown(Grid(_COLUMNS, rows).page())}" if rows else ""


def goals_line(run: Run) -> str:
    """ "of 6 SLOs and searches 2 missed, 1 not known"; empty where nothing was asked."""
    asked = goals(run.of(LoadSummary))
    if not asked:
        return ""
    missed = sum(goal.met is False for goal in asked)
    unknown = sum(goal.met is None for goal in asked)
    text = f"of {len(asked)} SLOs and searches {missed or 'none'} missed"
    return text + (f", {unknown} not known" if unknown else "")


def missed(run: Run) -> Iterator[tuple[str, Json]]:
    """Each that was missed: whose it is, what was found and what was asked; and for JSON."""
    for goal in goals(run.of(LoadSummary)):
        if goal.met is False:
            line = f"{goal.load.trial.trial_id}: {_asked(goal)}; found: {_found(goal)}"
            data = {"trial_id": goal.load.trial.trial_id}
            yield line, {**data, **fields((_STAGE[0], *_FOUND), goal)}


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


_STAGE: tuple[Column[Goal], ...] = of(
    lambda goal: None if goal.stage is None else goal.stage.stage, (STAGE, *VALUE)
)
_FOUND: tuple[Column[Goal], ...] = (
    Column("metric", lambda goal: None if goal.slo is None else goal.slo.metric),
    Column("limit", lambda goal: None if goal.slo is None else goal.slo.limit),
    Column("found", lambda goal: goal.found),
)
_DATA: tuple[Column[_GoalRow], ...] = of(lambda row: row.goal, (*_STAGE, *_FOUND))
_COLUMNS: tuple[Column[_GoalRow], ...] = (
    *PLACE,
    Column("", lambda row: num_shard(row.record), "num_shard"),
    Column("", lambda row: deployment_heading(row.record.deployment), "Setting", units.NAME),
    Column("", lambda row: _load(row.goal), "Load", units.NAME),
    Column("", lambda row: _asked(row.goal), "Asked", units.NAME),
    *_DATA,
    Column("", lambda row: _found(row.goal), "Found"),
    Column("met", lambda row: row.goal.met),
    Column("", lambda row: met_word(row.goal.met), "Met", units.WORD),
    VERDICT,
)


def slos_csv(run: Run) -> str:
    """One row for each SLO of each stage: limits and what was found in ns, of success as a share.

    A search has one row of its answer, without a metric: found is the highest value that met
    every SLO. Empty where nothing was asked.
    """
    rows = _rows(run)
    return Grid(_COLUMNS, rows).csv() if rows else ""


def _rows(run: Run) -> list[_GoalRow]:
    asked = ((goal.load.trial, goal.load.end, goal) for goal in goals(run.of(LoadSummary)))
    return [_GoalRow(run, t.trial_id, t.deployment_id, end, goal) for t, end, goal in asked]

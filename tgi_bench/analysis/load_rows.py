"""Checks that ask one question of every stage of every load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tgi_bench.analysis.load_run import LoadSummary, StageSummary
from tgi_bench.analysis.run import NOT_CHECKED, Check
from tgi_bench.analysis.search import met

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class LoadRow:
    """One stage of one load. name: the trial's id, and in a search the value that was tried."""

    name: str
    load: LoadSummary
    stage: StageSummary


@dataclass(frozen=True, slots=True)
class Seen:
    """What a rule found in one row. measure: larger is worse."""

    bad: bool
    measure: float
    text: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One question: name says what should hold; look gives None where a row does not tell.

    unchecked: why, where no row tells. remedy: the key or flag that mends it.
    """

    name: str
    look: Callable[[LoadRow], Seen | None]
    unchecked: str
    remedy: str


def load_rows(loads: Sequence[LoadSummary]) -> tuple[LoadRow, ...]:
    """Every stage of every load, in order."""
    return tuple(LoadRow(_name(load, s), load, s) for load in loads for s in load.stages)


def accepted(rows: Sequence[LoadRow]) -> tuple[LoadRow, ...]:
    """Without the probes of a search that did not meet its SLOs: those overload on purpose."""
    return tuple(r for r in rows if r.load.trial.find is None or met(r.load.trial, r.stage))


def apply(rule: Rule, rows: Sequence[LoadRow]) -> Check:
    """The rule as a check: failed where one row is bad; not checked where none tells."""
    found = [(row, seen) for row in rows if (seen := rule.look(row)) is not None]
    if not found:
        return unchecked(rule.name, rule.unchecked)
    found.sort(key=lambda pair: -pair[1].measure)
    bad = [f"{row.name} ({seen.text})" for row, seen in found if seen.bad]
    if bad:
        finding = f"{len(bad)} of {len(found)} loads: {listed(bad)}"
        return Check(rule.name, False, finding, rule.remedy)
    seen = found[0][1]
    where = "" if len(found) == 1 else f", at worst of {len(found)} loads"
    return Check(rule.name, True, f"{seen.text}{where}", "")


def unchecked(name: str, why: str) -> Check:
    """A check that could not be made."""
    return Check(name, True, f"{NOT_CHECKED}{why}", "")


def listed(items: Sequence[str]) -> str:
    """The first few, and how many more."""
    more = len(items) - _SHOWN
    return ", ".join(items[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def milliseconds(time_ns: float) -> str:
    """Three digits and the unit."""
    return f"{time_ns / 1e6:.3g} ms"


def _name(load: LoadSummary, summary: StageSummary) -> str:
    stage, name = summary.stage, load.trial.trial_id
    if load.trial.find is None:
        return name
    if stage.rate_per_s is not None:
        name += f" at {stage.rate_per_s:g}/s"
    if stage.concurrency is not None:
        name += f" at concurrency {stage.concurrency}"
    return name if load.trial.find.repeats == 1 else f"{name}, repeat {stage.repeat + 1}"

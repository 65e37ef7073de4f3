"""Checks that ask one question of every stage of every load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor, log10

from tgi_bench.analysis.load_run import LoadSummary, StageSummary
from tgi_bench.analysis.run import NOT_CHECKED, Check

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


def time_text(time_ns: float) -> str:
    """Three digits and the unit: "85.7 µs", "1.24 ms", "11.4 s"."""
    for factor, unit in ((1e3, "µs"), (1e6, "ms")):
        if abs(time_ns) < 999.5 * factor:
            return f"{_three_digits(time_ns / factor)} {unit}"
    return f"{_three_digits(time_ns / 1e9)} s"


def _three_digits(value: float) -> str:
    """Without an exponent: "0.02", "85.7", "1240"."""
    digits = max(0, 2 - floor(log10(abs(value)))) if value else 0
    return f"{value:.{min(digits, 3)}f}".rstrip("0").rstrip(".") if digits else f"{value:.0f}"


def _name(load: LoadSummary, summary: StageSummary) -> str:
    stage, name = summary.stage, load.trial.trial_id
    if load.trial.find is None:
        return name
    if stage.rate_per_s is not None:
        name += f" at {stage.rate_per_s:g}/s"
    if stage.concurrency is not None:
        name += f" at concurrency {stage.concurrency}"
    return name if load.trial.find.repeats == 1 else f"{name}, repeat {stage.repeat + 1}"

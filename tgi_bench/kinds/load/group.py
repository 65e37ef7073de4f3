"""Load trials that differ in their concurrency or rate only, as the rows of one set of tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tgi_bench.kinds.load.figures import LoadSummary, StageSummary
from tgi_bench.kinds.load.words import load_name, value_asked
from tgi_bench.load_observation import LoadStage
from tgi_bench.observation import Outcome
from tgi_bench.report.words import NOT_FINISHED, UNDEFINED, cell_word, short_reason
from tgi_bench.trials.load import Arrivals, ClosedLoop, LoadTrial, OpenLoop

PARTIAL = "partial"
"""Beside figures of a load that was cut off: they are of what was measured until then."""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One stage of one load, or a load that has none to show.

    asked: its concurrency or rate as text. stage: None where it has no figures.
    """

    load: LoadSummary
    asked: str
    stage: StageSummary | None


@dataclass(frozen=True, slots=True)
class Group:
    """Loads of one deployment that are alike but for their concurrency or rate, in plan order."""

    loads: tuple[LoadSummary, ...]

    @property
    def trial(self) -> LoadTrial:
        """The first one's, for what they share."""
        return self.loads[0].trial

    @property
    def stages(self) -> tuple[StageSummary, ...]:
        """Every stage that ended."""
        return tuple(stage for load in self.loads for stage in load.stages)

    def rows(self) -> tuple[GroupRow, ...]:
        """One for each load; of a search one for each repeat of its answer."""
        return tuple(row for load in self.loads for row in _rows(load))


def groups(loads: Sequence[LoadSummary]) -> tuple[Group, ...]:
    """The loads of a run or a page, grouped; groups are in the order of their first load."""
    found: dict[LoadTrial, list[LoadSummary]] = {}
    for load in loads:
        found.setdefault(_shared(load.trial), []).append(load)
    return tuple(Group(tuple(members)) for members in found.values())


def has_figures(load: LoadSummary) -> bool:
    """Whether its figures are shown: it ended OK with at least one stage, or was cut off after
    some answers, whose figures are then marked as partial."""
    if load.end is not None and load.end.outcome is Outcome.OK:
        return bool(load.stages)
    return any(stage.e2e is not None for stage in load.stages)


def partly(load: LoadSummary) -> tuple[str, str]:
    """The word and the reason of a load with partial figures."""
    word, reason = missing(load)
    reasons = dict.fromkeys(short_reason(load.cut_off(stage)) for stage in load.stages)
    more = [text for text in reasons if text and text not in reason]
    return f"{word}, {PARTIAL} figures", "; ".join((reason, *more))


def asked_value(stage: LoadStage) -> float | None:
    """The concurrency or rate of a stage; None where it changes with time."""
    return stage.rate_per_s if stage.concurrency is None else stage.concurrency


def missing(load: LoadSummary) -> tuple[str, str]:
    """The word and the reason of a load without figures."""
    if load.end is None:
        kept = f"{len(load.stages)} stage{'' if len(load.stages) == 1 else 's'} recorded"
        return NOT_FINISHED, f"the sweep ended before this load did; {kept}"
    if load.end.outcome is Outcome.OK:
        return UNDEFINED, "no stage was recorded"
    return cell_word(load.end), short_reason(load.end.reason) or "no reason given"


def without_figures(loads: Iterable[LoadSummary]) -> tuple[LoadSummary, ...]:
    """Those that have none to show."""
    return tuple(load for load in loads if not has_figures(load))


def _shared(trial: LoadTrial) -> LoadTrial:
    """What a group has in common; a search, a ramp and a trace stand alone."""
    if trial.find is not None:
        return trial
    arrivals = _without_value(trial.arrivals)
    if arrivals is None:
        return trial
    return replace(trial, trial_id=f"load-{load_name(trial)}", arrivals=arrivals)


def _without_value(arrivals: Arrivals) -> Arrivals | None:
    match arrivals:
        case ClosedLoop():
            return ClosedLoop(0)
        case OpenLoop(rate_per_s=float() | int()):
            return replace(arrivals, rate_per_s=0.0)
        case _:
            return None


def _rows(load: LoadSummary) -> tuple[GroupRow, ...]:
    if not has_figures(load):
        return (GroupRow(load, value_asked(load.trial, None), None),)
    stages = load.stages if load.trial.find is None else _answer(load)
    several = len(stages) > 1
    return tuple(
        GroupRow(
            load,
            value_asked(load.trial, s.stage)
            + (f", repeat {s.stage.repeat + 1}" if several else "")
            + (f", {PARTIAL}" if load.cut_off(s) else ""),
            s,
        )
        for s in stages
    )


def _answer(load: LoadSummary) -> tuple[StageSummary, ...]:
    """The stages of a search at its answer; where none met the SLOs, at the lowest value tried."""
    values = [value for s in load.stages if (value := asked_value(s.stage)) is not None]
    answer = None if load.found is None else load.found.value
    chosen = min(values, default=None) if answer is None else answer
    return tuple(s for s in load.stages if asked_value(s.stage) == chosen)

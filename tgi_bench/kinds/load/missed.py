"""What loads had to meet, and which of that they missed: a result, that may well be believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tgi_bench.kinds.load.figures import LoadSummary, StageSummary
from tgi_bench.trials.load import Slo


@dataclass(frozen=True, slots=True)
class Goal:
    """One thing that a load had to meet.

    slo: None of a search, whose goal is that any value meets every SLO. stage: None of a search,
    and of a load that has none. found: what is compared with the SLO's limit; of a search its
    answer; None where there is none. met: None where that is not known.
    """

    load: LoadSummary
    stage: StageSummary | None
    slo: Slo | None
    found: float | None
    met: bool | None


def goals(loads: Sequence[LoadSummary]) -> tuple[Goal, ...]:
    """Of each load each of its SLOs, stage by stage; of a search its answer alone, for the steps
    that missed are how it was found."""
    return tuple(goal for load in loads for goal in goals_of(load))


def goals_of(load: LoadSummary) -> tuple[Goal, ...]:
    """Of one load; () where nothing was asked of it."""
    if load.trial.find is not None:
        found = load.found
        if found is None or not (found.done or found.value is not None):
            return (Goal(load, None, None, None, None),)
        return (Goal(load, None, None, found.value, found.value is not None),)
    if not load.stages:
        return tuple(Goal(load, None, slo, None, None) for slo in load.trial.slos)
    return tuple(
        Goal(load, stage, slo, value, met)
        for stage in load.stages
        for slo, (value, met) in zip(load.trial.slos, stage.slos_met, strict=True)
    )


def all_met(asked: Sequence[Goal]) -> bool | None:
    """False where one was missed; None where nothing was asked, or one is not known."""
    if any(goal.met is False for goal in asked):
        return False
    return True if asked and all(goal.met for goal in asked) else None

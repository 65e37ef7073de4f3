"""Every stage of every load as a row that rules look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10

from tgi_bench.kinds.load.figures import LoadSummary, StageSummary
from tgi_bench.load_observation import Waits


@dataclass(frozen=True, slots=True)
class LoadRow:
    """One stage of one load. name: the trial's id, and in a search the value that was tried."""

    name: str
    load: LoadSummary
    stage: StageSummary

    @property
    def trial_id(self) -> str:
        """Of the load."""
        return self.load.trial.trial_id

    @property
    def deployment_id(self) -> str:
        """Of its server."""
        return self.load.trial.deployment_id


def load_rows(loads: Sequence[LoadSummary]) -> tuple[LoadRow, ...]:
    """Every stage of every load, in order."""
    return tuple(LoadRow(_name(load, s), load, s) for load in loads for s in load.stages)


def waits_text(waits: Waits) -> str:
    """ "waited 312 times, 4.1 s in all, because the server refused"."""
    times = "once" if waits.count == 1 else f"{waits.count:,} times"
    longest = f", {time_text(waits.longest_ns)} at most" if waits.count > 1 else ""
    return (
        f"waited {times}, {time_text(waits.total_ns)} in all{longest}, because the server refused"
    )


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

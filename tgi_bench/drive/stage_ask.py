"""What one stage of a load is asked for, and who is told of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tgi_bench.load_observation import LoadStage, RequestObservation
from tgi_bench.plan.load_trial import (
    LEAST_SEARCH_REQUESTS,
    Arrivals,
    ClosedLoop,
    LoadTrial,
    OpenLoop,
    TraceTimes,
)

Recorder = Callable[[Sequence[RequestObservation]], None]
"""Takes observations as they come, about once a second and at the end."""


@dataclass(frozen=True, slots=True)
class StageAsk:
    """Which load, of a trial's many or one. arrivals: instead of the trial's, in a search."""

    index: int
    repeat: int
    arrivals: Arrivals


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a stage is. share: of its planned time or number; None where there is neither."""

    share: float | None
    ended: int
    failed: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Listener:
    """Who is told. enough: of all measured requests so far, whether the stage may stop.

    cut_off: takes a stage that an exception ends, which says why; then the exception is raised.
    """

    record: Recorder
    progress: Callable[[Progress], None]
    enough: Callable[[Sequence[RequestObservation]], bool] | None = None
    kernel_stamps: bool = True
    cut_off: Callable[[LoadStage], None] = lambda _: None


def of_search(trial: LoadTrial, value: float) -> LoadTrial:
    """The trial as one step of its search sends it.

    At a low rate a step lasts longer than asked: a few requests say nothing.
    """
    match trial.arrivals:
        case ClosedLoop():
            return replace(trial, arrivals=ClosedLoop(round(value)))
        case OpenLoop() as arrivals:
            extent = trial.extent
            if extent.duration_ns is not None:
                least_ns = round(LEAST_SEARCH_REQUESTS / value * 1e9)
                extent = replace(extent, duration_ns=max(extent.duration_ns, least_ns))
            arrivals = replace(arrivals, rate_per_s=value, parts=())
            return replace(trial, arrivals=arrivals, extent=extent)
        case TraceTimes():
            raise ValueError("a trace has its own times: there is nothing to search")

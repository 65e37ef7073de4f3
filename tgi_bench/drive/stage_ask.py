"""What one stage of a load is asked for, and who is told of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tgi_bench.observation import RequestObservation
from tgi_bench.plan.load_trial import Arrivals, ClosedLoop, LoadTrial, OpenLoop, TraceTimes

_LEAST_REQUESTS = 20

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
    """Who is told. enough: of all measured requests so far, whether the stage may stop."""

    record: Recorder
    progress: Callable[[Progress], None]
    enough: Callable[[Sequence[RequestObservation]], bool] | None = None
    kernel_stamps: bool = True


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
                least_ns = round(_LEAST_REQUESTS / value * 1e9)
                extent = replace(extent, duration_ns=max(extent.duration_ns, least_ns))
            arrivals = replace(arrivals, rate_per_s=value, parts=())
            return replace(trial, arrivals=arrivals, extent=extent)
        case TraceTimes():
            raise ValueError("a trace has its own times: there is nothing to search")

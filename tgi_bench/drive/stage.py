"""One stage of a load: what is asked for, when its requests are sent and to which part of it each
belongs, and who is told of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from tgi_bench.load_observation import LoadPart, LoadStage, RequestObservation
from tgi_bench.plan.workload import RequestSpec
from tgi_bench.trials.load import (
    LEAST_SEARCH_REQUESTS,
    Arrivals,
    ClosedLoop,
    Extent,
    LoadTrial,
    OpenLoop,
    TraceTimes,
)

NO_END = 2**62


class Parts:
    """The parts of one stage that began at start_ns.

    A request belongs to the part that its intended time, or its number, falls into.
    """

    def __init__(self, extent: Extent, start_ns: int) -> None:
        self._extent = extent
        self._warm_ns = start_ns + extent.warmup_ns
        self._cool_ns = NO_END
        if extent.duration_ns is not None:
            self._cool_ns = self._warm_ns + extent.duration_ns
        self._cool_number = NO_END
        if extent.requests is not None and not extent.warmup_ns:
            self._cool_number = extent.warmup_requests + extent.requests
        self._first_sent_ns: int | None = None
        self._last_ended_ns: int | None = None
        self.measured = 0

    def of(self, number: int, intended_ns: int) -> LoadPart:
        """The part of a request."""
        if number < self._extent.warmup_requests or intended_ns < self._warm_ns:
            return LoadPart.WARMUP
        if number >= self._cool_number or intended_ns >= self._cool_ns:
            return LoadPart.COOLDOWN
        return LoadPart.MEASURED

    def seen(self, request: RequestObservation) -> None:
        """Keep what the window needs of a request."""
        if request.part is not LoadPart.MEASURED:
            return
        self.measured += 1
        begun = request.intended_ns
        self._first_sent_ns = min(begun, self._first_sent_ns or begun)
        self._last_ended_ns = max(request.ended_ns, self._last_ended_ns or 0)

    def window(self, stopped_ns: int | None) -> tuple[int, int]:
        """measured_from_ns, measured_until_ns.

        By time: as planned, up to where the stage was stopped. By count: from the first measured
        request to the end of the last.
        """
        begin_ns = self._warm_ns
        if self._extent.warmup_requests and self._first_sent_ns is not None:
            begin_ns = self._first_sent_ns
        if self._cool_ns != NO_END and (stopped_ns is None or stopped_ns >= self._cool_ns):
            # What ends sooner by its number has no reason to wait for the clock.
            by_number = self.measured and self.measured >= (self._extent.requests or NO_END)
            if not by_number:
                return begin_ns, self._cool_ns
        end_ns = self._last_ended_ns or begin_ns
        return begin_ns, max(begin_ns, min(end_ns, stopped_ns or NO_END))


def planned_length_ns(extent: Extent) -> int | None:
    """From the start to the last send; None where the number of requests ends it."""
    if extent.duration_ns is None:
        return None
    return extent.warmup_ns + extent.duration_ns + extent.cooldown_ns


def most_requests(extent: Extent) -> int:
    """In all; NO_END where time ends it."""
    if extent.requests is None:
        return NO_END
    return extent.warmup_requests + extent.requests + extent.cooldown_requests


def ended_by(due_ns: Iterator[int], most: int) -> Iterator[int]:
    """The first `most`."""
    for number, due in enumerate(due_ns):
        yield due
        if number + 1 >= most:
            return


def trace_requests(
    specs: Iterator[RequestSpec], arrivals: TraceTimes, start_ns: int, extent: Extent
) -> tuple[Iterator[RequestSpec], Iterator[int]]:
    """The file's requests and their own times, up to the extent's end.

    A request is made when its time is asked for, so a long trace's texts are never all there.
    """
    planned_ns, most = planned_length_ns(extent), most_requests(extent)
    timed: deque[RequestSpec] = deque()

    def due_ns() -> Iterator[int]:
        for number, spec in enumerate(specs):
            if spec.at_ns is None or number >= most:
                return
            offset_ns = round(spec.at_ns / arrivals.speed)
            if planned_ns is not None and offset_ns >= planned_ns:
                return
            timed.append(spec)
            yield start_ns + offset_ns

    def same() -> Iterator[RequestSpec]:
        while timed:
            yield timed.popleft()

    return same(), due_ns()


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

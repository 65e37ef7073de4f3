"""When a stage's requests are sent, and how many they are."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from tgi_bench.drive.parts import NO_END
from tgi_bench.plan.load_trial import Extent, TraceTimes
from tgi_bench.plan.request_spec import RequestSpec


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

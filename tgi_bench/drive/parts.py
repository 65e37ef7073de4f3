"""Which part of a stage a request belongs to, and the window between warm-up and cool-down."""

from __future__ import annotations

from tgi_bench.load_observation import LoadPart, RequestObservation
from tgi_bench.plan.load_trial import Extent

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

"""When each stream's next event is due: absolute deadlines, in order, at a constant cost."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T")
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio: its multiples modulo 2^64 lie evenly, however many are taken."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The k-th event (from 0) of a stream is due at arrival + first_ns + phase + k interval_ns.

    The phase, 0 to spread_ns, is the stream's own, so that streams that begin together do not
    send together. interval_ns 0: all at once, on arrival.
    """

    interval_ns: int
    first_ns: int
    spread_ns: int

    @property
    def instant(self) -> bool:
        """Whether nothing is waited for."""
        return self.interval_ns == 0

    def first_due_ns(self, arrival_ns: int, index: int) -> int:
        """When the first event is due. index: of the request within the server."""
        if self.instant:
            return arrival_ns
        phase_ns = ((index * _GOLDEN & _MASK) * self.spread_ns) >> 64
        return arrival_ns + self.first_ns + phase_ns


class DueQueue(Generic[T]):
    """Items by the time they are due.

    All streams have one interval, so an item that was taken first comes first again: following
    ones go to the end of a line. First ones, and those that would break its order, go to a heap.
    """

    def __init__(self) -> None:
        self._line: deque[tuple[int, T]] = deque()
        self._heap: list[tuple[int, int, T]] = []
        self._pushed = 0

    def push_first(self, due_ns: int, item: T) -> None:
        """An item at any time."""
        self._pushed += 1  # breaks ties, so that items are never compared
        heappush(self._heap, (due_ns, self._pushed, item))

    def push_next(self, due_ns: int, item: T) -> None:
        """An item at, mostly, the latest time so far."""
        if self._line and due_ns < self._line[-1][0]:
            self.push_first(due_ns, item)
        else:
            self._line.append((due_ns, item))

    def next_due_ns(self) -> int | None:
        """The earliest time; None where there is no item."""
        if not self._line:
            return self._heap[0][0] if self._heap else None
        if not self._heap:
            return self._line[0][0]
        return min(self._line[0][0], self._heap[0][0])

    def pop_due(self, now_ns: int) -> tuple[int, T] | None:
        """The earliest item that is due by now, and its time; None where there is none."""
        line, heap = self._line, self._heap
        if line and (not heap or line[0][0] <= heap[0][0]):
            return line.popleft() if line[0][0] <= now_ns else None
        if heap and heap[0][0] <= now_ns:
            due_ns, _, item = heappop(heap)
            return due_ns, item
        return None

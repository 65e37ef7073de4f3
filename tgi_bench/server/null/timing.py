"""When each stream's next event is due, absolute deadlines in order at a constant cost; when it was
sent; and the file that the null server writes of that.

All times are CLOCK_MONOTONIC in ns: a client on the same machine has the same clock.
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

import orjson

from tgi_bench.errors import InputError

T = TypeVar("T")
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
"""2^64 over the golden ratio: its multiples modulo 2^64 lie evenly, however many are taken."""


@dataclass(frozen=True, slots=True)
class StreamPace:
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


@dataclass(slots=True)
class ServedRequest:
    """One request for a stream.

    connection: 0-based, in the order of accepting. index: 0-based, in the order of arrival.
    request_id: of its header x-request-id; b"" where it had none.
    arrival_ns: the kernel's receive timestamp of the read that completed the request.
    due_ns: when its first event was to be sent; the k-th one (from 0) k intervals later.
    sent_ns: just before the send that carried the last byte of each event.
    whole: False until the stream's last byte was sent.
    """

    connection: int
    index: int
    request_id: bytes
    arrival_ns: int
    due_ns: int
    sent_ns: array[int] = field(default_factory=lambda: array("q"))
    whole: bool = False


@dataclass(frozen=True, slots=True)
class ServedLog:
    """All requests for streams that a null server has had.

    interval_ns: between a stream's events; 0: none. cpu_ns: of the server's process.
    served_ns: since it began to serve. clock_step_ns: how far the wall clock stepped.
    kernel_stamps: False where arrivals were stamped after the read.
    """

    interval_ns: int
    cpu_ns: int
    served_ns: int
    clock_step_ns: int
    kernel_stamps: bool
    requests: tuple[ServedRequest, ...]

    def lateness_ns(self) -> list[int]:
        """Sent less due of every event of a paced stream; [] where nothing was due."""
        if not self.interval_ns:
            return []
        return [
            sent_ns - (request.due_ns + k * self.interval_ns)
            for request in self.requests
            for k, sent_ns in enumerate(request.sent_ns)
        ]


def encode(log: ServedLog) -> bytes:
    """The file: one JSON object of the log's fields by name, ids as Latin-1."""
    return orjson.dumps(log, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, array):
        return value.tolist()
    raise TypeError(value)


def decode(data: bytes) -> ServedLog:
    """What a file says; raises InputError where it is none or is cut off."""
    try:
        told = orjson.loads(data)
        requests = tuple(_request(**request) for request in told.pop("requests"))
        return ServedLog(**told, requests=requests)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"this is no log of a null server, or is cut off: {error}") from error


def _request(request_id: str, sent_ns: list[int], **more: Any) -> ServedRequest:
    return ServedRequest(
        request_id=request_id.encode("latin-1"), sent_ns=array("q", sent_ns), **more
    )

"""What the null server did, and the file it writes of it.

Layout, little-endian: the magic bytes, a header, then for each request its numbers, its id and
the times of its sends. All times are CLOCK_MONOTONIC in ns: a client on the same machine has
the same clock.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

from tgi_bench.errors import InputError

_MAGIC = b"TGINULL1"
_HEADER = struct.Struct("<BqqqqI")
_RECORD = struct.Struct("<IIqqBBI")
_STAMP_BYTES = 8


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
    """The file's bytes."""
    parts = [
        _MAGIC,
        _HEADER.pack(
            log.kernel_stamps,
            log.interval_ns,
            log.cpu_ns,
            log.served_ns,
            log.clock_step_ns,
            len(log.requests),
        ),
        *(part for request in log.requests for part in _encoded(request)),
    ]
    return b"".join(parts)


def _encoded(request: ServedRequest) -> Iterable[bytes]:
    yield _RECORD.pack(
        request.connection,
        request.index,
        request.arrival_ns,
        request.due_ns,
        request.whole,
        len(request.request_id),
        len(request.sent_ns),
    )
    yield request.request_id
    yield _little_endian(request.sent_ns).tobytes()


def decode(data: bytes) -> ServedLog:
    """What a file says; raises InputError where it is none or is cut off."""
    if not data.startswith(_MAGIC):
        raise InputError("this is no log of a null server")
    try:
        return _decoded(memoryview(data))
    except (struct.error, ValueError):
        raise InputError("this log of a null server is cut off") from None


def _decoded(view: memoryview) -> ServedLog:
    stamps, interval_ns, cpu_ns, served_ns, step_ns, count = _HEADER.unpack_from(view, len(_MAGIC))
    at = len(_MAGIC) + _HEADER.size
    requests = []
    for _ in range(count):
        connection, index, arrival_ns, due_ns, whole, id_bytes, sends = _RECORD.unpack_from(
            view, at
        )
        at += _RECORD.size
        end = at + id_bytes + sends * _STAMP_BYTES
        if end > len(view):
            raise ValueError(end)
        request_id = bytes(view[at : at + id_bytes])
        sent_ns = _little_endian(array("q", bytes(view[at + id_bytes : end])))
        requests.append(
            ServedRequest(
                connection, index, request_id, arrival_ns, due_ns, sent_ns, whole=bool(whole)
            )
        )
        at = end
    return ServedLog(interval_ns, cpu_ns, served_ns, step_ns, bool(stamps), tuple(requests))


def _little_endian(numbers: array[int]) -> array[int]:
    """The numbers in the file's byte order, or back."""
    if sys.byteorder == "little":
        return numbers
    swapped = array("q", numbers)
    swapped.byteswap()
    return swapped

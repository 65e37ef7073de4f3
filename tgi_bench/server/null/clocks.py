"""The kernel's receive timestamps, on the monotonic clock, for the null server.

The load client has its own of these: the two must not share a mistake.
"""

from __future__ import annotations

import socket
import struct
import sys
import time

_SO_TIMESTAMPNS = 35
"""Of Linux on x86-64, arm64, riscv64 and ppc64; the socket module does not name it."""

_TIMESPEC = struct.Struct("@qq")
ANCILLARY_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)
_READINGS = 15


def ask_for_stamps(sock: socket.socket) -> bool:
    """Whether the kernel stamps what this socket, or what it accepts, receives."""
    if sys.platform != "linux":
        return False
    try:
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True


def stamp_of(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    """The CLOCK_REALTIME stamp of a recvmsg, in ns; None where it has none."""
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            return int(seconds) * 1_000_000_000 + int(nanoseconds)
    return None


class Calibration:
    """How far the monotonic clock is from the wall clock, followed through steps of the latter.

    offset_ns: to be added to a CLOCK_REALTIME stamp. stepped_ns: the largest difference between
    an offset and the first one.
    """

    def __init__(self) -> None:
        self.offset_ns = self._first_ns = _offset_ns()
        self.stepped_ns = 0

    def again(self) -> None:
        """Measure the offset again."""
        self.offset_ns = _offset_ns()
        moved_ns = self.offset_ns - self._first_ns
        if abs(moved_ns) > abs(self.stepped_ns):
            self.stepped_ns = moved_ns


def _offset_ns() -> int:
    """Monotonic less wall clock; of several readings that with the least time between."""
    readings = []
    for _ in range(_READINGS):
        before_ns = time.monotonic_ns()
        wall_ns = time.time_ns()
        after_ns = time.monotonic_ns()
        readings.append((after_ns - before_ns, (before_ns + after_ns) // 2 - wall_ns))
    return min(readings)[1]

"""Arrival times of what a socket received: the kernel's own, on the monotonic clock.

SO_TIMESTAMPNS stamps a packet with CLOCK_REALTIME when it reaches the socket, however late it
is read; of packets that are read together the last one's stamp remains. (socket(7), tcp.c)
"""

from __future__ import annotations

import socket
import struct
import sys
import time

SO_TIMESTAMPNS = 35
"""Of Linux on x86-64, arm64, riscv64 and ppc64; Python's socket module does not have it."""

ANCILLARY_BYTES = socket.CMSG_SPACE(16) if sys.platform != "win32" else 0
unpack_stamp = struct.Struct("@qq").unpack
_READINGS = 15


def ask_for_stamps(sock: socket.socket) -> str:
    """Ask the kernel to stamp what this socket receives; why it does not, or ""."""
    if sys.platform != "linux":
        return f"{sys.platform} has no SO_TIMESTAMPNS"
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    except OSError as error:
        return f"SO_TIMESTAMPNS: {error.strerror}"
    return ""


def _monotonic_less_realtime_ns() -> int:
    """Of several readings the tightest."""
    best_width, best = None, 0
    for _ in range(_READINGS):
        before = time.monotonic_ns()
        real = time.time_ns()
        after = time.monotonic_ns()
        if best_width is None or after - before < best_width:
            best_width, best = after - before, (before + after) // 2 - real
    return best


class WallClock:
    """CLOCK_REALTIME against the monotonic clock, read again now and then.

    offset_ns: to add to a kernel's stamp. furthest_step_ns: how far it was from the first one;
    both clocks are slewed alike, so more than a reading's width is a step of the wall clock.
    """

    def __init__(self) -> None:
        self.offset_ns = self._first_ns = _monotonic_less_realtime_ns()
        self.furthest_step_ns = 0

    def read(self) -> None:
        """Take the offset as it is now."""
        self.offset_ns = _monotonic_less_realtime_ns()
        self.furthest_step_ns = max(self.furthest_step_ns, self.offset_ns - self._first_ns, key=abs)

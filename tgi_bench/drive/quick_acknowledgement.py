"""TCP_QUICKACK: what was received is acknowledged at once.

A server without TCP_NODELAY holds a small piece back while an earlier one is not acknowledged
(Nagle's algorithm), and Linux delays the acknowledgement on a connection that goes back and forth
by some 40 ms: so the first token of a kept-alive connection waits for a timer. The option is not
sticky (tcp(7)): it is set after each read.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable

from tgi_bench.errors import InputError

Receive = Callable[[int, int], tuple[bytes, list[tuple[int, int, bytes]], int, object]]
"""As socket.recvmsg."""


def require_quick_acknowledgements() -> None:
    """Raises InputError where this system has none."""
    if sys.platform != "linux":
        raise InputError("load.quickack: true needs Linux, which has TCP_QUICKACK: leave it out")


def acknowledging(sock: socket.socket) -> Receive:
    """recvmsg of the socket, and the option after it."""
    receive, set_option = sock.recvmsg, sock.setsockopt
    level, name = socket.IPPROTO_TCP, socket.TCP_QUICKACK

    def received(
        size: int, ancillary_size: int
    ) -> tuple[bytes, list[tuple[int, int, bytes]], int, object]:
        found = receive(size, ancillary_size)
        set_option(level, name, 1)
        return found

    return received

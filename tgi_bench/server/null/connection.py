"""One accepted connection of the null server: what came, and what could not be sent yet."""

from __future__ import annotations

import socket
from array import array
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from time import monotonic_ns

from tgi_bench.server.null.log_file import ServedRequest

_NO_EVENTS: array[int] = array("q")


@dataclass(slots=True)
class Piece:
    """Bytes on their way out.

    ends: where each event's last byte stands, from 1, of those that `served` logs.
    last: whether the stream is whole with it. position: bytes sent. logged: events logged.
    """

    data: memoryview
    served: ServedRequest | None = None
    ends: array[int] = field(default_factory=lambda: _NO_EVENTS)
    last: bool = False
    position: int = 0
    logged: int = 0


class Stream:
    """An answer that is being sent, an event at a time. position: of the next event."""

    __slots__ = ("connection", "events", "keep_alive", "last", "new_tokens", "position", "served")

    def __init__(self, connection: Connection, served: ServedRequest, keep_alive: bool) -> None:
        self.connection = connection
        self.served = served
        self.keep_alive = keep_alive
        self.events: list[bytes] = []
        self.last = b""
        self.new_tokens = 0
        self.position = 0


class Connection:
    """A non-blocking socket with what was received and is unsent.

    number: 0-based, in the order of accepting. stream: being sent; None between requests.
    arrival_ns: of what was received last. ending: our side ends once nothing is
    unsent, and what comes is thrown away.
    """

    __slots__ = (
        "arrival_ns",
        "closed",
        "ending",
        "number",
        "received",
        "sock",
        "stream",
        "unsent",
        "waits_for_room",
    )

    def __init__(self, sock: socket.socket, number: int) -> None:
        self.sock = sock
        self.number = number
        self.received = bytearray()
        self.stream: Stream | None = None
        self.unsent: deque[Piece] = deque()
        self.arrival_ns = 0
        self.ending = False
        self.closed = False
        self.waits_for_room = False

    def send_event(self, served: ServedRequest, chunk: bytes, last: bool) -> None:
        """Send one event and log it; what the socket does not take is kept.

        Raises OSError where the other end is gone.
        """
        if self.unsent:
            self.unsent.append(Piece(memoryview(chunk), served, array("q", [len(chunk)]), last))
            return
        before_ns = monotonic_ns()
        try:
            sent = self.sock.send(chunk)
        except BlockingIOError:
            sent = 0
        if sent == len(chunk):
            served.sent_ns.append(before_ns)
            served.whole = last
            return
        ends = array("q", [len(chunk)])
        self.unsent.append(Piece(memoryview(chunk), served, ends, last, position=sent))

    def send(self, piece: Piece) -> None:
        """Send a piece after those that are unsent; OSError as send_event."""
        self.unsent.append(piece)
        if len(self.unsent) == 1:
            self.flush()

    def flush(self) -> None:
        """Send what the socket takes; OSError as send_event."""
        while self.unsent:
            piece = self.unsent[0]
            before_ns = monotonic_ns()
            try:
                piece.position += self.sock.send(piece.data[piece.position :])
            except BlockingIOError:
                return
            self._log(piece, before_ns)
            if piece.position < len(piece.data):
                return
            self.unsent.popleft()

    @staticmethod
    def _log(piece: Piece, before_ns: int) -> None:
        if piece.served is None:
            return
        gone = bisect_right(piece.ends, piece.position)
        if gone > piece.logged:
            piece.served.sent_ns.extend([before_ns] * (gone - piece.logged))
            piece.logged = gone
        if piece.last and piece.position == len(piece.data):
            piece.served.whole = True

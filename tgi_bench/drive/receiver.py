"""Reads what epoll says is there. The hot path of an answer is the loop of `read`.

An event of a chunked answer costs one system call and an append: its framing is taken off when
the answer's usual end is seen, and now and then, for a server may end it otherwise. Arrivals are
the kernel's, so none of that moves a figure.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from tgi_bench.drive.connection import (
    IN,
    OUT,
    READ_BYTES,
    Connection,
    FailedRequestError,
    Receive,
    State,
    failure_of,
)
from tgi_bench.drive.http_framing import FramingError
from tgi_bench.drive.pool import Pool
from tgi_bench.http_rules import encoded_as, not_identity
from tgi_bench.kernel_stamps import ANCILLARY_BYTES, WallClock, unpack_stamp
from tgi_bench.load_observation import RequestOutcome

_LAST_CHUNK = b"0\r\n\r\n"
_SETTLED_AT_ONCE = 8
_MOST_ANSWER_BYTES = 1 << 26
_LONGEST_WINDOW_NS = 2_000_000
_LEAST_SHARED = 3
"""Reads that must share a wake-up before waiting for them is worth it."""

_Keep = Callable[[tuple[int, bytes]], None]


class Owner(Protocol):
    """Who decides what follows from what was read."""

    def answered(self, connection: Connection, ended_ns: int, closed: bool) -> None:
        """The answer is whole. closed: by the end of its connection."""

    def failed(self, connection: Connection, outcome: RequestOutcome, reason: str) -> None:
        """The request ended, and its connection with it."""

    def opened(self, connection: Connection) -> None:
        """It is open and has nothing on it yet, but may have a job."""

    def writable(self, connection: Connection) -> None:
        """More of its request can be sent."""


class Receiver:
    """Reads for one worker. window_ns: how late a read may be, so that many streams share one
    wake-up."""

    def __init__(self, pool: Pool, clock: WallClock, owner: Owner) -> None:
        self._pool = pool
        self._clock = clock
        self._owner = owner
        # Streams in the middle of a chunked, plain answer. Bound methods are kept beside them:
        # a look-up through a slot costs more than the rest of what is done with an event.
        self._hot: dict[int, tuple[Receive, _Keep, Connection]] = {}
        self._to_settle: deque[Connection] = deque()
        self._reads = 0
        self.window_ns = 0
        self._window_chosen_ns = time.monotonic_ns()
        self.user_stamped = 0

    def read(self, ready: list[tuple[int, int]]) -> None:
        """One read of each socket that is ready; others than connections are left alone."""
        self._reads += len(ready)
        hot, connections, offset_ns = self._hot.get, self._pool.connections, self._clock.offset_ns
        for fd, mask in ready:
            entry = hot(fd)
            if entry is None or mask != IN:
                connection = connections.get(fd)
                if connection is not None:  # else the channel, or closed in this very round
                    self._unusual(connection, mask)
                continue
            receive, keep, connection = entry
            try:
                data, ancillary, _, _ = receive(READ_BYTES, ANCILLARY_BYTES)
            except OSError as error:
                self._reset(connection, error)
                continue
            if ancillary:
                seconds, nanoseconds = unpack_stamp(ancillary[0][2])
                keep((seconds * 1_000_000_000 + nanoseconds + offset_ns, data))
            else:
                keep((self._read_now(data), data))
            if data.endswith(_LAST_CHUNK) or len(data) == READ_BYTES or not data:
                self._to_settle.append(connection)

    def choose_window(self, now: int, in_flight: int) -> None:
        """Choose window_ns by the reads since it was chosen last.

        A sixteenth of the mean time between two reads of one stream: rarely do two events of a
        stream wait for the same read, and share its stamp. 0 where that saves nothing, where
        arrivals are stamped by the read itself, and where a read is what the server waits for.
        """
        passed_ns = now - self._window_chosen_ns
        gap_ns = in_flight * passed_ns // max(1, self._reads)
        window_ns = min(gap_ns // 16, _LONGEST_WINDOW_NS)
        busy = self._reads * window_ns > _LEAST_SHARED * passed_ns
        self.window_ns = window_ns if busy and self._pool.reads_may_wait else 0
        self._reads, self._window_chosen_ns = 0, now

    def settle_some(self) -> bool:
        """Take the framing off a few answers that seem to have ended; whether more are waiting.

        Streams that began together end together: while all of them are settled, nothing is read,
        and arrivals of others would share one read and with it one stamp.
        """
        for _ in range(_SETTLED_AT_ONCE):
            if not self._to_settle:
                return False
            connection = self._to_settle.popleft()
            if connection.raw:
                self._settle(connection)
        return bool(self._to_settle)

    def settle_all(self) -> None:
        """Take the framing off whatever was read: an answer may have ended unusually."""
        for _, _, connection in tuple(self._hot.values()):
            if connection.raw:
                self._settle(connection)

    def take_rest(self, connection: Connection) -> None:
        """What was read of a request that failed: it counts as far as it can be understood."""
        self.forget(connection)
        for arrival_ns, data in connection.raw:
            try:
                connection.keep(arrival_ns, connection.framing.feed(data))
            except FramingError as error:
                connection.keep(arrival_ns, error.body)
                break
        connection.raw.clear()

    def forget(self, connection: Connection) -> None:
        """Its answer is over."""
        self._hot.pop(connection.fd, None)

    def _read_now(self, data: bytes) -> int:
        """The arrival of what the kernel did not stamp; the end of a connection has no stamp."""
        self.user_stamped += 1 if data else 0
        return time.monotonic_ns()

    def _settle(self, connection: Connection) -> None:
        """Take the framing off what was read since the last time."""
        raw = connection.raw[:]
        connection.raw.clear()
        feed, keep = connection.framing.feed, connection.keep
        for arrival_ns, data in raw:
            try:
                if data:
                    keep(arrival_ns, feed(data))
                else:
                    connection.framing.eof()
            except FramingError as error:
                self._broken(connection, arrival_ns, error, closed=not data)
                return
            if connection.framing.done:
                self._owner.answered(connection, arrival_ns, closed=not data)
                return
        self._check_size(connection)

    def _unusual(self, connection: Connection, mask: int) -> None:
        """A connection that is being opened, has more to send, is idle and was closed, or whose
        answer is not in its middle."""
        try:
            match connection.state:
                case State.CONNECTING | State.HANDSHAKE:
                    if connection.opening():
                        self._owner.opened(connection)
                case State.IDLE:
                    self._pool.look_at_idle(connection)
                case State.BUSY:
                    if mask & OUT:
                        self._owner.writable(connection)
                    if mask & ~OUT and connection.state is State.BUSY:
                        self._read_one(connection)
                case State.CLOSED:
                    pass
        except FailedRequestError as failure:
            self._owner.failed(connection, failure.outcome, str(failure))

    def _read_one(self, connection: Connection) -> None:
        """The same as in `read`, step by step. Raises FailedRequestError."""
        if connection.raw:
            self._settle(connection)
            if connection.state is not State.BUSY:
                return
        try:
            data, ancillary, _, _ = connection.receive(READ_BYTES, ANCILLARY_BYTES)
        except OSError as error:
            self._reset(connection, error)
            return
        arrival_ns = self._read_now(data)
        if ancillary:
            seconds, nanoseconds = unpack_stamp(ancillary[0][2])
            arrival_ns = seconds * 1_000_000_000 + nanoseconds + self._clock.offset_ns
            self.user_stamped -= 1 if data else 0
        self._received(connection, data, arrival_ns)

    def _received(self, connection: Connection, data: bytes, arrival_ns: int) -> None:
        framing = connection.framing
        try:
            if not data:
                framing.eof()
                body = b""
            elif connection.tls is None:
                body = framing.feed(data)
            else:
                body = framing.feed(connection.tls.decrypted(data))
        except FramingError as error:
            self._broken(connection, arrival_ns, error, closed=not data)
            return
        if body:
            connection.keep(arrival_ns, body)
        if connection.head_ns is None and framing.head_done:
            connection.head_ns = arrival_ns
            if framing.status == 200 and (coding := encoded_as(framing.headers)):
                self._owner.failed(connection, RequestOutcome.PROTOCOL, not_identity(coding))
                return
            if framing.chunked and connection.tls is None:
                entry = (connection.receive, connection.raw.append, connection)
                self._hot[connection.fd] = entry
        if framing.done:
            self._owner.answered(connection, arrival_ns, closed=not data)
        else:
            self._check_size(connection)

    def _check_size(self, connection: Connection) -> None:
        """An answer without end must not fill the memory."""
        if len(connection.body) > _MOST_ANSWER_BYTES:
            reason = f"an answer of more than {_MOST_ANSWER_BYTES >> 20} MiB"
            self._owner.failed(connection, RequestOutcome.PROTOCOL, reason)

    def _reset(self, connection: Connection, error: OSError) -> None:
        """A read failed; what was read before it counts first."""
        if isinstance(error, BlockingIOError):
            return
        if connection.raw:
            self._settle(connection)
        if connection.state is State.BUSY:
            failure = failure_of(error, "read")
            self._owner.failed(connection, failure.outcome, str(failure))

    def _broken(
        self, connection: Connection, arrival_ns: int, error: FramingError, closed: bool
    ) -> None:
        """The framing was wrong, or the connection ended in the middle of it."""
        if error.body:
            connection.keep(arrival_ns, error.body)
        if connection.head_ns is None and connection.framing.head_done:
            connection.head_ns = arrival_ns
        if not closed:
            self._owner.failed(connection, RequestOutcome.PROTOCOL, str(error))
        elif connection.head_ns is None:
            reason = "the server closed the connection before it answered"
            reason += ", one that it had kept alive" if connection.served else ""
            self._owner.failed(connection, RequestOutcome.CONNECTION_RESET, reason)
        else:
            self._owner.failed(connection, RequestOutcome.INCOMPLETE, str(error))

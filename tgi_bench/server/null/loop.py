"""The null server's loop: one thread, epoll for sockets, a line of deadlines for events."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic_ns, process_time_ns

from tgi_bench.kernel_stamps import ANCILLARY_BYTES, WallClock, ask_for_stamps, unpack_stamp
from tgi_bench.server.null import answers
from tgi_bench.server.null.answers import Asked, Streams
from tgi_bench.server.null.connection import (
    BODY_LIMIT_BYTES,
    HEAD_LIMIT_BYTES,
    ClientConnection,
    HttpRequest,
    PacedStream,
    Piece,
    Refused,
    asked_of,
    take,
)
from tgi_bench.server.null.timing import DueQueue, ServedLog, ServedRequest, StreamPace, encode

HOST = "127.0.0.1"
_BACKLOG = 8192
_READ_BYTES = 1 << 16
_ROUND_EVENTS = 128
"""Events sent before sockets are looked at again."""

_CALIBRATE_NS = 250_000_000
_GENERATE = b"/generate_stream"
_TOLD = {
    b"/": answers.HEALTH,
    b"/health": answers.HEALTH,
    b"/ping": answers.HEALTH,
    b"/info": answers.INFO,
    b"/v1/models": answers.MODELS,
}
_LOG_PATH = b"/log"
_NO_FILES = (errno.EMFILE, errno.ENFILE)


@dataclass(slots=True)
class _Served:
    """What the log is made of."""

    began_ns: int = field(default_factory=monotonic_ns)
    cpu_began_ns: int = field(default_factory=process_time_ns)
    requests: list[ServedRequest] = field(default_factory=list)


class NullServer:
    """Serves on 127.0.0.1 until told to stop; `port` 0 takes a free one."""

    def __init__(self, port: int, pace: StreamPace) -> None:
        self._pace = pace
        self._epoll = select.epoll()  # first, so that its number is one that select takes
        self._listener = socket.create_server((HOST, port), backlog=_BACKLOG)
        self._listener.setblocking(False)
        self.kernel_stamps = not ask_for_stamps(self._listener)  # accepted sockets inherit it
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)
        self._spare = os.open(os.devnull, os.O_RDONLY)
        self._connections: dict[int, ClientConnection] = {}
        self._accepted = 0
        self._streams = Streams()
        self._due: DueQueue[PacedStream] = DueQueue()
        self._clock = WallClock()
        self._calibrate_ns = monotonic_ns() + _CALIBRATE_NS
        self._served = _Served()
        self._ends: set[int] = set()
        self._stopping = False

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    def stop_on_signals(self) -> None:
        """SIGTERM and SIGINT end `serve` between two events, never within one."""
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: None)
        self.stop_when_readable(reader.detach())

    def stop_when_readable(self, descriptor: int) -> None:
        """`serve` ends when the descriptor has something to read, or its other end is closed."""
        self._epoll.register(descriptor, select.EPOLLIN)
        self._ends.add(descriptor)

    def serve(self) -> ServedLog:
        """Serve; what was served is returned when it is told to stop."""
        while not self._stopping:
            now_ns = self._send_due()
            self._wait(now_ns)
        for connection in list(self._connections.values()):
            self._close(connection)
        self._listener.close()
        self._epoll.close()
        os.close(self._spare)
        return self.log()

    def log(self) -> ServedLog:
        """What was served so far."""
        self._clock.read()
        return ServedLog(
            interval_ns=self._pace.interval_ns,
            cpu_ns=process_time_ns() - self._served.cpu_began_ns,
            served_ns=monotonic_ns() - self._served.began_ns,
            clock_step_ns=self._clock.furthest_step_ns,
            kernel_stamps=self.kernel_stamps,
            requests=tuple(self._served.requests),
        )

    def _send_due(self) -> int:
        """Send events that are due, at most a round of them; the time after it."""
        now_ns = monotonic_ns()
        for _ in range(_ROUND_EVENTS):
            found = self._due.pop_due(now_ns)
            if found is None:
                break
            due_ns, stream = found
            if not stream.connection.closed:
                self._send_next(stream, due_ns)
        return monotonic_ns()

    def _send_next(self, stream: PacedStream, due_ns: int) -> None:
        position = stream.position
        last = position == stream.new_tokens - 1
        chunk = stream.last if last else stream.events[position]
        connection = stream.connection
        try:
            connection.send_event(stream.served, chunk, last)
        except OSError:
            self._close(connection)
            return
        if connection.unsent:
            self._follow_room(connection)
        if last:
            self._end_stream(connection, stream.keep_alive)
        else:
            stream.position = position + 1
            self._due.push_next(due_ns + self._pace.interval_ns, stream)

    def _wait(self, now_ns: int) -> None:
        """Wait for sockets until the next deadline; epoll's own timeout has whole ms only."""
        if now_ns >= self._calibrate_ns:
            self._clock.read()
            self._calibrate_ns = now_ns + _CALIBRATE_NS
        due_ns = self._due.next_due_ns()
        if due_ns is None:
            ready = self._epoll.poll(_CALIBRATE_NS / 1e9)
        else:
            if due_ns > now_ns:
                readable, _, _ = select.select([self._epoll], [], [], (due_ns - now_ns) / 1e9)
                if not readable:
                    return
            ready = self._epoll.poll(0)
        for descriptor, events in ready:
            self._react(descriptor, events)

    def _react(self, descriptor: int, events: int) -> None:
        connection = self._connections.get(descriptor)
        if connection is not None:
            if events & ~select.EPOLLOUT:
                self._read(connection)
            if events & select.EPOLLOUT and not connection.closed:
                self._flush(connection)
        elif descriptor in self._ends:
            self._stopping = True
        elif descriptor == self._listener.fileno():
            self._accept()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _NO_FILES:
                    self._turn_away()
                # Else the client has given up before it was accepted.
                return
            sock.setblocking(False)
            with suppress(OSError):  # reset meanwhile: the read will tell
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = ClientConnection(sock, self._accepted)
            self._accepted += 1
            self._connections[sock.fileno()] = connection
            self._epoll.register(sock.fileno(), select.EPOLLIN)

    def _turn_away(self) -> None:
        """No descriptor is free: with the spare one, close the connection that waits longest."""
        os.close(self._spare)
        with suppress(OSError):  # it may have gone
            self._listener.accept()[0].close()
        self._spare = os.open(os.devnull, os.O_RDONLY)

    def _read(self, connection: ClientConnection) -> None:
        try:
            data, ancillary, _, _ = connection.sock.recvmsg(_READ_BYTES, ANCILLARY_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data, ancillary = b"", []
        if not data:
            self._close(connection)
            return
        connection.arrival_ns = now_ns = monotonic_ns()
        if ancillary:
            seconds, nanoseconds = unpack_stamp(ancillary[0][2])
            stamp_ns = seconds * 1_000_000_000 + nanoseconds + self._clock.offset_ns
            # A stamp that lies ahead is of a wall clock that has just stepped.
            connection.arrival_ns = min(stamp_ns, now_ns)
        connection.received += data
        if connection.ending:
            connection.received.clear()  # nothing more is answered
        elif len(connection.received) > HEAD_LIMIT_BYTES + BODY_LIMIT_BYTES:
            self._close(connection)
        else:
            self._answer_all(connection)

    def _answer_all(self, connection: ClientConnection) -> None:
        """Answer what is whole, one after another: a stream is ended before the next."""
        try:
            while not (connection.stream or connection.ending or connection.closed):
                request = take(connection.received)
                if request is None:
                    return
                del connection.received[: request.size]
                self._answer(connection, request)
        except Refused as refused:
            data = answers.failure(refused.status, str(refused), keep_alive=False)
            self._send(connection, Piece(memoryview(data)), keep_alive=False)

    def _answer(self, connection: ClientConnection, request: HttpRequest) -> None:
        if request.path == _GENERATE:
            self._generate(connection, request)
            return
        if request.path == _LOG_PATH and request.method == b"GET":
            data = answers.answer(200, encode(self.log()), "application/json")
        elif request.path not in _TOLD:
            data = answers.failure(404, "this null server has no such path")
        elif request.method != b"GET":
            data = answers.failure(405, "this path takes GET")
        else:
            data = _TOLD[request.path]
        self._send(connection, Piece(memoryview(data)), request.keep_alive)

    def _generate(self, connection: ClientConnection, request: HttpRequest) -> None:
        if request.method != b"POST":
            data = answers.failure(405, "this path takes POST")
            self._send(connection, Piece(memoryview(data)), request.keep_alive)
            return
        try:
            asked = asked_of(request.body)
        except Refused as refused:
            data = answers.failure(refused.status, str(refused))
            self._send(connection, Piece(memoryview(data)), request.keep_alive)
            return
        index = len(self._served.requests)
        arrival_ns = connection.arrival_ns
        due_ns = self._pace.first_due_ns(arrival_ns, index)
        served = ServedRequest(connection.number, index, request.request_id, arrival_ns, due_ns)
        self._served.requests.append(served)
        if self._pace.instant:
            whole = self._streams.whole(asked)
            piece = Piece(memoryview(whole.data), served, whole.ends, last=True)
            self._send(connection, piece, request.keep_alive)
        else:
            self._begin_stream(PacedStream(connection, served, request.keep_alive), asked)

    def _begin_stream(self, stream: PacedStream, asked: Asked) -> None:
        stream.events = self._streams.events(asked.new_tokens)
        stream.last = self._streams.last(asked)
        stream.new_tokens = asked.new_tokens
        stream.connection.stream = stream
        self._send(stream.connection, Piece(memoryview(answers.STREAM_HEAD)), keep_alive=True)
        self._due.push_first(stream.served.due_ns, stream)

    def _end_stream(self, connection: ClientConnection, keep_alive: bool) -> None:
        connection.stream = None
        connection.ending = not keep_alive
        if connection.ending and not connection.unsent:
            self._finish(connection)
        elif connection.received:
            self._answer_all(connection)

    def _send(self, connection: ClientConnection, piece: Piece, keep_alive: bool) -> None:
        """Send an answer, or a head; the connection ends after it unless it is kept alive."""
        connection.ending = not keep_alive
        try:
            connection.send(piece)
        except OSError:
            self._close(connection)
            return
        if connection.unsent:
            self._follow_room(connection)
        elif connection.ending:
            self._finish(connection)

    def _flush(self, connection: ClientConnection) -> None:
        try:
            connection.flush()
        except OSError:
            self._close(connection)
            return
        if not connection.unsent:
            self._follow_room(connection)
            if connection.ending:
                self._finish(connection)

    def _follow_room(self, connection: ClientConnection) -> None:
        """Hear of room in the socket while something is unsent, and only then."""
        waits = bool(connection.unsent)
        if waits != connection.waits_for_room:
            connection.waits_for_room = waits
            interest = select.EPOLLIN | (select.EPOLLOUT if waits else 0)
            self._epoll.modify(connection.sock.fileno(), interest)

    def _finish(self, connection: ClientConnection) -> None:
        """End our side; the other side ends its own, for a close with bytes unread would reset
        the connection and take the answer with it."""
        try:
            connection.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._close(connection)

    def _close(self, connection: ClientConnection) -> None:
        if not connection.closed:
            connection.closed = True
            connection.stream = None
            del self._connections[connection.sock.fileno()]
            connection.sock.close()

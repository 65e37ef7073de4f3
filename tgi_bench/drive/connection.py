"""One connection of the load client: opened and written without blocking, plain or TLS."""

from __future__ import annotations

import errno
import os
import socket
import sys
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from tgi_bench.drive.channel import Answered, joined
from tgi_bench.drive.http_framing import ResponseFraming
from tgi_bench.errors import InputError
from tgi_bench.kernel_stamps import ask_for_stamps
from tgi_bench.load_observation import RequestOutcome

if TYPE_CHECKING:
    from tgi_bench.drive.tls import TlsLayer


Receive = Callable[[int, int], tuple[bytes, list[tuple[int, int, bytes]], int, object]]
"""As socket.recvmsg."""


def require_quick_acknowledgements() -> None:
    """Raises InputError where this system has none."""
    if sys.platform != "linux":
        raise InputError("load.quickack: true needs Linux, which has TCP_QUICKACK: leave it out")


def acknowledging(sock: socket.socket) -> Receive:
    """recvmsg of the socket, and TCP_QUICKACK after it: what was received is acknowledged at once.

    A server without TCP_NODELAY holds a small piece back while an earlier one is not acknowledged
    (Nagle's algorithm), and Linux delays the acknowledgement on a connection that goes back and
    forth by some 40 ms: so the first token of a kept-alive connection waits for a timer. The
    option is not sticky (tcp(7)): it is set after each read.
    """
    receive, set_option = sock.recvmsg, sock.setsockopt
    level, name = socket.IPPROTO_TCP, socket.TCP_QUICKACK

    def received(
        size: int, ancillary_size: int
    ) -> tuple[bytes, list[tuple[int, int, bytes]], int, object]:
        found = receive(size, ancillary_size)
        set_option(level, name, 1)
        return found

    return received


_OUT_OF = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL)


class FailedRequestError(Exception):
    """A connection could not be opened, or went away; `outcome` is that of its request."""

    def __init__(self, outcome: RequestOutcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome


def failure_of(error: OSError, doing: str) -> FailedRequestError:
    """The failure that an error of the system means. doing: "connect", "send", "read"."""
    text = f"{doing}: {error.strerror or error}"
    if error.errno in _OUT_OF:
        return FailedRequestError(RequestOutcome.CLIENT_LIMIT, text)
    if isinstance(error, TimeoutError):
        return FailedRequestError(RequestOutcome.TIMEOUT, text)
    if doing == "connect":
        return FailedRequestError(RequestOutcome.CONNECTION_REFUSED, text)
    return FailedRequestError(RequestOutcome.CONNECTION_RESET, text)


READ_BYTES = 1 << 15
IN, OUT = 1, 4
"""POLLIN and POLLOUT, which are EPOLLIN and EPOLLOUT too."""


class Poller(Protocol):
    """select.epoll, and select.poll where there is none."""

    def register(self, fd: int, eventmask: int, /) -> object:
        """Watch a file descriptor."""

    def modify(self, fd: int, eventmask: int, /) -> object:
        """Watch it for other events."""

    def unregister(self, fd: int, /) -> object:
        """Watch it no more."""

    def poll(self, timeout: float, /) -> list[tuple[int, int]]:
        """What is ready; epoll counts the timeout in seconds, poll in milliseconds."""


class State(Enum):
    """What a connection is doing."""

    CONNECTING = 1
    HANDSHAKE = 2
    IDLE = 3
    BUSY = 4
    CLOSED = 5


@dataclass(slots=True)
class Job:
    """One request. due_ns: 0 where it is sent as soon as a slot is free; where it then had to wait
    for a connection, since when.

    new_connection: True where its connection was opened for it. first_sent_ns: of the sending that
    the end of its connection left without an answer, so that it was sent again; 0: there was none.
    refusals: in a row, that its slot met before it.
    """

    number: int
    due_ns: int
    request: bytes
    new_connection: bool = False
    first_sent_ns: int = 0
    refusals: int = 0


@dataclass(frozen=True, slots=True)
class Address:
    """Where to connect: one result of getaddrinfo."""

    family: int
    sockaddr: tuple[str | int, ...] | tuple[int, bytes]


class Connection:
    """A socket and the request that is on it; the worker keeps the request's fields.

    raw: reads of the answer whose framing is still on. receive: as recvmsg of its socket, and
    where it was asked to, what was received is acknowledged at once.
    """

    __slots__ = (
        "_poller",
        "_unsent",
        "body",
        "ends",
        "fd",
        "framing",
        "head_ns",
        "job",
        "raw",
        "receive",
        "sent_ns",
        "served",
        "sock",
        "stamps",
        "started_ns",
        "state",
        "tls",
    )

    def __init__(
        self, address: Address, tls: TlsLayer | None, poller: Poller, quickack: bool = False
    ) -> None:
        """Begins to connect. Raises FailedRequestError where that fails at once."""
        try:
            sock = socket.socket(address.family, socket.SOCK_STREAM)
        except OSError as error:
            raise failure_of(error, "connect") from None
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ask_for_stamps(sock)
        code = sock.connect_ex(address.sockaddr)
        if code not in (0, errno.EINPROGRESS):
            sock.close()
            raise failure_of(OSError(code, os.strerror(code)), "connect")
        self.sock = sock
        self.receive: Receive = acknowledging(sock) if quickack else sock.recvmsg
        self.fd = sock.fileno()
        self.framing = ResponseFraming()
        self.job: Job | None = None
        self.body = bytearray()
        self.stamps = array("q")
        self.ends = array("q")
        self.raw: list[tuple[int, bytes]] = []
        self.sent_ns = self.started_ns = 0
        self.head_ns: int | None = None
        self.served = 0
        self.state = State.CONNECTING
        self.tls = tls
        self._unsent = b""
        self._poller = poller
        poller.register(self.fd, IN | OUT)

    def opening(self) -> bool:
        """Go on opening, after epoll said so; whether it is open, and IDLE."""
        if self.state is State.CONNECTING:
            code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise failure_of(OSError(code, os.strerror(code)), "connect")
            self._poller.modify(self.fd, IN)
            if self.tls is None:
                self.state = State.IDLE
                return True
            self.state = State.HANDSHAKE
        assert self.tls is not None
        self._push(self.tls.shake_hands(self._received()))
        if self.tls.open:
            self.state = State.IDLE
        return self.tls.open

    def _received(self) -> bytes:
        """What the other side said in the handshake; b"" before it has said anything."""
        try:
            data = self.sock.recv(READ_BYTES)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise failure_of(error, "TLS handshake") from None
        if not data:
            reason = "the server closed the connection during the TLS handshake"
            raise FailedRequestError(RequestOutcome.TLS, reason)
        return data

    def took_tickets(self) -> bool:
        """Read what came while no request is on it; whether that was a TLS session ticket or the
        like. False: the end, or an answer that nobody asked for.
        """
        if self.tls is None:
            return False
        try:
            data = self.sock.recv(READ_BYTES)
            return bool(data) and not self.tls.decrypted(data)
        except BlockingIOError:
            return True
        except (OSError, FailedRequestError):
            return False

    def send(self, request: bytes) -> None:
        """Hand the request to the system, as much as it takes; `push` sends the rest."""
        self._push(request if self.tls is None else self.tls.encrypted(request))

    def _push(self, data: bytes) -> None:
        if self._unsent:
            self._unsent += data
        elif data:
            self._unsent = data[self._sent(data) :]
            if self._unsent:
                self._poller.modify(self.fd, IN | OUT)

    def push(self) -> None:
        """Send what is left, after epoll said that there is room."""
        self._unsent = self._unsent[self._sent(self._unsent) :]
        if not self._unsent:
            self._poller.modify(self.fd, IN)

    def _sent(self, data: bytes) -> int:
        try:
            return self.sock.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise failure_of(error, "send") from None

    def keep(self, arrival_ns: int, body: bytes) -> None:
        """Some of the body, as one read brought it.

        One buffer for each stream instead of an object for each read: most of a worker's page
        faults were theirs.
        """
        if body:
            self.stamps.append(arrival_ns)
            self.body += body
            self.ends.append(len(self.body))

    @property
    def kept_in_vain(self) -> bool:
        """Whether it has served a request before, and nothing came for the one on it: a server
        may end a connection that it kept alive at any time, also while a request is on its way."""
        return self.served > 0 and not self.framing.begun

    def forget(self) -> None:
        """Make ready for the next request."""
        self.job = None
        self.head_ns = None
        self.drop()
        self.framing.reset()

    def drop(self) -> None:
        """Forget what came of the body."""
        self.body.clear()
        self.raw.clear()
        del self.stamps[:]
        del self.ends[:]

    def answered(self, ended_ns: int, failure: RequestOutcome | None, reason: str) -> Answered:
        """What came back for the request that is on it, for the driver."""
        job, framing = self.job, self.framing
        assert job is not None
        return (
            job.number,
            job.due_ns or self.sent_ns,
            self.sent_ns,
            job.new_connection,
            framing.status or 0,
            joined(framing.headers),
            self.stamps.tobytes(),
            self.ends.tobytes(),
            bytes(self.body),
            self.head_ns or 0,
            ended_ns,
            failure.value if failure else "",
            reason,
            int(job.first_sent_ns > 0),
        )

    def close(self) -> None:
        """Close it; once is enough."""
        if self.state is not State.CLOSED:
            self.state = State.CLOSED
            self._poller.unregister(self.fd)
            self.sock.close()

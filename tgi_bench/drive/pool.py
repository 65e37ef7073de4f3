"""The connections of a worker: opened before the clock starts, kept alive, spares at hand."""

from __future__ import annotations

import socket
import sys
import time
from typing import TYPE_CHECKING

from tgi_bench.drive.channel import WorkerSetup
from tgi_bench.drive.connection import Address, Connection, FailedRequestError, Job, Poller, State
from tgi_bench.kernel_stamps import ask_for_stamps
from tgi_bench.load_observation import RequestOutcome

if TYPE_CHECKING:
    import ssl

    from tgi_bench.drive.tls import TlsLayer

_LEAST_SPARES = 4
_OPENED_AT_ONCE = 64
_RESOLVE_TIMEOUT_S = 5.0
_SPARES_PAUSE_NS = 100_000_000
_LEAST_ENDED = 4


class Pool:
    """All connections of one worker. The one given back last is used first.

    opened: ahead, before the start and as spares. reopened: since the start, for a request that
    had to wait for it; not counted are those in the place of one that this client closed.
    ended: by the server, which had answered on them and announced to keep them.
    """

    def __init__(self, setup: WorkerSetup, poller: Poller) -> None:
        self._setup = setup
        self._poller = poller
        self.connections: dict[int, Connection] = {}
        self._idle: list[Connection] = []
        self._no_spares_until_ns = 0
        self.opened = self.reopened = self._given_up = 0
        self.started = False
        self.ended, self._reused = 0, False
        self._unresolved: FailedRequestError | None = None
        self._context: ssl.SSLContext | None = None
        if setup.tls:
            from tgi_bench.http_rules import client_context

            self._context = client_context(setup.verify)
        self._addresses = self._resolved()
        self.stamp_reason = "asked to do without" if not setup.kernel_stamps else _why_no_stamps()

    @property
    def reads_may_wait(self) -> bool:
        """Whether nothing is lost by reading a little later."""
        return not self.stamp_reason and not self._setup.quickack

    def _resolved(self) -> list[Address]:
        try:
            found = socket.getaddrinfo(self._setup.host, self._setup.port, type=socket.SOCK_STREAM)
        except OSError as error:
            reason = f"{self._setup.host}: {error.strerror or error}"
            self._unresolved = FailedRequestError(RequestOutcome.DNS, reason)
            return []
        return [Address(family, address) for family, _, _, _, address in found]

    def open_first(self, count: int) -> str:
        """Open that many, of the first address that answers; why one could not be, or ""."""
        failure = self._choose_address()
        if failure:
            return failure
        deadline_ns = time.monotonic_ns() + self._setup.timeout_ns
        wanted = count
        while len(self._idle) < count and time.monotonic_ns() < deadline_ns:
            opening = len(self.connections) - len(self._idle)
            try:
                while wanted and opening < _OPENED_AT_ONCE:
                    self._connect(None)
                    wanted, opening = wanted - 1, opening + 1
                self._wait_for_some()
            except FailedRequestError as error:
                return str(error)
            if not wanted and len(self.connections) == len(self._idle):
                break
        return ""

    def _wait_for_some(self) -> None:
        # epoll counts in seconds, poll in milliseconds.
        for fd, _ in self._poller.poll(0.05 if sys.platform == "linux" else 50):
            connection = self.connections.get(fd)
            if connection is None:
                continue
            try:
                if connection.state is State.IDLE:
                    self.look_at_idle(connection)
                elif connection.opening():
                    self.give_back(connection)
            except FailedRequestError:
                self.discard(connection)
                raise

    def _choose_address(self) -> str:
        """Keep the first address that takes a connection; all of them where none does."""
        if self._unresolved is not None:
            return str(self._unresolved)
        if len(self._addresses) == 1:
            return ""
        failure = ""
        for address in self._addresses:
            with socket.socket(address.family, socket.SOCK_STREAM) as sock:
                sock.settimeout(_RESOLVE_TIMEOUT_S)
                try:
                    sock.connect(address.sockaddr)
                except OSError as error:
                    failure = failure or f"connect: {error.strerror or error}"
                    continue
            self._addresses = [address]
            return ""
        return failure

    def idle(self) -> Connection | None:
        """An open connection without a request, no longer in the pool; None where none is."""
        return self._idle.pop() if self._idle else None

    def open(self, job: Job) -> Connection:
        """A connection for this job, which is sent when it is open. Raises FailedRequestError."""
        job.new_connection = True
        return self._connect(job)

    def _connect(self, job: Job | None) -> Connection:
        if self._unresolved is not None:
            raise self._unresolved
        layer, quickack = self._layer(), self._setup.quickack
        connection = Connection(self._addresses[0], layer, self._poller, quickack)
        connection.job = job
        connection.started_ns = time.monotonic_ns()
        self.connections[connection.fd] = connection
        if not self.started or job is None or self._given_up:
            self.opened += 1
            self._given_up = max(0, self._given_up - 1)
        else:
            self.reopened += 1
        return connection

    def _layer(self) -> TlsLayer | None:
        if self._context is None:
            return None
        from tgi_bench.drive.tls import TlsLayer

        return TlsLayer(self._context, self._setup.server_name)

    def give_back(self, connection: Connection) -> None:
        """The connection is open and has no request."""
        connection.state = State.IDLE
        connection.served += 1 if connection.head_ns is not None else 0
        connection.forget()
        self._idle.append(connection)

    def answered(self, connection: Connection, closed: bool) -> None:
        """Keep it, unless either side ends it; closed: the server did.

        A server may end each connection after one answer, whatever it announces: to send a second
        request on it, and that once more, costs more than a connection of its own.
        """
        framing = connection.framing
        self._reused |= connection.served > 0
        one_each = self.ended >= _LEAST_ENDED and not self._reused
        if closed or one_each or not framing.keep_alive or framing.rest:
            self.discard(connection)
        else:
            self.give_back(connection)

    def give_up(self) -> None:
        """A connection is closed by this client itself: another one takes its place."""
        self._given_up += 1

    def discard(self, connection: Connection) -> None:
        """Close it."""
        if connection.state is State.IDLE:
            self._idle = [one for one in self._idle if one is not connection]
        self.connections.pop(connection.fd, None)
        connection.close()

    def look_at_idle(self, connection: Connection) -> None:
        """Something came on it, and nothing was asked: keep it only where that was TLS's own."""
        if not connection.took_tickets():
            self.discard_spare(connection)

    def discard_spare(self, connection: Connection) -> None:
        """The server does not want it: others are not opened as quickly as it closes them."""
        self.ended += connection.served > 0
        self.discard(connection)
        self._no_spares_until_ns = time.monotonic_ns() + _SPARES_PAUSE_NS

    def keep_spares(self, in_flight: int) -> None:
        """Where jobs have times, open one ahead: none of them should wait for a connection."""
        spares = len(self.connections) - in_flight
        wanted = max(_LEAST_SPARES, in_flight // 4)
        if spares >= wanted or len(self.connections) >= self._setup.most_in_flight:
            return
        if time.monotonic_ns() < self._no_spares_until_ns:
            return
        try:
            self._connect(None)
        except FailedRequestError:  # the request that needs one will say so
            self._no_spares_until_ns = time.monotonic_ns() + _SPARES_PAUSE_NS


def _why_no_stamps() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        return ask_for_stamps(sock)

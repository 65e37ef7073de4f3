"""A server on 127.0.0.1 that answers with the bytes that a real one sent.

with Replayer(numbered(exchanges), whole) as server:
    ...                            # requests to server.url
    server.asked                   # what was asked, as it came
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tests.dialects.recorded_http import Exchange, connection, names

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s: close() sends RST
_NOT_RECORDED = b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}"

Pace = Callable[[Exchange], Sequence[bytes]]
"""How an answer is cut; the pieces are sent one by one, a millisecond apart."""


def whole(exchange: Exchange) -> Sequence[bytes]:
    """In one piece."""
    return (exchange.reply,)


def as_recorded(exchange: Exchange) -> Sequence[bytes]:
    """As the kernel cut it then."""
    return exchange.reads


def in_pieces(size: int) -> Pace:
    """So many bytes at a time, slowly."""

    def cut(exchange: Exchange) -> Sequence[bytes]:
        reply = exchange.reply
        return [reply[at : at + size] for at in range(0, len(reply), size)]

    return cut


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came. connection: 0-based."""

    method: str
    path: str
    body: dict[str, Any]
    connection: int
    headers: dict[str, str] = field(default_factory=dict)


Pick = Callable[[Asked], Exchange | None]
"""The answer to a request; None: HTTP 404."""


def numbered(exchanges: Sequence[Exchange]) -> Pick:
    """The answer of a load's request by its number, from the first again after the last."""

    def pick(asked: Asked) -> Exchange:
        return exchanges[int(asked.headers["x-request-id"].partition("-")[2]) % len(exchanges)]

    return pick


def server_of(folder: str, *others: str) -> Pick:
    """As that server answered the request that is most like the one that is asked.

    others: names of connections whose answers go before, for requests to the same path.
    """
    plain_first = sorted(names(folder), key=lambda name: not name.startswith("get-"))
    recorded = [e for name in plain_first for e in connection(folder, name)]
    first = [e for name in others for e in connection(folder, name)]

    def pick(asked: Asked) -> Exchange | None:
        for among in (first, recorded):
            same = [e for e in among if (e.method, e.path) == (asked.method, asked.path)]
            if same:
                return max(same, key=lambda e: _likeness(e, asked))
        return None

    return pick


def _likeness(recorded: Exchange, asked: Asked) -> tuple[bool, int, bool]:
    """Streamed or not goes first, then how many keys have the same value; then that it is 200."""
    body = recorded.body
    alike = sum(body[key] == value for key, value in asked.body.items() if key in body)
    strange = len(body.keys() ^ asked.body.keys())
    streams = bool(body.get("stream")) == bool(asked.body.get("stream"))
    return streams, 2 * alike - strange, b" 200 " in recorded.reply[:16]


class Replayer:
    """The server, as a context manager."""

    def __init__(self, pick: Pick, pace: Pace = whole) -> None:
        self._pick, self._pace = pick, pace
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.asked: list[Asked] = []
        self.connections = 0

    @property
    def url(self) -> str:
        """Without a path."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _start(self, run: Callable[..., None], *given: object) -> None:
        thread = threading.Thread(target=run, args=given)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed by __exit__
            while True:
                sock, _ = self._listener.accept()
                self._start(self._serve, sock, self.connections)
                self.connections += 1

    def _serve(self, sock: socket.socket, number: int) -> None:
        # A client that goes away is no fault of the server.
        with sock, contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for asked in self._requests(sock, number):
                self.asked.append(asked)
                exchange = self._pick(asked)
                if exchange is None:
                    sock.sendall(_NOT_RECORDED)
                elif self._played(sock, exchange):
                    return

    def _played(self, sock: socket.socket, exchange: Exchange) -> bool:
        """Whether the connection is over."""
        for piece in self._pace(exchange):
            sock.sendall(piece)
            time.sleep(0.001)
        if exchange.ends == "RST":
            time.sleep(0.02)  # what was sent is read before the RST comes
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        return bool(exchange.ends)

    def _requests(self, sock: socket.socket, number: int) -> Iterator[Asked]:
        """Until the client ends."""
        sock.settimeout(0.05)
        data = b""
        while not self._stopping.is_set():
            head, blank, body = data.partition(b"\r\n\r\n")
            lines = (line.partition(b":") for line in head.split(b"\r\n")[1:])
            fields = {n.decode().lower(): v.strip().decode("latin-1") for n, _, v in lines}
            length = int(fields.get("content-length", "0"))
            if blank and len(body) >= length:
                data = body[length:]
                method, path, _ = head.split(b" ", 2)
                said = json.loads(body[:length]) if length else {}
                yield Asked(method.decode(), path.decode(), said, number, fields)
                continue
            try:
                more = sock.recv(1 << 16)
            except TimeoutError:
                continue
            if not more:
                return
            data += more

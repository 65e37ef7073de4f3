"""A server on 127.0.0.1 that answers with the bytes that a real one sent.

with Replayer(numbered(exchanges), whole) as server:
    ...                            # requests to server.url
    server.asked                   # what was asked, as it came
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence

from tests.dialects.recorded_http import Exchange, connection, names
from tests.drive.http_peer import RESET, Asked, ConnectionEnds, HttpPeer

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


class Replayer(HttpPeer):
    """The server."""

    def __init__(self, pick: Pick, pace: Pace = whole) -> None:
        super().__init__()
        self._pick, self._pace = pick, pace

    def answer(self, sock: socket.socket, asked: Asked, served: int) -> None:
        self.asked.append(asked)
        exchange = self._pick(asked)
        if exchange is None:
            sock.sendall(_NOT_RECORDED)
            return
        for piece in self._pace(exchange):
            sock.sendall(piece)
            time.sleep(0.001)
        if exchange.ends == "RST":
            time.sleep(0.02)  # what was sent is read before the RST comes
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        if exchange.ends:
            raise ConnectionEnds

"""One accepted connection of the null server: requests that came, and what is not sent yet.

Requests are HTTP/1.1 with Content-Length bodies and keep-alive. A server that measures needs no
more of HTTP, and refuses the rest in one answer.
"""

from __future__ import annotations

import json
import socket
from array import array
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from time import monotonic_ns

from tgi_bench.server.null.answers import MAX_NEW_TOKENS, Asked
from tgi_bench.server.null.timing import ServedRequest

HEAD_LIMIT_BYTES = 1 << 16
BODY_LIMIT_BYTES = 1 << 24
_HEAD_END = b"\r\n\r\n"
_DEFAULT_NEW_TOKENS = 100
"""TGI's max_new_tokens where it is not given, 1.3.4 to 2.4.1."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One whole request. size: its bytes. request_id: of its header x-request-id; b"": none."""

    method: bytes
    path: bytes
    request_id: bytes
    keep_alive: bool
    body: bytes
    size: int


class Refused(Exception):  # noqa: N818 - an answer, not a fault of this program
    """A request that cannot be taken; status and `str()` make the answer.

    ends: True where the connection's bytes cannot be told apart any more.
    """

    def __init__(self, status: int, message: str, ends: bool) -> None:
        super().__init__(message)
        self.status = status
        self.ends = ends


def take(received: bytearray) -> HttpRequest | None:
    """The first request of what was received, which is not changed; None where it is not whole.

    Raises Refused for what is no request or is too long.
    """
    head_end = received.find(_HEAD_END, 0, HEAD_LIMIT_BYTES)
    if head_end < 0:
        if len(received) >= HEAD_LIMIT_BYTES:
            raise Refused(431, f"a head has at most {HEAD_LIMIT_BYTES} bytes", ends=True)
        return None
    line, *fields = bytes(received[:head_end]).split(b"\r\n")
    method, path, version = _request_line(line)
    headers = _headers(fields)
    body_start = head_end + len(_HEAD_END)
    size = body_start + _body_length(method, headers)
    if len(received) < size:
        return None
    asked = headers.get(b"connection", b"").lower()
    return HttpRequest(
        method=method,
        path=path,
        request_id=headers.get(b"x-request-id", b"")[:255],
        keep_alive=asked != b"close" and (version == b"HTTP/1.1" or asked == b"keep-alive"),
        body=bytes(received[body_start:size]),
        size=size,
    )


def _request_line(line: bytes) -> tuple[bytes, bytes, bytes]:
    words = line.split(b" ")
    if len(words) != 3 or not words[0].isalpha() or not words[1].startswith(b"/"):
        raise Refused(400, "the request line is not one of HTTP", ends=True)
    method, target, version = words
    if version not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise Refused(505, "HTTP/1.1 is spoken here", ends=True)
    return method, target.partition(b"?")[0], version


def _headers(lines: list[bytes]) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or name != name.strip():
            raise Refused(400, "a header is not one of HTTP", ends=True)
        key = name.lower()
        if key == b"content-length" and headers.get(key, value.strip()) != value.strip():
            raise Refused(400, "two different content-length headers", ends=True)
        headers[key] = value.strip()
    return headers


def _body_length(method: bytes, headers: dict[bytes, bytes]) -> int:
    if b"transfer-encoding" in headers:
        raise Refused(411, "send a body with content-length", ends=True)
    text = headers.get(b"content-length")
    if text is None:
        if method == b"POST":
            raise Refused(411, "send a body with content-length", ends=True)
        return 0
    if not text.isdigit() or len(text) > 18:
        raise Refused(400, "content-length is no number", ends=True)
    if int(text) > BODY_LIMIT_BYTES:
        raise Refused(413, f"a body has at most {BODY_LIMIT_BYTES} bytes", ends=True)
    return int(text)


def asked_of(body: bytes) -> Asked:
    """What a body of /generate_stream asks; raises Refused where it is none.

    The prompt's tokens are `truncate` where it is given, else its words: there is no tokenizer.
    """
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(422, "the body is no JSON", ends=False) from None
    if not isinstance(told, dict) or not isinstance(told.get("inputs"), str):
        raise Refused(422, "`inputs` must be a text", ends=False)
    parameters = told.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise Refused(422, "`parameters` must be an object", ends=False)
    new_tokens = _whole(parameters, "max_new_tokens", MAX_NEW_TOKENS)
    truncate = _whole(parameters, "truncate", None)
    return Asked(
        new_tokens=_DEFAULT_NEW_TOKENS if new_tokens is None else new_tokens,
        input_length=len(told["inputs"].split()) if truncate is None else truncate,
        details=parameters.get("details") is True,
    )


def _whole(parameters: dict[str, object], key: str, highest: int | None) -> int | None:
    value = parameters.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise Refused(422, f"`{key}` must be strictly positive", ends=False)
    if highest is not None and value > highest:
        raise Refused(422, f"`{key}` must be <= {highest}", ends=False)
    return value


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


class PacedStream:
    """An answer that is being sent, an event at a time. position: of the next event."""

    __slots__ = ("connection", "events", "keep_alive", "last", "new_tokens", "position", "served")

    def __init__(
        self, connection: ClientConnection, served: ServedRequest, keep_alive: bool
    ) -> None:
        self.connection = connection
        self.served = served
        self.keep_alive = keep_alive
        self.events: list[bytes] = []
        self.last = b""
        self.new_tokens = 0
        self.position = 0


class ClientConnection:
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
        self.stream: PacedStream | None = None
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

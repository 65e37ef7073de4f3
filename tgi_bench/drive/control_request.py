"""A control request: one that the client asks for itself, before a load, and when what came."""

from __future__ import annotations

import socket
import time
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tgi_bench.dialects.answer import Answer
from tgi_bench.dialects.dialect import Ask, AskOptions, request_bytes
from tgi_bench.dialects.reading import read_answer
from tgi_bench.drive.http_framing import ResponseFraming
from tgi_bench.errors import TgiBenchError
from tgi_bench.load_observation import RequestOutcome

if TYPE_CHECKING:
    from tgi_bench.drive.prepared import Prepared

_READ_BYTES = 1 << 15
_MOST_BYTES = 1 << 20


class NoControlError(TgiBenchError):
    """The server does not do what there would be to compare."""


@dataclass(frozen=True, slots=True)
class ControlAnswer:
    """Times from sending. event_ns: of each event with a token. kept_alive: whether its connection
    may be used again."""

    head_ns: int
    event_ns: array[int]
    tokens: int
    ended_ns: int
    kept_alive: bool


def connected(prepared: Prepared, timeout_s: float) -> socket.socket:
    """A connection of its own to the server. Raises OSError."""
    url = urlsplit(prepared.url)
    host, tls = url.hostname or "", url.scheme == "https"
    sock = socket.create_connection((host, url.port or (443 if tls else 80)), timeout_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not tls:
        return sock
    from tgi_bench.http_rules import client_context

    return client_context(prepared.verify_tls).wrap_socket(sock, server_hostname=host)


def asked(
    sock: socket.socket,
    prepared: Prepared,
    what: tuple[str, int],
    deadline: float,
    quickack: bool = False,
) -> ControlAnswer:
    """One streamed answer. what: a text, and the tokens to answer with. deadline: of
    time.monotonic(). quickack: acknowledge each read at once.

    Raises OSError, FramingError, NoControlError.
    """
    ask, request = _request(prepared, *what)
    framing, pieces, size = ResponseFraming(), [], 0
    head_ns = now = sent_ns = time.monotonic_ns()
    sock.sendall(request)
    while not framing.done:
        sock.settimeout(max(1e-3, deadline - time.monotonic()))
        data = sock.recv(_READ_BYTES)
        now = time.monotonic_ns()
        if quickack:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        size += len(data)
        if not data or size > _MOST_BYTES or time.monotonic() > deadline:
            raise NoControlError("it ended, or has no end")
        began = framing.head_done
        body = framing.feed(data)
        if not began and framing.head_done:
            head_ns = now
        if body:
            pieces.append((now, body))
    answer = Answer(framing.status, framing.headers, tuple(pieces), head_ns, now, None, "")
    reading = read_answer(answer, prepared.abilities, True, ask, None)
    if reading.outcome is not RequestOutcome.OK or not reading.event_ns:
        raise NoControlError(reading.reason)
    return ControlAnswer(
        head_ns=head_ns - sent_ns,
        event_ns=array("q", (at - sent_ns for at in reading.event_ns)),
        tokens=reading.output_tokens,
        ended_ns=now - sent_ns,
        kept_alive=framing.keep_alive,
    )


def _request(prepared: Prepared, text: str, tokens: int) -> tuple[Ask, bytes]:
    ask = prepared.abilities.dialect.ask((("user", text),), None, tokens)
    options = AskOptions(
        host=prepared.host,
        stream=True,
        sampling=prepared.trial.sampling,
        base_path=prepared.base_path,
        headers=prepared.headers,
    )
    return ask, request_bytes(ask, prepared.abilities, options)

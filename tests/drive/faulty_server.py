"""An HTTP server on 127.0.0.1 that answers /generate_stream as asked, or with one named fault.

    with FaultyServer() as server:
        server.behaviour("reset_in_event")            # from now on
        server.behaviours(("well", "invalid_json"))   # one request after the other, in turn;
                                                      # one that is sent again meets the same again
        ...                                           # requests to server.url
        server.shown                                  # {x-request-id: behaviour}
        server.asked                                  # what was asked, as it came

Its answers are those of TGI's own API, with as many tokens as the request asks; the behaviour
"well" also speaks the OpenAI APIs, where these are asked.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import random
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

CERTIFICATE = Path(__file__).parent / "self_signed.pem"
"""For 127.0.0.1, signed by itself, with its key; valid for 100 years, and for tests alone."""
BIG_EVENT_BYTES = 10_000_000
UNKNOWN_HOST_URL = "http://no-such-host.invalid:8080"
"""RFC 2606 keeps .invalid from ever having an address."""

_STEP_S = 0.001
_READ_BYTES = 1 << 16
_END_S = 10.0
_EVENT_STREAM = "content-type: text/event-stream"
_SAID = {
    "/health": b"",
    "/info": b'{"model_id": "faulty", "version": "3.3.7", "max_input_tokens": 4096}',
}
"""What it says of itself, by the end of the path."""
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s: close() sends RST


class ConnectionEnds(Exception):  # noqa: N818  # the way out of an exchange, and no error
    """This connection is not to be used again."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came. request_id: x-request-id, or "". connection: 0-based."""

    path: str
    body: dict[str, Any]
    request_id: str
    connection: int
    authorization: str

    @property
    def tokens(self) -> int:
        """That it asks for."""
        if "parameters" in self.body:
            return int(self.body["parameters"]["max_new_tokens"])
        return int(self.body["max_tokens"])


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request, and the means to answer it. served: requests on its connection before it."""

    sock: socket.socket
    asked: Asked
    number: int
    served: int
    stopping: threading.Event
    listener: socket.socket

    @property
    def tokens(self) -> int:
        """That it asks for."""
        return self.asked.tokens

    def head(self, status: str = "200 OK", *lines: str) -> None:
        self.sock.sendall("\r\n".join((f"HTTP/1.1 {status}", *lines, "", "")).encode())

    def chunk(self, data: bytes) -> None:
        self.sock.sendall(chunk_of(data))

    def stream_head(self) -> None:
        self.head("200 OK", _EVENT_STREAM, "transfer-encoding: chunked")

    def events(self) -> list[bytes]:
        """All of a good answer."""
        if not self.asked.path.endswith("/generate_stream"):
            return openai_events(self.asked.path, self.tokens, self.number)
        return [event_of(index, self.tokens) for index in range(self.tokens)]

    def begin(self, count: int) -> None:
        """A good head and the first events."""
        self.stream_head()
        for event in self.events()[:count]:
            self.chunk(event)
            time.sleep(_STEP_S)

    def wait(self) -> None:
        """Say nothing more, until the client or the server goes away."""
        self.sock.settimeout(0.02)
        while not self.stopping.is_set():
            try:
                if not self.sock.recv(_READ_BYTES):
                    break
            except TimeoutError:
                continue
        raise ConnectionEnds

    def reset(self) -> None:
        # What was sent is read before the RST comes; else the client might never see it.
        time.sleep(0.02)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        raise ConnectionEnds


def event_of(index: int, tokens: int) -> bytes:
    """One token; the last one says how it ended."""
    last = index + 1 == tokens
    details = {"finish_reason": "length", "generated_tokens": tokens, "input_length": 5}
    event = {
        "index": index,
        "token": {"id": index, "text": f" t{index}", "logprob": -0.5, "special": False},
        "generated_text": "".join(f" t{i}" for i in range(tokens)) if last else None,
        "details": details if last else None,
    }
    return b"data:" + json.dumps(event).encode() + b"\n\n"


def openai_events(path: str, tokens: int, number: int) -> list[bytes]:
    """One token an event, "t<number>.<index>", then usage and the end."""
    chat = path.endswith("/chat/completions")
    said: list[object] = []
    for index in range(tokens):
        text = f" t{number}.{index}"
        choice: dict[str, object] = {"index": 0}
        choice |= {"delta": {"role": "assistant", "content": text}} if chat else {"text": text}
        choice["finish_reason"] = "length" if index + 1 == tokens else None
        said.append({"choices": [choice]})
    said.append({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": tokens}})
    return [*(b"data: " + json.dumps(one).encode() + b"\n\n" for one in said), b"data: [DONE]\n\n"]


def chunk_of(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _well(x: Exchange) -> None:
    if x.asked.path.endswith("/generate"):
        _whole_answer(x)
        return
    x.begin(len(x.events()))
    x.chunk(b"")


def _whole_answer(x: Exchange) -> None:
    """Of /generate, which does not stream."""
    tokens = [{"id": i, "text": f" t{i}", "logprob": -0.5} for i in range(x.tokens)]
    details = {"finish_reason": "length", "generated_tokens": x.tokens, "tokens": tokens}
    text = "".join(f" t{i}" for i in range(x.tokens))
    body = json.dumps({"generated_text": text, "details": details}).encode()
    x.head("200 OK", "content-type: application/json", f"content-length: {len(body)}")
    x.sock.sendall(body)


def _slow(x: Exchange) -> None:
    """A good answer that takes its time."""
    x.stream_head()
    for event in x.events():
        time.sleep(0.02)
        x.chunk(event)
    x.chunk(b"")


def _well_and_closes(x: Exchange) -> None:
    """A good answer; then the connection is closed, which was not said."""
    _well(x)
    raise ConnectionEnds


def _closes_when_reused(x: Exchange) -> None:
    """A good answer on a fresh connection, which is kept alive to no purpose."""
    if x.served:
        raise ConnectionEnds
    _well(x)


def _resets_when_reused(x: Exchange) -> None:
    if x.served:
        x.reset()
    _well(x)


def _goes_away(x: Exchange) -> None:
    """Nobody listens any more, and this connection ends."""
    x.listener.shutdown(socket.SHUT_RDWR)
    raise ConnectionEnds


def _closes_in_head_when_reused(x: Exchange) -> None:
    if x.served:
        x.sock.sendall(b"HTTP/1.1 2")
        raise ConnectionEnds
    _well(x)


def _closes_after_interim_when_reused(x: Exchange) -> None:
    if x.served:
        x.head("103 Early Hints", "link: </a>")
        raise ConnectionEnds
    _well(x)


def _comments(x: Exchange) -> None:
    x.stream_head()
    for event in x.events():
        x.chunk(b": keep-alive\n\n")
        x.chunk(b":\n\n" + event)
    x.chunk(b"")


def _whole(x: Exchange) -> bytes:
    """A good answer's bytes, chunked."""
    head = f"HTTP/1.1 200 OK\r\n{_EVENT_STREAM}\r\ntransfer-encoding: chunked\r\n\r\n"
    return head.encode() + b"".join(map(chunk_of, [*x.events(), b""]))


def _one_byte_at_a_time(x: Exchange) -> None:
    for byte in _whole(x):
        x.sock.sendall(bytes((byte,)))


def _split_anywhere(x: Exchange) -> None:
    rng = random.Random(x.number)
    data = _whole(x)
    cuts = sorted(rng.sample(range(1, len(data)), 20))
    for begin, end in itertools.pairwise([0, *cuts, len(data)]):
        x.sock.sendall(data[begin:end])
        time.sleep(_STEP_S)


def _several_events_a_read(x: Exchange) -> None:
    x.sock.sendall(_whole(x))


def _several_events_a_chunk(x: Exchange) -> None:
    x.stream_head()
    x.chunk(b"".join(x.events()))
    x.chunk(b"")


def _identity_body(x: Exchange) -> None:
    body = b"".join(x.events())
    x.head("200 OK", _EVENT_STREAM, f"content-length: {len(body)}")
    x.sock.sendall(body)


def _until_close(x: Exchange) -> None:
    x.head("200 OK", _EVENT_STREAM, "connection: close")
    for event in x.events():
        x.sock.sendall(event)
        time.sleep(_STEP_S)
    raise ConnectionEnds


def _interim(x: Exchange) -> None:
    x.head("103 Early Hints", "link: </a>")
    _well(x)


def _more_after_the_end(x: Exchange) -> None:
    x.begin(x.tokens)
    x.sock.sendall(b"0\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    x.wait()


def _big_event(x: Exchange) -> None:
    events = x.events()
    events[0] = events[0].replace(b" t0", b" " + b"t" * BIG_EVENT_BYTES)
    x.stream_head()
    for event in events:
        x.chunk(event)
    x.chunk(b"")


def _reset_before_answer(x: Exchange) -> None:
    x.reset()


def _reset_in_event(x: Exchange) -> None:
    x.begin(1)
    x.sock.sendall(chunk_of(x.events()[1])[:30])
    x.reset()


def _closes_before_answer(x: Exchange) -> None:
    raise ConnectionEnds


def _closes_in_event(x: Exchange) -> None:
    x.begin(1)
    x.sock.sendall(chunk_of(x.events()[1])[:30])
    raise ConnectionEnds


def _early_end(x: Exchange) -> None:
    x.begin(2)
    x.chunk(b"")


def _never_answers(x: Exchange) -> None:
    x.wait()


def _stops_sending(x: Exchange) -> None:
    x.begin(2)
    x.wait()


def _endless(x: Exchange, begin: bytes, again: bytes) -> None:
    x.sock.sendall(begin)
    while not x.stopping.is_set():
        x.sock.sendall(again)
    raise ConnectionEnds


def _endless_headers(x: Exchange) -> None:
    _endless(x, b"HTTP/1.1 200 OK\r\n", b"x-more: and more\r\n" * 100)


def _endless_chunk_line(x: Exchange) -> None:
    x.stream_head()
    _endless(x, b"5;", b"a" * 1000)


def _endless_trailers(x: Exchange) -> None:
    x.begin(x.tokens)
    _endless(x, b"0\r\n", b"x-more: and more\r\n" * 100)


def _endless_body(x: Exchange) -> None:
    x.stream_head()
    _endless(x, b"", chunk_of(b": more\n" * 600_000))


def _much_and_no_end(x: Exchange) -> None:
    """4 MB, and then nothing more."""
    x.stream_head()
    for _ in range(40):
        x.chunk(b": more\n" * 15_000)
    x.wait()


def _not_http(x: Exchange) -> None:
    x.sock.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
    x.wait()


def _broken_chunk(x: Exchange) -> None:
    x.begin(1)
    x.sock.sendall(chunk_of(x.events()[1])[:-2] + b"XX")
    x.wait()


def _instead_of_second(x: Exchange, event: bytes) -> None:
    x.stream_head()
    events = x.events()
    events[1] = event
    for each in events:
        x.chunk(each)
    x.chunk(b"")


def _invalid_utf8(x: Exchange) -> None:
    _instead_of_second(x, x.events()[1].replace(b" t1", b"\xff\xfe"))


def _invalid_json(x: Exchange) -> None:
    _instead_of_second(x, b'data:{"index":1,"token"\n\n')


def _told_inside(x: Exchange, error: str, kind: str) -> None:
    x.begin(1)
    x.chunk(b"data:" + json.dumps({"error": error, "error_type": kind}).encode() + b"\n\n")
    x.chunk(b"")


def _error_inside(x: Exchange) -> None:
    _told_inside(x, "Request failed during generation: CUDA error", "generation")


def _overloaded_inside(x: Exchange) -> None:
    _told_inside(x, "Model is overloaded", "overloaded")


def _refusal(x: Exchange, status: str, *lines: str) -> None:
    body = b'{"error":"no","error_type":"no"}'
    length = f"content-length: {len(body)}"
    x.head(status, "content-type: application/json", length, *lines)
    x.sock.sendall(body)


def _too_many_requests(x: Exchange) -> None:
    _refusal(x, "429 Too Many Requests", "retry-after: 7")


def _unavailable(x: Exchange) -> None:
    _refusal(x, "503 Service Unavailable", "retry-after: Tue, 03 Mar 2026 10:11:12 GMT")


def _refuses(x: Exchange) -> None:
    _refusal(x, "429 Too Many Requests")


def _refuses_and_closes(x: Exchange) -> None:
    _refusal(x, "503 Service Unavailable", "connection: close")
    raise ConnectionEnds


def _internal_error(x: Exchange) -> None:
    _refusal(x, "500 Internal Server Error")


def _tells_the_key(x: Exchange) -> None:
    body = json.dumps({"error": f"no access with {x.asked.authorization}"}).encode()
    x.head("500 Internal Server Error", f"content-length: {len(body)}")
    x.sock.sendall(body)


def _redirect(x: Exchange) -> None:
    x.head("307 Temporary Redirect", "location: http://127.0.0.1:1/", "content-length: 0")


def _compressed(x: Exchange) -> None:
    body = gzip.compress(b"".join(x.events()))
    x.head("200 OK", _EVENT_STREAM, "Content-Encoding: gzip", f"content-length: {len(body)}")
    x.sock.sendall(body)


def _compressed_stream(x: Exchange) -> None:
    x.head("200 OK", _EVENT_STREAM, "content-encoding: GZIP", "transfer-encoding: chunked")
    x.chunk(gzip.compress(b"".join(x.events())))
    x.chunk(b"")


def _compressed_error(x: Exchange) -> None:
    """The status says what there is to say."""
    body = gzip.compress(b"<html></html>")
    length = f"content-length: {len(body)}"
    x.head("502 Bad Gateway", "content-type: text/html", "content-encoding: gzip", length)
    x.sock.sendall(body)


def _wrong_type(x: Exchange) -> None:
    x.head("200 OK", "content-type: text/html", "content-length: 13")
    x.sock.sendall(b"<html></html>")


def _told(x: Exchange, pieces: tuple[bytes, ...], then_ends: bool) -> None:
    for piece in pieces:
        x.sock.sendall(piece)
        time.sleep(_STEP_S)
    if then_ends:
        raise ConnectionEnds


BEHAVIOURS: dict[str, Callable[[Exchange], None]] = {
    "well": _well,
    "keep_alive_comments": _comments,
    "one_byte_at_a_time": _one_byte_at_a_time,
    "split_anywhere": _split_anywhere,
    "several_events_a_read": _several_events_a_read,
    "several_events_a_chunk": _several_events_a_chunk,
    "identity_body": _identity_body,
    "until_close": _until_close,
    "interim": _interim,
    "slow": _slow,
    "well_and_closes": _well_and_closes,
    "closes_when_reused": _closes_when_reused,
    "resets_when_reused": _resets_when_reused,
    "goes_away": _goes_away,
    "closes_in_head_when_reused": _closes_in_head_when_reused,
    "closes_after_interim_when_reused": _closes_after_interim_when_reused,
    "more_after_the_end": _more_after_the_end,
    "big_event": _big_event,
    "reset_before_answer": _reset_before_answer,
    "reset_in_event": _reset_in_event,
    "closes_before_answer": _closes_before_answer,
    "closes_in_event": _closes_in_event,
    "early_end": _early_end,
    "never_answers": _never_answers,
    "stops_sending": _stops_sending,
    "endless_headers": _endless_headers,
    "endless_chunk_line": _endless_chunk_line,
    "endless_trailers": _endless_trailers,
    "endless_body": _endless_body,
    "much_and_no_end": _much_and_no_end,
    "not_http": _not_http,
    "broken_chunk": _broken_chunk,
    "invalid_utf8": _invalid_utf8,
    "invalid_json": _invalid_json,
    "error_inside": _error_inside,
    "overloaded_inside": _overloaded_inside,
    "too_many_requests": _too_many_requests,
    "unavailable": _unavailable,
    "refuses": _refuses,
    "refuses_and_closes": _refuses_and_closes,
    "internal_error": _internal_error,
    "tells_the_key": _tells_the_key,
    "redirect": _redirect,
    "wrong_type": _wrong_type,
    "compressed": _compressed,
    "compressed_stream": _compressed_stream,
    "compressed_error": _compressed_error,
}
"""What a request can meet, by name; those that answer well in an odd shape first."""


class FaultyServer:
    """A thread for each connection. A context manager; all of them are gone at its end.

    shown: the behaviour that each request met, by its x-request-id. asked: in the order in which
    requests came. connections: how many were accepted. idle_s: a connection that has no request
    for so long is closed. nagle: small pieces are held back until the one before is acknowledged,
    as TGI's router has it (no TCP_NODELAY).
    """

    def __init__(self, tls: bool = False, idle_s: float = 1e9, nagle: bool = False) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.shown: dict[str, str] = {}
        self.asked: list[Asked] = []
        self.connections = 0
        self._idle_s = idle_s
        self._nagle = nagle
        self._context: ssl.SSLContext | None = None
        if tls:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(CERTIFICATE)
        self._order: Iterator[str] = itertools.repeat("well")
        self._met: dict[str, str] = {}
        self._answered: tuple[tuple[bytes, ...], bool] | None = None
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]

    def behaviour(self, name: str) -> None:
        """What every request meets from now on."""
        self.behaviours((name,))

    def answers(self, pieces: Sequence[bytes], then_ends: bool) -> None:
        """What every request is answered with from now on, piece by piece; then_ends: and the
        connection is closed."""
        self._answered = (tuple(pieces), then_ends)

    def behaviours(self, names: Sequence[str]) -> None:
        """What requests meet from now on, in the order in which they come, again and again."""
        unknown = set(names) - set(BEHAVIOURS)
        if unknown:
            raise ValueError(f"no such behaviour: {', '.join(sorted(unknown))}")
        with self._lock:
            self._order = itertools.cycle(names)
            self._met.clear()

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        # A close alone does not wake a thread that waits in accept().
        with contextlib.suppress(OSError):  # one that went away was shut down before
            self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(_END_S)
        self._listener.close()
        left = sum(thread.is_alive() for thread in self._threads)
        if left:
            raise RuntimeError(f"{left} threads of the faulty server did not end")

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return  # closed by __exit__
            thread = threading.Thread(target=self._serve, args=(sock, self.connections))
            self.connections += 1
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket, connection: int) -> None:
        # A client that goes away, or refuses the certificate, is what is tested.
        with contextlib.suppress(ConnectionEnds, OSError), sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0 if self._nagle else 1)
            sock.settimeout(_END_S)
            if self._context is None:
                self._converse(sock, connection)
            else:
                with self._context.wrap_socket(sock, server_side=True) as wrapped:
                    self._converse(wrapped, connection)

    def _converse(self, sock: socket.socket, connection: int) -> None:
        """One request after the other; ends with ConnectionEnds."""
        for served in itertools.count():
            asked = self._request(sock, connection)
            while asked is None:
                asked = self._request(sock, connection)
            with self._lock:
                number = len(self.asked)
                told = asked.request_id or f"#{number}"
                name = self._met.setdefault(told, "") or next(self._order)
                self._met[told] = self.shown[told] = name
                self.asked.append(asked)
            exchange = Exchange(sock, asked, number, served, self._stopping, self._listener)
            if self._answered is None:
                BEHAVIOURS[name](exchange)
            else:
                _told(exchange, *self._answered)

    def _request(self, sock: socket.socket, connection: int) -> Asked | None:
        """The next one; None for a question about the server, which is answered at once."""
        data = self._read(sock, b"", lambda data: b"\r\n\r\n" in data or data[:1] == b"\x16")
        if data[:1] == b"\x16":  # TLS where none is spoken; servers answer in plain text
            sock.sendall(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")
            raise ConnectionEnds
        head, _, body = data.partition(b"\r\n\r\n")
        lines = (line.partition(b":") for line in head.split(b"\r\n")[1:])
        fields = {name.lower(): value.strip() for name, _, value in lines}
        length = int(fields.get(b"content-length", b"0"))
        body = self._read(sock, body, lambda body: len(body) >= length)
        path = head.split(b" ", 2)[1].decode()
        if head.startswith(b"GET ") or path.endswith("/tokenize"):
            said = next((said for end, said in _SAID.items() if path.endswith(end)), None)
            status, text = ("404 Not Found", b"") if said is None else ("200 OK", said)
            answer = f"HTTP/1.1 {status}\r\ncontent-length: {len(text)}\r\n\r\n"
            sock.sendall(answer.encode() + text)
            return None
        return Asked(
            path=path,
            body=json.loads(body),
            request_id=fields.get(b"x-request-id", b"").decode(),
            connection=connection,
            authorization=fields.get(b"authorization", b"").decode(),
        )

    def _read(self, sock: socket.socket, data: bytes, enough: Callable[[bytes], bool]) -> bytes:
        """Until there is enough; ends the connection where the server stops or the client ends."""
        sock.settimeout(0.02)
        began = time.monotonic()
        while not enough(data):
            try:
                more = sock.recv(_READ_BYTES)
            except TimeoutError:
                if self._stopping.is_set() or time.monotonic() - began > self._idle_s:
                    raise ConnectionEnds from None
                continue
            if not more:
                raise ConnectionEnds
            data += more
        sock.settimeout(_END_S)
        return data


def refused_url() -> str:
    """Of a port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    return f"http://127.0.0.1:{port}"

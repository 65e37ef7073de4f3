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

import gzip
import itertools
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.drive.http_peer import RESET, Asked, ConnectionEnds, HttpPeer

BIG_EVENT_BYTES = 10_000_000
UNKNOWN_HOST_URL = "http://no-such-host.invalid:8080"
"""RFC 2606 keeps .invalid from ever having an address."""

_STEP_S = 0.001
_READ_BYTES = 1 << 16
_EVENT_STREAM = "content-type: text/event-stream"
_CHUNKED = "transfer-encoding: chunked"
_SAID = {
    "/health": b"",
    "/info": b'{"model_id": "faulty", "version": "3.3.7", "max_input_tokens": 4096}',
}
"""What it says of itself, by the end of the path."""


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
        self.head("200 OK", _EVENT_STREAM, _CHUNKED)

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
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
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


def whole(x: Exchange) -> bytes:
    """A good answer's bytes, chunked."""
    head = f"HTTP/1.1 200 OK\r\n{_EVENT_STREAM}\r\n{_CHUNKED}\r\n\r\n"
    return head.encode() + b"".join(map(chunk_of, [*x.events(), b""]))


# What a server does with a request, step by step.
Step = Callable[[Exchange], None]


def well(x: Exchange) -> None:
    if not x.asked.path.endswith("/generate"):
        x.begin(len(x.events()))
        x.chunk(b"")
        return
    tokens = [{"id": i, "text": f" t{i}", "logprob": -0.5} for i in range(x.tokens)]
    details = {"finish_reason": "length", "generated_tokens": x.tokens, "tokens": tokens}
    text = "".join(f" t{i}" for i in range(x.tokens))
    body = json.dumps({"generated_text": text, "details": details}).encode()
    x.head("200 OK", "content-type: application/json", f"content-length: {len(body)}")
    x.sock.sendall(body)


def ends(x: Exchange) -> None:
    """The connection does, which was not said."""
    raise ConnectionEnds


def resets(x: Exchange) -> None:
    x.reset()


def waits(x: Exchange) -> None:
    x.wait()


def goes_away(x: Exchange) -> None:
    """Nobody listens any more, and this connection ends."""
    x.listener.shutdown(socket.SHUT_RDWR)
    raise ConnectionEnds


def when_reused(*steps: Step) -> Step:
    """On a connection that was kept alive, to no purpose; on a fresh one a good answer."""
    return lambda x: run(steps, x) if x.served else well(x)


def run(steps: Sequence[Step], x: Exchange) -> None:
    for step in steps:
        step(x)


def says(data: bytes) -> Step:
    return lambda x: x.sock.sendall(data)


def head(status: str = "200 OK", *lines: str) -> Step:
    return lambda x: x.head(status, *lines)


def begins(count: int | None = None) -> Step:
    """A good head and so many events; None: all."""
    return lambda x: x.begin(x.tokens if count is None else count)


def chunks(made: Callable[[list[bytes]], Sequence[bytes]], pause_s: float = 0.0) -> Step:
    """A good head, and chunks that are made of a good answer's events; then the end."""

    def step(x: Exchange) -> None:
        x.stream_head()
        for data in made(x.events()):
            time.sleep(pause_s)
            x.chunk(data)
        x.chunk(b"")

    return step


def body(
    made: Callable[[bytes], bytes], *lines: str, kind: str = _EVENT_STREAM, status: str = "200 OK"
) -> Step:
    """Made of a good answer's events, and of the length that is said."""

    def step(x: Exchange) -> None:
        data = made(b"".join(x.events()))
        x.head(status, kind, *lines, f"content-length: {len(data)}")
        x.sock.sendall(data)

    return step


def refusal(status: str, *lines: str) -> Step:
    error = b'{"error":"no","error_type":"no"}'
    return body(lambda _: error, *lines, kind="content-type: application/json", status=status)


def tells_the_key(x: Exchange) -> None:
    said = json.dumps({"error": f"no access with {x.asked.authorization}"}).encode()
    body(lambda _: said, status="500 Internal Server Error")(x)


def one_byte_at_a_time(x: Exchange) -> None:
    for byte in whole(x):
        x.sock.sendall(bytes((byte,)))


def one_event_at_a_time(x: Exchange) -> None:
    for event in x.events():
        x.sock.sendall(event)
        time.sleep(_STEP_S)


def split_anywhere(x: Exchange) -> None:
    rng = random.Random(x.number)
    data = whole(x)
    cuts = sorted(rng.sample(range(1, len(data)), 20))
    for begin, end in itertools.pairwise([0, *cuts, len(data)]):
        x.sock.sendall(data[begin:end])
        time.sleep(_STEP_S)


def part_of_the_second(x: Exchange) -> None:
    x.sock.sendall(chunk_of(x.events()[1])[:30])


def broken_second(x: Exchange) -> None:
    x.sock.sendall(chunk_of(x.events()[1])[:-2] + b"XX")


def without_end(again: bytes) -> Step:
    def step(x: Exchange) -> None:
        while not x.stopping.is_set():
            x.sock.sendall(again)
        raise ConnectionEnds

    return step


def second_is(event: Callable[[bytes], bytes]) -> Step:
    """A good answer but for that event."""
    return chunks(lambda events: [events[0], event(events[1]), *events[2:]])


def told_inside(error: str, kind: str) -> tuple[Step, ...]:
    said = b"data:" + json.dumps({"error": error, "error_type": kind}).encode() + b"\n\n"
    return (begins(1), says(chunk_of(said)), says(chunk_of(b"")))


_STREAM = head("200 OK", _EVENT_STREAM, _CHUNKED)
_MORE = b"x-more: and more\r\n" * 100
_COMMENTS = chunk_of(b": more\n" * 15_000)
BEHAVIOURS: dict[str, tuple[Step, ...]] = {
    "well": (well,),
    "keep_alive_comments": (
        chunks(lambda events: [p for e in events for p in (b": keep-alive\n\n", b":\n\n" + e)]),
    ),
    "one_byte_at_a_time": (one_byte_at_a_time,),
    "split_anywhere": (split_anywhere,),
    "several_events_a_read": (lambda x: x.sock.sendall(whole(x)),),
    "several_events_a_chunk": (chunks(lambda events: [b"".join(events)]),),
    "identity_body": (body(bytes),),
    "until_close": (
        head("200 OK", _EVENT_STREAM, "connection: close"),
        one_event_at_a_time,
        ends,
    ),
    "interim": (head("103 Early Hints", "link: </a>"), well),
    "slow": (chunks(list, pause_s=0.02),),
    "well_and_closes": (well, ends),
    "closes_when_reused": (when_reused(ends),),
    "resets_when_reused": (when_reused(resets),),
    "goes_away": (goes_away,),
    "closes_in_head_when_reused": (when_reused(says(b"HTTP/1.1 2"), ends),),
    "closes_after_interim_when_reused": (when_reused(head("103 Early Hints", "link: </a>"), ends),),
    "more_after_the_end": (
        begins(),
        says(b"0\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
        waits,
    ),
    "big_event": (chunks(lambda e: [e[0].replace(b" t0", b" " + b"t" * BIG_EVENT_BYTES), *e[1:]]),),
    "reset_before_answer": (resets,),
    "reset_in_event": (begins(1), part_of_the_second, resets),
    "closes_before_answer": (ends,),
    "closes_in_event": (begins(1), part_of_the_second, ends),
    "early_end": (begins(2), says(chunk_of(b""))),
    "never_answers": (waits,),
    "stops_sending": (begins(2), waits),
    "endless_headers": (says(b"HTTP/1.1 200 OK\r\n"), without_end(_MORE)),
    "endless_chunk_line": (_STREAM, says(b"5;"), without_end(b"a" * 1000)),
    "endless_trailers": (begins(), says(b"0\r\n"), without_end(_MORE)),
    "endless_body": (_STREAM, without_end(chunk_of(b": more\n" * 600_000))),
    "much_and_no_end": (_STREAM, *[says(_COMMENTS)] * 40, waits),
    "not_http": (says(b"SSH-2.0-OpenSSH_9.6\r\n"), waits),
    "broken_chunk": (begins(1), broken_second, waits),
    "invalid_utf8": (second_is(lambda event: event.replace(b" t1", b"\xff\xfe")),),
    "invalid_json": (second_is(lambda _: b'data:{"index":1,"token"\n\n'),),
    "error_inside": told_inside("Request failed during generation: CUDA error", "generation"),
    "overloaded_inside": told_inside("Model is overloaded", "overloaded"),
    "too_many_requests": (refusal("429 Too Many Requests", "retry-after: 7"),),
    "unavailable": (
        refusal("503 Service Unavailable", "retry-after: Tue, 03 Mar 2026 10:11:12 GMT"),
    ),
    "refuses": (refusal("429 Too Many Requests"),),
    "refuses_and_closes": (refusal("503 Service Unavailable", "connection: close"), ends),
    "internal_error": (refusal("500 Internal Server Error"),),
    "tells_the_key": (tells_the_key,),
    "redirect": (
        head("307 Temporary Redirect", "location: http://127.0.0.1:1/", "content-length: 0"),
    ),
    "wrong_type": (body(lambda _: b"<html></html>", kind="content-type: text/html"),),
    "compressed": (body(gzip.compress, "Content-Encoding: gzip"),),
    "compressed_stream": (
        head("200 OK", _EVENT_STREAM, "content-encoding: GZIP", _CHUNKED),
        lambda x: x.chunk(gzip.compress(b"".join(x.events()))),
        says(chunk_of(b"")),
    ),
    # The status says what there is to say.
    "compressed_error": (
        body(
            lambda _: gzip.compress(b"<html></html>"),
            "content-encoding: gzip",
            kind="content-type: text/html",
            status="502 Bad Gateway",
        ),
    ),
}
"""What a request can meet, by name; those that answer well in an odd shape first."""


class FaultyServer(HttpPeer):
    """shown: the behaviour that each request met, by its x-request-id. asked holds no questions
    about the server, which are answered at once."""

    def __init__(self, tls: bool = False, idle_s: float = 1e9, nagle: bool = False) -> None:
        super().__init__(tls, idle_s, nagle)
        self.shown: dict[str, str] = {}
        self._order: Iterator[str] = itertools.repeat("well")
        self._met: dict[str, str] = {}
        self._answered: tuple[Step, ...] | None = None
        self._lock = threading.Lock()

    def behaviour(self, name: str) -> None:
        """What every request meets from now on."""
        self.behaviours((name,))

    def answers(self, pieces: Sequence[bytes], then_ends: bool) -> None:
        """What every request is answered with from now on, piece by piece; then_ends: and the
        connection is closed."""

        def pause(_: Exchange) -> None:
            time.sleep(_STEP_S)

        steps = [step for piece in pieces for step in (says(piece), pause)]
        self._answered = (*steps, ends) if then_ends else tuple(steps)

    def behaviours(self, names: Sequence[str]) -> None:
        """What requests meet from now on, in the order in which they come, again and again."""
        unknown = set(names) - set(BEHAVIOURS)
        if unknown:
            raise ValueError(f"no such behaviour: {', '.join(sorted(unknown))}")
        with self._lock:
            self._order = itertools.cycle(names)
            self._met.clear()

    def answer(self, sock: socket.socket, asked: Asked, served: int) -> None:
        if asked.method == "GET" or asked.path.endswith("/tokenize"):
            said = next((said for end, said in _SAID.items() if asked.path.endswith(end)), None)
            status, text = ("404 Not Found", b"") if said is None else ("200 OK", said)
            head = f"HTTP/1.1 {status}\r\ncontent-length: {len(text)}\r\n\r\n"
            sock.sendall(head.encode() + text)
            return
        with self._lock:
            number = len(self.asked)
            told = asked.request_id or f"#{number}"
            name = self._met.setdefault(told, "") or next(self._order)
            self._met[told] = self.shown[told] = name
            self.asked.append(asked)
        exchange = Exchange(sock, asked, number, served, self.stopping, self.listener)
        run(BEHAVIOURS[name] if self._answered is None else self._answered, exchange)


def refused_url() -> str:
    """Of a port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    return f"http://127.0.0.1:{port}"

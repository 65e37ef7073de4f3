"""What the null server answers, and that its log tells what a client saw."""

from __future__ import annotations

import http.client
import json
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import httptools
import pytest

from tests.server.null_client import (
    INSTANT,
    QUICK,
    asked,
    body,
    connect,
    events_of,
    request_bytes,
    serving,
)
from tgi_bench.server.null.loop import HOST
from tgi_bench.server.null.timing import ServedLog, StreamPace, decode


def log_of(log: ServedLog | None) -> ServedLog:
    assert log is not None
    return log


@pytest.mark.parametrize("pace", [INSTANT, QUICK])
def test_a_stream_is_tgis(pace: StreamPace) -> None:
    with serving(pace) as served, closing(connect(served.port)) as connection:
        response, events = asked(connection, body(3))
        assert response.status == 200
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["transfer-encoding"] == "chunked"
    token = {"id": 0, "text": " a", "logprob": 0.0, "special": False}
    middle = {"token": token, "generated_text": None, "details": None}
    details = {"finish_reason": "length", "generated_tokens": 3, "seed": None, "input_length": 3}
    assert events == [
        {"index": 1, **middle},
        {"index": 2, **middle},
        {"index": 3, "token": token, "generated_text": " a a a", "details": details},
    ]


@pytest.mark.parametrize("pace", [INSTANT, QUICK])
def test_one_connection_serves_one_stream_after_another(pace: StreamPace) -> None:
    with serving(pace) as served, closing(connect(served.port)) as connection:
        for count in (1, 5, 2):
            assert len(asked(connection, body(count))[1]) == count
    requests = log_of(served.log).requests
    assert [(r.connection, r.index, len(r.sent_ns), r.whole) for r in requests] == [
        (0, 0, 1, True),
        (0, 1, 5, True),
        (0, 2, 2, True),
    ]


def test_details_say_what_was_asked() -> None:
    with serving(INSTANT) as served, closing(connect(served.port)) as connection:
        _, truncated = asked(connection, body(1, truncate=77))
        _, without = asked(connection, body(1, details=False))
        _, default = asked(connection, json.dumps({"inputs": "a"}).encode())
    details = truncated[0]["details"]
    assert isinstance(details, dict)
    assert details["input_length"] == 77
    assert without[0]["details"] is None
    assert len(default) == 100


class _Parsed:
    """What httptools calls back with."""

    def __init__(self) -> None:
        self.chunks = 0
        self.body = b""
        self.kept_alive: list[bool] = []
        self.parser = httptools.HttpResponseParser(self)

    def on_chunk_header(self) -> None:
        self.chunks += 1

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.kept_alive.append(self.parser.should_keep_alive())


@pytest.mark.parametrize("pace", [INSTANT, QUICK])
def test_httptools_finds_one_chunk_an_event(pace: StreamPace) -> None:
    parsed = _Parsed()
    with serving(pace) as served, socket.create_connection((HOST, served.port), 30) as sock:
        sock.sendall(request_bytes(body(20)))
        while not parsed.kept_alive:
            parsed.parser.feed_data(sock.recv(7))
    assert parsed.kept_alive == [True]
    assert parsed.chunks == 20 + 1  # the last chunk has no bytes
    assert len(events_of(parsed.body)) == 20


def test_the_log_lies_between_what_the_client_did_and_saw() -> None:
    with serving(QUICK) as served, closing(connect(served.port)) as connection:
        before_ns = time.monotonic_ns()
        connection.request("POST", "/generate_stream", body(6), {"x-request-id": "3-14"})
        response = connection.getresponse()
        seen_ns = []
        while line := response.readline():
            if line.startswith(b"data:"):
                seen_ns.append(time.monotonic_ns())
    log = log_of(served.log)
    (request,) = log.requests
    assert log.kernel_stamps == sys.platform.startswith("linux")
    assert request.request_id == b"3-14"
    assert before_ns - 100_000 <= request.arrival_ns <= request.sent_ns[0]  # of two clocks
    assert len(request.sent_ns) == len(seen_ns) == 6
    assert all(sent <= seen for sent, seen in zip(request.sent_ns, seen_ns, strict=True))
    assert list(request.sent_ns) == sorted(request.sent_ns)


def test_deadlines_are_absolute() -> None:
    """Each event is due at its own time: none is sent early, and no lateness adds up."""
    pace = StreamPace(interval_ns=2_000_000, first_ns=3_000_000, spread_ns=1_000_000)
    with serving(pace) as served, closing(connect(served.port)) as connection:
        for _ in range(3):
            asked(connection, body(10))
    log = log_of(served.log)
    for request in log.requests:
        assert request.due_ns == pace.first_due_ns(request.arrival_ns, request.index)
        for k, sent_ns in enumerate(request.sent_ns):
            assert sent_ns >= request.due_ns + k * pace.interval_ns
    assert len(log.lateness_ns()) == 30
    assert min(log.lateness_ns()) >= 0


def test_an_instant_answer_has_one_time() -> None:
    with serving(INSTANT) as served, closing(connect(served.port)) as connection:
        asked(connection, body(50))
    (request,) = log_of(served.log).requests
    assert len(set(request.sent_ns)) == 1
    assert request.due_ns == request.arrival_ns


def test_a_slow_reader_gets_everything() -> None:
    """The socket takes a part at a time; events are logged by the send that ends them."""
    count = 60_000
    with serving(INSTANT) as served, socket.create_connection((HOST, served.port), 30) as sock:
        sock.sendall(request_bytes(body(count)))
        select.select([sock], [], [], 30)
        data = b""
        while not data.endswith(b"\r\n0\r\n\r\n"):
            data += sock.recv(1 << 20)
    (request,) = log_of(served.log).requests
    assert data.count(b"data: ") == len(request.sent_ns) == count
    assert list(request.sent_ns) == sorted(request.sent_ns)
    assert len(set(request.sent_ns)) > 1
    assert request.whole


def test_two_hundred_streams_at_once() -> None:
    with serving(QUICK) as served:
        connections = [connect(served.port) for _ in range(200)]
        for index, connection in enumerate(connections):
            connection.request("POST", "/generate_stream", body(8), {"x-request-id": f"0-{index}"})
        counts = [len(events_of(c.getresponse().read())) for c in connections]
        for connection in connections:
            connection.close()
    requests = log_of(served.log).requests
    assert counts == [8] * 200
    assert {r.request_id for r in requests} == {f"0-{i}".encode() for i in range(200)}
    assert {r.connection for r in requests} == set(range(200))
    assert all(r.whole for r in requests)


def test_pipelined_requests_are_answered_in_order() -> None:
    both = request_bytes(body(2), "0-0") + request_bytes(body(3), "0-1")
    with serving(QUICK) as served, socket.create_connection((HOST, served.port), 30) as sock:
        sock.sendall(both)
        data = b""
        while data.count(b"\r\n0\r\n\r\n") < 2:
            data += sock.recv(1 << 16)
    first, second = log_of(served.log).requests
    assert (first.request_id, second.request_id) == (b"0-0", b"0-1")
    assert first.sent_ns[-1] <= second.sent_ns[0]


@pytest.mark.parametrize("pace", [INSTANT, QUICK])
def test_connection_close_is_kept(pace: StreamPace) -> None:
    with serving(pace) as served, socket.create_connection((HOST, served.port), 30) as sock:
        sock.sendall(request_bytes(body(2), more="connection: close\r\n"))
        data = b""
        while piece := sock.recv(1 << 16):
            data += piece
    assert data.endswith(b"\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/", None),
        ("/health", None),
        ("/info", {"model_id": "null", "version": "3.3.7", "null_server": True}),
        ("/v1/models", {"object": "list"}),
    ],
)
def test_what_it_says_of_itself(path: str, expected: dict[str, object] | None) -> None:
    with serving(INSTANT) as served, closing(connect(served.port)) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        data = response.read()
    assert response.status == 200
    if expected is None:
        assert data == b""
    else:
        assert expected.items() <= json.loads(data).items()


def test_the_log_over_http() -> None:
    with serving(INSTANT) as served, closing(connect(served.port)) as connection:
        asked(connection, body(4), "0-9")
        connection.request("GET", "/log")
        log = decode(connection.getresponse().read())
    assert [(r.request_id, len(r.sent_ns)) for r in log.requests] == [(b"0-9", 4)]
    assert log.requests == log_of(served.log).requests


@pytest.mark.parametrize(
    ("method", "path", "payload", "status"),
    [
        ("GET", "/nowhere", b"", 404),
        ("POST", "/tokenize", b"{}", 404),
        ("GET", "/generate_stream", b"", 405),
        ("POST", "/info", b"{}", 405),
        ("POST", "/generate_stream", b"not json", 422),
        ("POST", "/generate_stream", b"[" * 100_000, 422),
        ("POST", "/generate_stream", b"[]", 422),
        ("POST", "/generate_stream", b'{"inputs": 1}', 422),
        ("POST", "/generate_stream", b'{"inputs": "a", "parameters": 1}', 422),
        ("POST", "/generate_stream", body(0), 422),
        ("POST", "/generate_stream", body(1 << 30), 422),
        ("POST", "/generate_stream", body(1, truncate="9"), 422),
        ("POST", "/generate_stream", body(1, max_new_tokens=True), 422),
    ],
)
def test_wrong_requests_are_refused_and_the_connection_stays(
    method: str, path: str, payload: bytes, status: int
) -> None:
    with serving(QUICK) as served, closing(connect(served.port)) as connection:
        connection.request(method, path, payload)
        response = connection.getresponse()
        assert response.status == status
        assert json.loads(response.read())["error"]
        assert len(asked(connection, body(2))[1]) == 2
    assert len(log_of(served.log).requests) == 1


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x00\xff\xfe garbage\r\n\r\n", b"400"),
        (b"GET nowhere HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/2.0\r\n\r\n", b"505"),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n folded: 1\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\n\r\n", b"411"),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", b"411"),
        (b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n", b"413"),
        (b"GET / HTTP/1.1\r\nx: " + b"a" * 100_000, b"431"),
    ],
)
def test_hostile_bytes_end_their_connection_only(data: bytes, status: bytes) -> None:
    with serving(QUICK) as served, closing(connect(served.port)) as other:
        with socket.create_connection((HOST, served.port), 30) as sock:
            sock.sendall(data)
            assert sock.recv(1 << 16).startswith(b"HTTP/1.1 " + status)
        assert len(asked(other, body(2))[1]) == 2


def test_who_leaves_early_disturbs_nobody() -> None:
    with serving(QUICK) as served, closing(connect(served.port)) as other:
        for cut in (10, 60, 10_000):
            with socket.create_connection((HOST, served.port), 30) as sock:
                sock.sendall(request_bytes(body(1000), f"left-{cut}")[:cut])
        with socket.create_connection((HOST, served.port), 30) as sock:
            sock.sendall(request_bytes(body(1000), "reset"))
            sock.recv(1)
            # Closed at once and with a reset, while its stream is being sent.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        assert len(asked(other, body(30), "stayed")[1]) == 30
    told = {r.request_id: (r.whole, len(r.sent_ns)) for r in log_of(served.log).requests}
    assert told[b"stayed"] == (True, 30)
    assert not told[b"reset"][0]
    assert told[b"reset"][1] < 1000


@pytest.mark.parametrize("end", ["signal", "stdin"])
def test_as_a_process(tmp_path: Path, end: str) -> None:
    log = tmp_path / "null.log"
    command = [sys.executable, "-m", "tgi_bench.server.null", "--interval-ns", "1000000"]
    words = ["--log", str(log), "--until-stdin-ends"]
    with subprocess.Popen(
        [*command, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with closing(http.client.HTTPConnection(HOST, int(process.stdout.readline()), 30)) as c:
            assert len(asked(c, body(4), "0-0")[1]) == 4
        if end == "signal":
            process.send_signal(signal.SIGTERM)
        else:
            process.stdin.close()
        assert process.wait(30) == 0
    (request,) = decode(log.read_bytes()).requests
    assert (request.request_id, len(request.sent_ns), request.whole) == (b"0-0", 4, True)


@pytest.mark.parametrize("words", [["--port", "70000"], ["--interval-ns", "-1"], ["--first", "x"]])
def test_a_wrong_command_line_ends_with_2(words: list[str]) -> None:
    command = [sys.executable, "-m", "tgi_bench.server.null", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert "error: " in done.stderr


def test_phases_are_spread() -> None:
    pace = StreamPace(20, 100, 1 << 20)
    phases = sorted(pace.first_due_ns(0, index) - 100 for index in range(256))
    gaps = [later - earlier for earlier, later in pairwise(phases)]
    assert phases[0] >= 0
    assert phases[-1] < 1 << 20
    assert max(gaps) <= 3 * (1 << 20) // 256  # the golden ratio's largest gap is under 3 / n

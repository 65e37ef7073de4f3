"""The connections of a worker, by what a load says of them; over TLS too."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.drive import http_peer
from tests.drive.faulty_server import FaultyServer, refused_url
from tests.drive.loads import MS, TOKENS, at_rate, closed, outcomes, prepared, send, timed, trial
from tgi_bench.drive.load import _setups
from tgi_bench.load_observation import RequestOutcome
from tgi_bench.trials.load import ClosedLoop, OpenLoop, Process, RatePart, TraceTimes

OK = {RequestOutcome.OK}


def test_a_closed_loop_keeps_its_connections() -> None:
    with FaultyServer(tls=True) as server:
        stage, seen = send(server.url, closed(20, 4), verify_tls=False)
    assert outcomes(seen) == OK
    assert {one.output_tokens for one in seen} == {TOKENS}
    assert stage.client.connections_opened == 4
    assert stage.client.connections_reopened == 0
    assert not any(one.new_connection for one in seen)


def test_an_open_loop_keeps_its_connections() -> None:
    """Session tickets come while a connection is idle: they are no reason to close it."""
    with FaultyServer(tls=True) as server:
        stage, seen = send(server.url, trial(at_rate(40.0), timed(500 * MS)), verify_tls=False)
        accepted = server.connections
    assert len(seen) == 20
    assert outcomes(seen) == OK
    assert not any(one.new_connection for one in seen)
    assert stage.client.connections_reopened == 0
    assert accepted == stage.client.connections_opened <= 100  # 2 s of the rate, and 4 spares


@pytest.mark.parametrize("trusted", [True, False])
def test_an_open_loop_and_the_certificate(monkeypatch: pytest.MonkeyPatch, trusted: bool) -> None:
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(http_peer.CERTIFICATE))
    with FaultyServer(tls=True) as server:
        _, seen = send(server.url, trial(at_rate(40.0), timed(200 * MS)))
    assert len(seen) == 8
    assert outcomes(seen) == (OK if trusted else {RequestOutcome.TLS})
    if not trusted:
        assert all("self-signed certificate" in one.reason for one in seen)
        assert {one.sent_ns for one in seen} == {None}


def test_a_name_that_is_not_the_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(http_peer.CERTIFICATE))
    with FaultyServer(tls=True) as server:
        _, seen = send(server.url.replace("127.0.0.1", "localhost"), closed(2, 1))
    assert outcomes(seen) == {RequestOutcome.TLS}
    assert all("localhost" in one.reason for one in seen)


def test_what_the_kernel_stamps_of_tls_are_the_kernels() -> None:
    with FaultyServer(tls=True) as server:
        stage, seen = send(server.url, closed(4, 2), verify_tls=False)
    assert stage.client.kernel_stamps
    for one in seen:
        assert one.sent_ns is not None
        assert one.sent_ns < one.event_ns[0] <= one.ended_ns


ROOT = Path(__file__).parents[2]
TIMED = timed(1000 * MS)


@pytest.mark.parametrize(
    ("arrivals", "limit", "connections"),
    [
        (ClosedLoop(3), None, 3),
        (ClosedLoop(600), None, 600),
        (at_rate(1.0), None, 16),
        (at_rate(1.0), 5, 5),
        (at_rate(1e6), None, 512),
        (OpenLoop(None, (RatePart(1, 10.0, 20.0),), Process.POISSON, 1.0, 0), None, 40),
        (TraceTimes(1.0), None, 16),
    ],
)
def test_how_many_are_opened_ahead(arrivals: OpenLoop, limit: int | None, connections: int) -> None:
    asked = trial(arrivals, TIMED, workers=3, max_in_flight=limit)
    setups = _setups(prepared("http://h:80", asked), arrivals, True)
    assert sum(setup.connections for setup in setups) == connections


def test_a_server_that_refuses_is_not_asked_without_end() -> None:
    """A spare that is refused is tried again, but not at once."""
    stage, seen = send(refused_url(), trial(at_rate(4.0), TIMED))
    assert len(seen) == 4
    assert outcomes(seen) == {RequestOutcome.CONNECTION_REFUSED}
    assert stage.client.connections_opened + stage.client.connections_reopened < 100


def test_a_closed_loop_to_a_server_that_refuses_backs_off() -> None:
    stage, seen = send(refused_url(), trial(ClosedLoop(4), TIMED))
    assert outcomes(seen) == {RequestOutcome.CONNECTION_REFUSED}
    assert 4 <= len(seen) < 100
    assert stage.client.connections_reopened == len(seen)


LOADS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))
from collections import Counter
from tests.drive.loads import MS, at_rate, closed, send, timed, trial
for asked in (closed(120, 60), trial(at_rate(400.0), timed(300 * MS))):
    _, seen = send(sys.argv[1], asked)
    print(len(seen), Counter(one.outcome.value for one in seen), {{one.reason for one in seen}})
"""


@pytest.mark.parametrize("limit", [40])
def test_out_of_file_descriptors(limit: int) -> None:
    """Those that find none are records; the others are unharmed."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert limit < hard
    with FaultyServer() as server:
        server.behaviour("slow")
        done = subprocess.run(
            [sys.executable, "-c", LOADS.format(limit=limit), server.url],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["120", "120"]
    for line in lines:
        assert "'client_limit'" in line
        assert "'ok'" in line
        assert "connect: Too many open files" in line


def test_the_first_address_that_answers_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """localhost may be two addresses, of which the server has one."""
    with FaultyServer() as server:
        _, seen = send(server.url.replace("127.0.0.1", "localhost"), closed(4, 2))
    assert outcomes(seen) == {RequestOutcome.OK}
    assert socket.gethostbyname("localhost") == "127.0.0.1"

"""Loads over TLS: the connections that were opened before the clock are those that are used."""

from __future__ import annotations

import pytest

from tests.drive import faulty_server
from tests.drive.faulty_server import FaultyServer
from tests.drive.loads import MS, TOKENS, at_rate, closed, outcomes, send, timed, trial
from tgi_bench.load_observation import RequestOutcome

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
        monkeypatch.setenv("SSL_CERT_FILE", str(faulty_server.CERTIFICATE))
    with FaultyServer(tls=True) as server:
        _, seen = send(server.url, trial(at_rate(40.0), timed(200 * MS)))
    assert len(seen) == 8
    assert outcomes(seen) == (OK if trusted else {RequestOutcome.TLS})
    if not trusted:
        assert all("self-signed certificate" in one.reason for one in seen)
        assert {one.sent_ns for one in seen} == {None}


def test_a_name_that_is_not_the_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(faulty_server.CERTIFICATE))
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

"""Each fault gives one classified record, and the other streams of the same load go on unharmed."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.drive import faulty_server, http_peer
from tests.drive.faulty_server import BEHAVIOURS, FaultyServer
from tests.drive.loads import TOKENS, closed, send
from tgi_bench.drive import load
from tgi_bench.load_observation import RequestObservation, RequestOutcome

SECOND_NS = 1_000_000_000
OK = RequestOutcome.OK
pytestmark = pytest.mark.xdist_group("every fault in one load")


@dataclass(frozen=True, slots=True)
class Expected:
    """tokens: that came before the fault, and are kept. reason: a part of it."""

    outcome: RequestOutcome
    tokens: int
    status: int | None = 200
    reason: str = ""


OF_KEPT_CONNECTIONS = {
    "well_and_closes",
    "closes_when_reused",
    "resets_when_reused",
    "goes_away",
    "closes_in_head_when_reused",
    "closes_after_interim_when_reused",
}
"""In test_resending: what a request meets depends on those before it on its connection."""
EXPECTED = {
    "keep_alive_comments": Expected(OK, 5),
    "one_byte_at_a_time": Expected(OK, 5),
    "split_anywhere": Expected(OK, 5),
    "several_events_a_read": Expected(OK, 5),
    "several_events_a_chunk": Expected(OK, 5),
    "identity_body": Expected(OK, 5),
    "until_close": Expected(OK, 5),
    "interim": Expected(OK, 5),
    "slow": Expected(OK, 5),
    "more_after_the_end": Expected(OK, 5),
    "big_event": Expected(OK, 5),
    "reset_before_answer": Expected(
        RequestOutcome.CONNECTION_RESET, 0, None, "Connection reset by peer"
    ),
    "reset_in_event": Expected(RequestOutcome.CONNECTION_RESET, 1, 200, "Connection reset by peer"),
    "closes_before_answer": Expected(
        RequestOutcome.CONNECTION_RESET, 0, None, "the server closed the connection"
    ),
    "closes_in_event": Expected(RequestOutcome.INCOMPLETE, 1, 200, "the connection ended"),
    "early_end": Expected(RequestOutcome.INCOMPLETE, 2, 200, "without generated_text"),
    "never_answers": Expected(RequestOutcome.TIMEOUT, 0, None, "no answer within 1 s"),
    "stops_sending": Expected(RequestOutcome.TIMEOUT, 2, 200, "not whole within 1 s"),
    "endless_headers": Expected(RequestOutcome.PROTOCOL, 0, None, "the head is over"),
    "endless_chunk_line": Expected(RequestOutcome.PROTOCOL, 0, 200, "a chunk's size line is over"),
    "endless_trailers": Expected(RequestOutcome.PROTOCOL, 5, 200, "the trailers are over"),
    "much_and_no_end": Expected(RequestOutcome.TIMEOUT, 0, 200, "not whole within 1 s"),
    "not_http": Expected(RequestOutcome.PROTOCOL, 0, None, "the status line begins 'SSH-2.0"),
    "broken_chunk": Expected(RequestOutcome.PROTOCOL, 2, 200, "a chunk's data is followed by 'X'"),
    "invalid_utf8": Expected(RequestOutcome.PROTOCOL, 1, 200, "UTF-8"),
    "invalid_json": Expected(RequestOutcome.PROTOCOL, 1, 200, "JSON"),
    "error_inside": Expected(RequestOutcome.SERVER_ERROR, 1, 200, "CUDA error"),
    "overloaded_inside": Expected(RequestOutcome.OVERLOADED, 1, 200, "Model is overloaded"),
    "too_many_requests": Expected(RequestOutcome.OVERLOADED, 0, 429, "Retry-After: 7"),
    "unavailable": Expected(RequestOutcome.OVERLOADED, 0, 503, "Retry-After: Tue, 03 Mar 2026"),
    "refuses": Expected(RequestOutcome.OVERLOADED, 0, 429, "HTTP 429"),
    "refuses_and_closes": Expected(RequestOutcome.OVERLOADED, 0, 503, "HTTP 503"),
    "internal_error": Expected(RequestOutcome.HTTP_ERROR, 0, 500, "HTTP 500"),
    "tells_the_key": Expected(RequestOutcome.HTTP_ERROR, 0, 500, "no access with"),
    "redirect": Expected(RequestOutcome.HTTP_ERROR, 0, 307, "redirects are not followed"),
    "wrong_type": Expected(RequestOutcome.PROTOCOL, 0, 200, "text/html"),
    "compressed": Expected(RequestOutcome.PROTOCOL, 0, 200, "gzip came where identity was asked"),
    "compressed_stream": Expected(RequestOutcome.PROTOCOL, 0, 200, "GZIP came where identity"),
    "compressed_error": Expected(RequestOutcome.HTTP_ERROR, 0, 502, "HTTP 502"),
}


@dataclass(frozen=True, slots=True)
class Mixed:
    """One load in which each second request met one of EXPECTED, in turn."""

    requests: int
    seen: list[RequestObservation]
    shown: dict[int, str]


@pytest.fixture(scope="module")
def mixed() -> Mixed:
    order = [name for odd in EXPECTED for name in (odd, "well")]
    with FaultyServer() as server:
        server.behaviours(order)
        asked = closed(2 * len(order), 16, request_timeout_ns=SECOND_NS)
        _, seen = send(server.url, asked)
        shown = {int(name.partition("-")[2]): what for name, what in server.shown.items()}
    return Mixed(2 * len(order), seen, shown)


def test_every_behaviour_has_its_outcome() -> None:
    assert set(EXPECTED) | {"well", "endless_body"} | OF_KEPT_CONNECTIONS == set(BEHAVIOURS)


def test_one_record_a_request(mixed: Mixed) -> None:
    assert [one.request_index for one in mixed.seen] == list(range(mixed.requests))
    assert set(mixed.shown) == set(range(mixed.requests))


def test_the_other_streams_are_unharmed(mixed: Mixed) -> None:
    others = [one for one in mixed.seen if mixed.shown[one.request_index] == "well"]
    assert len(others) == mixed.requests // 2
    assert {(one.outcome, one.output_tokens, one.reason) for one in others} == {(OK, TOKENS, "")}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_fault_is_classified(mixed: Mixed, name: str) -> None:
    expected = EXPECTED[name]
    met = [one for one in mixed.seen if mixed.shown[one.request_index] == name]
    assert len(met) == 2
    for one in met:
        assert (one.outcome, one.status) == (expected.outcome, expected.status), one.reason
        assert one.output_tokens == expected.tokens
        assert expected.reason in one.reason
        assert bool(one.reason) is (expected.outcome is not OK)
        assert one.sent_ns is not None
        assert one.intended_ns <= one.sent_ns <= one.ended_ns
        assert list(one.event_ns) == sorted(one.event_ns)


def test_events_of_one_read_say_so(mixed: Mixed) -> None:
    shared = {
        mixed.shown[one.request_index]: one.shared_reads for one in mixed.seen if one.shared_reads
    }
    assert shared["several_events_a_chunk"] == TOKENS - 1
    assert shared["several_events_a_read"] == TOKENS - 1


def assert_all(url: str, outcome: RequestOutcome, reason: str, verify_tls: bool = True) -> None:
    """A whole load in which every request ends so."""
    _, seen = send(url, closed(4, 2), verify_tls=verify_tls)
    assert [one.request_index for one in seen] == [0, 1, 2, 3]
    for one in seen:
        assert one.outcome is outcome, one.reason
        assert reason in one.reason
        assert one.status is (200 if outcome is OK else None)


def test_a_closed_port() -> None:
    refused = RequestOutcome.CONNECTION_REFUSED
    assert_all(faulty_server.refused_url(), refused, "Connection refused")


def test_a_host_that_has_no_address() -> None:
    assert_all(faulty_server.UNKNOWN_HOST_URL, RequestOutcome.DNS, "no-such-host.invalid")


def test_a_certificate_that_does_not_verify() -> None:
    with FaultyServer(tls=True) as server:
        assert_all(server.url, RequestOutcome.TLS, "self-signed certificate")
        assert server.shown == {}


def test_a_certificate_that_need_not_verify() -> None:
    with FaultyServer(tls=True) as server:
        assert_all(server.url, OK, "", verify_tls=False)


def test_a_certificate_that_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(http_peer.CERTIFICATE))
    with FaultyServer(tls=True) as server:
        assert_all(server.url, OK, "")


def test_a_server_that_speaks_no_tls() -> None:
    with FaultyServer() as server:
        url = server.url.replace("http:", "https:")
        assert_all(url, RequestOutcome.TLS, "")


def test_each_answer_has_a_limit() -> None:
    with FaultyServer() as server:
        server.behaviours(("endless_body", "well"))
        _, seen = send(server.url, closed(2, 1, request_timeout_ns=60 * SECOND_NS))
    assert [one.outcome for one in seen] == [RequestOutcome.PROTOCOL, OK]
    assert seen[0].reason == "an answer of more than 64 MiB"


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("workers", [1, 2])
def test_all_answers_together_have_a_limit(
    monkeypatch: pytest.MonkeyPatch, tls: bool, workers: int
) -> None:
    """Each of them is far below its own; the others go on."""
    monkeypatch.setattr(load, "_MOST_HELD_BYTES", 1 << 21)
    with FaultyServer(tls=tls) as server:
        server.behaviours(("much_and_no_end", "well"))
        _, seen = send(server.url, closed(12, 4, workers=workers), verify_tls=False)
        shown = {int(name.partition("-")[2]): what for name, what in server.shown.items()}
    most = 2 // workers
    for one in seen:
        if shown[one.request_index] == "well":
            assert (one.outcome, one.output_tokens) == (OK, TOKENS), one.reason
        else:
            assert (one.outcome, one.status) == (RequestOutcome.PROTOCOL, 200)
            assert f"more than {most} MiB of answers were held at once" in one.reason


@pytest.mark.parametrize("name", ["reset_in_event", "closes_in_event", "early_end", "not_http"])
def test_faults_over_tls(name: str) -> None:
    expected = EXPECTED[name]
    with FaultyServer(tls=True) as server:
        server.behaviours((name, "well"))
        _, seen = send(server.url, closed(6, 2), verify_tls=False)
        for one in seen:
            met = server.shown[f"0-{one.request_index}"]
            assert one.outcome is (expected.outcome if met == name else OK), one.reason
            assert one.output_tokens == (expected.tokens if met == name else TOKENS)

"""A kept-alive connection that ends before a byte of an answer: the request is sent once more."""

from __future__ import annotations

import pytest

from tests.drive.faulty_server import FaultyServer
from tests.drive.loads import MS, TOKENS, at_rate, closed, outcomes, send, timed, trial
from tgi_bench.load_observation import RequestObservation, RequestOutcome
from tgi_bench.trials.load import ClosedLoop, Fixed, Turns, Workload

OK = {RequestOutcome.OK}
IN_VAIN = ("closes_when_reused", "resets_when_reused")


def resent(seen: list[RequestObservation]) -> list[RequestObservation]:
    """Those that were sent again, each of them as it must be."""
    found = [one for one in seen if one.resent]
    for one in found:
        assert one.resent == 1
        assert one.new_connection
        assert one.sent_ns is not None
        assert one.intended_ns < one.sent_ns < one.event_ns[0]
    return found


@pytest.mark.parametrize("name", IN_VAIN)
@pytest.mark.parametrize("tls", [False, True])
def test_a_request_on_a_connection_that_was_kept_in_vain(name: str, tls: bool) -> None:
    """What is not first on its connection is sent twice, and none is lost. When that were four,
    and up to two more on their way, each request has a connection of its own."""
    with FaultyServer(tls=tls) as server:
        server.behaviour(name)
        stage, seen = send(server.url, closed(12, 3), verify_tls=False)
        reached = len(server.asked)
    assert [one.request_index for one in seen] == list(range(12))
    assert outcomes(seen) == OK, {one.reason for one in seen}
    assert {one.output_tokens for one in seen} == {TOKENS}
    again = resent(seen)
    assert 4 <= len(again) <= 6
    assert len(again) == reached - 12
    assert stage.client.connections_reopened == sum(one.new_connection for one in seen) == 9
    others = [one for one in seen if not one.new_connection]
    assert all(one.intended_ns == one.sent_ns for one in others)


def test_a_server_that_closes_after_each_answer_without_saying_so() -> None:
    """Its end comes before the next request, or after it: no request is an error."""
    with FaultyServer() as server:
        server.behaviour("well_and_closes")
        stage, seen = send(server.url, closed(40, 4))
    assert outcomes(seen) == OK, {one.reason for one in seen}
    assert stage.client.connections_reopened == sum(one.new_connection for one in seen) == 36
    assert len(resent(seen)) <= 4 + 3


@pytest.mark.parametrize("name", ["closes_before_answer", "reset_before_answer"])
def test_a_fresh_connection_that_ends_so_is_an_error(name: str) -> None:
    with FaultyServer() as server:
        server.behaviour(name)
        _, seen = send(server.url, closed(2, 2))
        assert len(server.asked) == 2
    assert outcomes(seen) == {RequestOutcome.CONNECTION_RESET}
    assert {one.resent for one in seen} == {0}


@pytest.mark.parametrize("name", ["closes_before_answer", "reset_before_answer"])
def test_it_is_sent_again_once_and_no_more(name: str) -> None:
    with FaultyServer() as server:
        server.behaviours(("well", name, "well"))
        _, seen = send(server.url, closed(3, 1))
        assert len(server.asked) == 4
    assert [one.outcome for one in seen] == [
        RequestOutcome.OK,
        RequestOutcome.CONNECTION_RESET,
        RequestOutcome.OK,
    ]
    assert [one.resent for one in seen] == [0, 1, 0]
    assert seen[1].sent_ns is not None
    assert seen[1].intended_ns < seen[1].sent_ns < seen[1].ended_ns


@pytest.mark.parametrize("name", ["closes_in_head_when_reused", "closes_after_interim_when_reused"])
def test_one_whose_answer_had_begun_is_an_error(name: str) -> None:
    with FaultyServer() as server:
        server.behaviour(name)
        _, seen = send(server.url, closed(2, 1))
        assert len(server.asked) == 2
    assert [one.outcome for one in seen] == [RequestOutcome.OK, RequestOutcome.CONNECTION_RESET]
    assert {one.resent for one in seen} == {0}


def test_a_server_that_is_gone_meanwhile() -> None:
    """The second sending finds nobody: sent once, and refused."""
    with FaultyServer() as server:
        server.behaviours(("well", "goes_away"))
        _, seen = send(server.url, closed(2, 1))
    refused = seen[1]
    assert refused.outcome is RequestOutcome.CONNECTION_REFUSED
    assert refused.sent_ns == refused.intended_ns
    assert refused.resent == 1


def test_an_open_loop_keeps_its_times() -> None:
    with FaultyServer() as server:
        server.behaviour("closes_when_reused")
        # Long enough that a machine's standstill of a second still lets one connection be reused.
        stage, seen = send(server.url, trial(at_rate(20.0), timed(1500 * MS)))
    assert outcomes(seen) == OK
    offsets = [round((one.intended_ns - stage.began_ns) / MS) for one in seen]
    assert offsets == [50 * index for index in range(30)]
    assert resent(seen)


def test_a_conversation_goes_on() -> None:
    workload = Workload(Fixed(5), Fixed(2), None, None, Turns(Fixed(3), 0), 0)
    with FaultyServer() as server:
        server.behaviour("closes_when_reused")
        _, seen = send(server.url, trial(ClosedLoop(2), timed(200 * MS), workload))
    assert outcomes(seen) == OK
    assert {one.turn for one in seen} == {0, 1, 2}
    assert resent(seen)

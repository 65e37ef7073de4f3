"""Control requests before a load: for one token, and for more."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from tests.drive.faulty_server import FaultyServer
from tests.drive.loads import WORKLOAD, closed, prepared, timed
from tgi_bench.drive.control_requests import control_pairs
from tgi_bench.trials.load import Fixed, Uniform

ASKED = closed(4, 1, workload=replace(WORKLOAD, output=Fixed(12)))


def test_pairs_are_of_one_token_and_of_more() -> None:
    with FaultyServer() as server:
        server.behaviour("slow")
        pairs = control_pairs(prepared(server.url, ASKED))
        asked = list(server.asked)
    assert 1 <= len(pairs) <= 3
    assert [one.tokens for one in asked] == [1, 12, 12, 1, 1, 12][: 2 * len(pairs)]
    assert len({one.body["inputs"] for one in asked}) == len(asked)  # each text is new
    assert {len(one.body["inputs"].split()) for one in asked} == {5}
    assert not any(one.request_id for one in asked)  # of no stage
    for pair in pairs:
        assert pair.tokens == 12
        assert 0 < pair.first_ns < pair.last_ns <= pair.e2e_ns
        assert 0 < pair.one_token_ns <= pair.one_token_e2e_ns < pair.e2e_ns


def test_they_are_as_long_as_the_median_request_and_no_more_than_32_tokens() -> None:
    workload = replace(WORKLOAD, prompt=Uniform(20, 40), output=Uniform(100, 200))
    with FaultyServer() as server:
        pairs = control_pairs(prepared(server.url, replace(ASKED, workload=workload)))
        asked = list(server.asked)
    assert {pair.tokens for pair in pairs} == {32}
    (words,) = {len(one.body["inputs"].split()) for one in asked}
    assert 20 <= words <= 40


def test_a_server_that_closes_each_connection_has_pairs() -> None:
    """As llama.cpp does."""
    with FaultyServer() as server:
        server.behaviour("well_and_closes")
        assert control_pairs(prepared(server.url, ASKED))


def test_a_long_load_has_three(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of which every question takes a tenth of a second: 0.6 s of 3."""
    clock = itertools.count(0.0, 0.1)
    monkeypatch.setattr("tgi_bench.drive.control_requests.time.monotonic", lambda: next(clock) / 10)
    with FaultyServer() as server:
        asked = replace(ASKED, extent=timed(60_000_000_000))
        assert len(control_pairs(prepared(server.url, asked))) == 3


@pytest.mark.parametrize("name", ["refuses", "until_close", "endless_body", "wrong_type"])
def test_servers_that_there_is_nothing_to_compare_of(name: str) -> None:
    with FaultyServer() as server:
        server.behaviour(name)
        assert control_pairs(prepared(server.url, ASKED)) == ()
        assert len(server.asked) <= 2


def test_loads_of_which_there_is_nothing_to_compare() -> None:
    short = replace(ASKED, workload=replace(WORKLOAD, output=Fixed(3)))
    with FaultyServer() as server:
        assert control_pairs(prepared(server.url, replace(ASKED, stream=False))) == ()
        assert control_pairs(prepared(server.url, short)) == ()
        assert server.asked == []

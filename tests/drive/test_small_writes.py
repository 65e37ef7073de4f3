"""A server that holds small pieces back until they are acknowledged, as TGI's router does."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest

from tests.drive.faulty_server import FaultyServer
from tests.drive.loads import MS, closed, outcomes, prepared, send, send_prepared
from tgi_bench.drive.control_requests import FirstTokens, compared, control_requests
from tgi_bench.load_observation import RequestOutcome, SmallWrites

_LEAST_DELAY_NS = 30 * MS
"""Linux delays an acknowledgement by 40 ms."""


@pytest.mark.parametrize("tls", [False, True])
def test_acknowledging_at_once_takes_the_wait_away(tls: bool) -> None:
    found = []
    with FaultyServer(tls=tls, nagle=True) as server:
        for quickack in (False, True):
            _, seen = send(server.url, closed(12, 2, quickack=quickack), verify_tls=False)
            assert outcomes(seen) == {RequestOutcome.OK}
            first = median(one.event_ns[0] - (one.sent_ns or 0) for one in seen)
            found.append((first, sum(one.shared_reads for one in seen)))
    (held, shared), (first, shared_less) = found
    assert held > _LEAST_DELAY_NS
    assert first < held
    assert shared_less < shared


def control(
    server: FaultyServer, quickack: bool = False, stream: bool = True
) -> SmallWrites | None:
    asked = closed(1, 1, quickack=quickack, stream=stream)
    return control_requests(prepared(server.url, asked, verify_tls=False))


@pytest.mark.parametrize("tls", [False, True])
def test_a_first_token_that_waits_for_an_acknowledgement_is_seen(tls: bool) -> None:
    with FaultyServer(tls=tls, nagle=True) as server:
        found = control(server)
        asked = list(server.asked)
    assert found is not None
    assert found.ttft_ns > found.after_head_ns > _LEAST_DELAY_NS
    assert found.quickack_ttft_ns is not None
    assert found.quickack_ttft_ns < found.ttft_ns
    assert found.after_head_ns > _LEAST_DELAY_NS
    assert 1 <= found.pairs <= 3
    assert len(asked) <= 8
    assert len({one.connection for one in asked}) == 2
    assert len({one.body["inputs"] for one in asked}) == len(asked)
    assert {one.tokens for one in asked} == {1}


@pytest.mark.parametrize(
    ("ttft_ms", "after_head_ms", "quick_ms", "apart"),
    [
        ([43, 44, 47], [42, 43, 46], [3, 4, 5], True),
        ([43, 44, 47], [42, 43, 46], [3, 4, 43], False),  # no later than every other one
        ([43, 44, 80], [42, 43, 79], [3, 4, 5], False),  # no timer varies so
        ([36, 44, 47], [34, 43, 46], [3, 4, 5], False),  # earlier than any acknowledgement
        ([43, 44], [42, 43], [3], True),
    ],
)
def test_chance_alone_is_told_from_a_timer(
    ttft_ms: list[int], after_head_ms: list[int], quick_ms: list[int], apart: bool
) -> None:
    usual = FirstTokens([ms * MS for ms in ttft_ms], [ms * MS for ms in after_head_ms])
    quick = FirstTokens([ms * MS for ms in quick_ms], [MS] * len(quick_ms))
    found = compared(usual, quick)
    middle = len(ttft_ms) // 2
    assert (found.ttft_ns, found.after_head_ns) == (
        ttft_ms[middle] * MS,
        after_head_ms[middle] * MS,
    )
    assert found.quickack_ttft_ns == quick_ms[len(quick_ms) // 2] * MS
    assert (found.pairs, found.apart) == (len(quick_ms), apart)


def test_where_nothing_waits_none_is_asked_the_other_way() -> None:
    with FaultyServer() as server:
        found = control(server)
        assert len(server.asked) == 4
    assert found is not None
    assert found.quickack_ttft_ns is None


@pytest.mark.parametrize(
    "name",
    ["well_and_closes", "until_close", "closes_when_reused", "refuses", "never_answers",
     "endless_body", "wrong_type", "compressed"],
)  # fmt: skip
def test_servers_that_there_is_nothing_to_compare_of(name: str) -> None:
    with FaultyServer() as server:
        server.behaviour(name)
        assert control(server) is None
        assert len(server.asked) <= 2


def test_loads_of_which_there_is_nothing_to_compare() -> None:
    with FaultyServer(nagle=True) as server:
        assert control(server, quickack=True) is None
        assert control(server, stream=False) is None
        assert server.asked == []


def test_a_stage_keeps_when_its_own_first_tokens_came() -> None:
    found = SmallWrites(3, 44.0 * MS, 4.0 * MS, 43.0 * MS)
    with FaultyServer() as server:
        server.behaviour("slow")
        ready = prepared(server.url, closed(5, 1))
        conditions = replace(ready.conditions, small_writes=found)
        stage, seen = send_prepared(replace(ready, conditions=conditions))
    kept = stage.conditions.small_writes
    assert kept is not None
    assert kept.load_after_head_ns is not None
    assert 15 * MS < kept.load_after_head_ns <= max(o.event_ns[0] - (o.sent_ns or 0) for o in seen)
    assert replace(kept, load_after_head_ns=None) == found

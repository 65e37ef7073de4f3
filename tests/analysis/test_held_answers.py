"""Answers that something holds back, told by pairs of control requests, in a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.analysis.load_samples import CLOSED, MS
from tests.analysis.test_load_verdict import BASE, load
from tgi_bench.analysis.rules import CheckStatus, apply
from tgi_bench.analysis.samples import Figure, LoadDistribution
from tgi_bench.kinds.load.answer_rules import FIRST_TOLD, HELD, alone_ns, earlier_ns, later_ns
from tgi_bench.kinds.load.figures import StageSummary, load_rows
from tgi_bench.load_observation import ControlPair, StageConditions

ONE_MS, STEP_MS, TOKENS = 31, 8, 32
HONEST = ControlPair(30 * MS, ONE_MS * MS, TOKENS, 30 * MS, 278 * MS, 279 * MS)


def held(events: int, later_ms: int = 0) -> ControlPair:
    """So many events together."""
    first_ns = HONEST.first_ns + ((events - 1) * STEP_MS + later_ms) * MS
    return replace(HONEST, first_ns=first_ns, last_ns=max(first_ns, HONEST.last_ns))


def p50(ns: float) -> LoadDistribution:
    assert BASE.tpot is not None
    return replace(BASE.tpot, p50=Figure(ns, None, None))


def stage(tpot_ms: float | None, *pairs: ControlPair) -> StageSummary:
    """Its answers take as long as alone, to the first token and to the end."""
    found = replace(BASE.stage, conditions=StageConditions(control=pairs))
    alike = replace(BASE, stage=found, tpot=None if tpot_ms is None else p50(tpot_ms * MS))
    if not pairs:
        return alike
    ttft, e2e = max(pair.first_ns for pair in pairs), max(pair.e2e_ns for pair in pairs)
    return replace(alike, service_ttft=p50(ttft), e2e=p50(e2e))


def test_a_token_alone_is_that_of_the_fastest_pairs() -> None:
    slow = ControlPair(39 * MS, 40 * MS, TOKENS, 39 * MS, 500 * MS, 501 * MS)
    assert alone_ns((slow, HONEST)) == 248 * MS / 31
    assert alone_ns(()) is None
    assert alone_ns((replace(HONEST, e2e_ns=ONE_MS * MS),)) is None


def test_first_tokens_are_later_only_where_every_one_is() -> None:
    late = held(12)
    assert later_ns((late, late)) == 87 * MS  # 30 + 11 steps of 8, after 31
    assert later_ns((late, HONEST)) == 0
    assert later_ns((late, replace(late, one_token_e2e_ns=120 * MS))) == 0
    assert later_ns((HONEST,)) == 0


@pytest.mark.parametrize(
    ("tpot_ms", "pairs", "bad"),
    [
        (8.0, (HONEST, HONEST), False),
        (14.0, (HONEST, HONEST), False),  # more in flight
        (5.0, (HONEST, HONEST), False),  # speculation, clocks that were asleep
        (3.9, (HONEST, HONEST), True),
        (0.1, (HONEST,), True),
        (None, (HONEST, HONEST), False),
        (None, (held(TOKENS), held(TOKENS)), True),  # each answer came in one event
        (8.0, (held(12), held(12)), True),
        (8.0, (held(12),), False),  # of one pair more is wanted
        (8.0, (held(24),), True),
        (8.0, (held(12), HONEST), False),
        (8.0, (held(1, later_ms=20), held(1, later_ms=20)), False),  # 19 ms of 248
        (8.0, (held(1, later_ms=30), held(1, later_ms=30)), True),
    ],
)
def test_held_back(tpot_ms: float | None, pairs: tuple[ControlPair, ...], bad: bool) -> None:
    found = apply(HELD, load_rows((load(stage(tpot_ms, *pairs)),)))
    assert found.status is (CheckStatus.FAILED if bad else CheckStatus.PASSED), found.finding
    assert ("server.url" in found.remedy) is bad
    assert "8 ms" in found.finding or "an answer of one" in found.finding


def test_control_requests_that_took_longer_than_the_load_s_tell_nothing() -> None:
    """32 tokens alone in 1.5 s, and each request of the load in 257 ms: another program ran."""
    slow = replace(HONEST, e2e_ns=1500 * MS, last_ns=1499 * MS)
    for one in (
        replace(stage(0.3, slow), e2e=p50(257 * MS)),
        replace(stage(8.0, held(24), held(24)), service_ttft=p50(31 * MS)),
    ):
        assert apply(HELD, load_rows((load(one),))).status is CheckStatus.NOT_CHECKED
    fast = ControlPair(MS, MS, TOKENS, MS, 4 * MS, 4 * MS)  # 3 ms in all are chance
    assert apply(HELD, load_rows((load(stage(0.0, fast)),))).status is CheckStatus.PASSED


def test_nothing_to_compare() -> None:
    not_streamed = replace(CLOSED, stream=False)
    for one in (load(stage(8.0)), load(stage(8.0, HONEST), not_streamed)):
        assert apply(HELD, load_rows((one,))).status is CheckStatus.NOT_CHECKED


@pytest.mark.parametrize(
    ("pairs", "early_ns"),
    [
        ((HONEST, HONEST), 0),
        ((replace(HONEST, first_ns=1 * MS), replace(HONEST, first_ns=2 * MS)), 28.5 * MS),
        ((replace(HONEST, first_ns=1 * MS),), 0),  # the first request may wait for other things
        ((replace(HONEST, first_ns=1 * MS), HONEST), 0),
        ((replace(HONEST, first_ns=27 * MS), replace(HONEST, first_ns=27 * MS)), 3 * MS),
    ],
)
def test_an_event_before_the_first_token_is_counted_as_one(
    pairs: tuple[ControlPair, ...], early_ns: float
) -> None:
    assert earlier_ns(pairs) == early_ns
    found = apply(FIRST_TOLD, load_rows((load(stage(8.0, *pairs)),)))
    assert found.passed is (early_ns < 4 * MS)
    assert ("server.engine" in found.remedy) is not found.passed

"""A closed loop that is refused waits before it asks again; an open loop never does."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest

from tests.drive.faulty_server import FaultyServer
from tests.drive.loads import MS, TOKENS, at_rate, closed, outcomes, send, timed, trial
from tgi_bench.dialects.answer import OVERLOAD, told_error
from tgi_bench.drive.refusal import NEVER_NS, SlotWaits, wait_ns
from tgi_bench.load_observation import RequestOutcome, Waits
from tgi_bench.trials.load import ClosedLoop, Fixed, Turns, Workload

S = 1000 * MS
OVERLOADED = RequestOutcome.OVERLOADED
NOW = (b"date", b"Sun, 22 Nov 2026 03:36:58 GMT")


@pytest.mark.parametrize(
    ("headers", "refusals", "waited_ns"),
    [
        ((), 0, 10 * MS),
        ((), 1, 20 * MS),
        ((), 6, 640 * MS),
        ((), 7, S),
        ((), 10_000, S),
        (((b"retry-after", b"7"),), 0, 7 * S),
        (((b"retry-after", b" 60 "),), 3, 60 * S),
        (((b"retry-after", b"86400"),), 3, 60 * S),
        (((b"retry-after", b"9" * 400),), 0, 60 * S),
        (((b"retry-after", b"0"),), 1, 20 * MS),
        (((b"retry-after", b"-5"),), 0, 10 * MS),
        (((b"retry-after", b"soon"),), 0, 10 * MS),
        (((b"retry-after", b"Sun, 22 Nov 2026 03:37:08 GMT"), NOW), 0, 10 * S),
        (((b"retry-after", b"Sun, 22 Nov 2026 04:37:08 GMT"), NOW), 0, 60 * S),
        (((b"retry-after", b"Sun, 22 Nov 2026 03:36:00 GMT"), NOW), 0, 10 * MS),
        (((b"retry-after", b"Mon, 01 Jan 0001 00:00:00 GMT"),), 0, 10 * MS),
        (((b"retry-after", b"Fri, 01 Jan 2100 00:00:00 GMT"),), 0, 60 * S),
    ],
)
def test_how_long(headers: tuple[tuple[bytes, bytes], ...], refusals: int, waited_ns: int) -> None:
    assert wait_ns(headers, refusals) == waited_ns


ERRORS: tuple[dict[str, object], ...] = (
    {"error": "Model is overloaded", "error_type": "overloaded"},
    {"error": {"message": "Model is overloaded", "http_status_code": 422}},
    {"error": {"message": "x", "type": "rate_limit_error"}},
    {"error": {"message": "x", "type": None, "code": "429"}},
    {"error": {"message": "x", "code": 503}},
    {"object": "error", "message": "x", "type": "overloaded_error"},
    {"error": "x", "error_type": "generation"},
    {"error": {"message": "x", "type": "server_error", "code": 500}},
    {"error": {"message": "x", "code": 4290}},
    {"token": {"text": "overloaded", "id": 429}, "generated_text": '"type":"overloaded"'},
    {"choices": [{"text": '"error": "Model is overloaded"'}]},
)


@pytest.mark.parametrize("said", ERRORS)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_the_bytes_of_an_overload_are_known_without_reading_them(
    said: dict[object, object], separators: tuple[str, str]
) -> None:
    error = told_error(said)
    overload = error is not None and error[0] is OVERLOADED
    data = b"data: " + json.dumps(said, separators=separators).encode() + b"\n\n"
    assert bool(re.search(OVERLOAD, data)) is overload


def test_slots_that_wait() -> None:
    """Two are refused, one of them twice in a row; then one waits when the load ends."""
    waits = SlotWaits.told_by(OVERLOAD)
    waits.refused(200, (), bytearray(b"well"), 0)
    assert (len(waits), waits.next_ns) == (0, NEVER_NS)
    waits.refused(429, ((b"retry-after", b"5"),), bytearray(), 0)
    waits.refused(503, (), bytearray(b'{"error":"no"}'), 1)
    assert len(waits) == 2
    waits.wake(waits.next_ns - 1)
    assert (len(waits), waits.over.count) == (2, 0)
    waits.wake(waits.next_ns)
    assert (len(waits), waits.over) == (1, Waits(1, 20 * MS, 20 * MS))
    assert [waits.refusals(), waits.refusals()] == [2, 0]
    waits.end(waits.next_ns - 4 * S)
    assert waits.over == Waits(2, 1020 * MS, S)


def test_slots_of_an_open_loop_never_wait() -> None:
    waits = SlotWaits.told_by(b"")
    waits.refused(429, (), bytearray(), 0)
    assert len(waits) == 0


@pytest.mark.parametrize("name", ["refuses", "refuses_and_closes", "overloaded_inside"])
@pytest.mark.parametrize("stream", [True, False])
def test_a_closed_loop_waits_twice_as_long_each_time(name: str, stream: bool) -> None:
    with FaultyServer() as server:
        server.behaviour(name)
        stage, seen = send(server.url, trial(ClosedLoop(1), timed(300 * MS), stream=stream))
    if stream or name != "overloaded_inside":
        assert outcomes(seen) == {OVERLOADED}
    sent = [one.sent_ns or 0 for one in seen]
    for index, (one, then) in enumerate(pairwise(range(len(seen)))):
        assert sent[then] - seen[one].ended_ns >= min(10 * MS << index, S)
    assert 2 <= len(seen) <= 6
    assert stage.conditions.waits.count == len(seen)
    assert stage.conditions.waits.longest_ns <= stage.conditions.waits.total_ns


def test_what_is_asked_for_is_waited_for() -> None:
    """Retry-After: 7; the load ends all the same."""
    with FaultyServer() as server:
        server.behaviour("too_many_requests")
        stage, seen = send(server.url, trial(ClosedLoop(2), timed(200 * MS)))
    assert [one.outcome for one in seen] == [OVERLOADED, OVERLOADED]
    waits = stage.conditions.waits
    assert waits.count == 2
    assert waits.longest_ns < 7 * S


def test_other_slots_go_on_and_what_was_well_resets() -> None:
    with FaultyServer() as server:
        server.behaviours(("refuses", "well", "well"))
        stage, seen = send(server.url, closed(60, 4, workers=2))
    well = [one for one in seen if one.outcome is RequestOutcome.OK]
    assert len(seen) == 60
    assert len(well) == 40
    assert {one.output_tokens for one in well} == {TOKENS}
    assert stage.conditions.waits.count == 20


def test_an_open_loop_never_waits() -> None:
    with FaultyServer() as server:
        server.behaviour("too_many_requests")
        stage, seen = send(server.url, trial(at_rate(100.0), timed(200 * MS)))
    assert [round((one.intended_ns - stage.began_ns) / MS) for one in seen] == [
        10 * index for index in range(20)
    ]
    assert outcomes(seen) == {OVERLOADED}
    assert stage.conditions.waits == Waits()


def test_users_of_conversations_wait_too() -> None:
    workload = Workload(Fixed(5), Fixed(2), None, None, Turns(Fixed(3), 0), 0)
    with FaultyServer() as server:
        server.behaviour("refuses")
        stage, seen = send(server.url, trial(ClosedLoop(1), timed(300 * MS), workload))
    assert outcomes(seen) == {OVERLOADED}
    for index, (one, then) in enumerate(pairwise(seen)):
        assert then.intended_ns - one.ended_ns >= min(10 * MS << index, S)
    assert 2 <= len(seen) <= 6
    assert stage.conditions.waits.count == len(seen)

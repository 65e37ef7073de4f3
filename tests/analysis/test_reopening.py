"""What waits for connections cost, by requests whose times were chosen by hand."""

from __future__ import annotations

import pytest

from tests.analysis.load_samples import MS, Timing, request
from tgi_bench.kinds.load.summary import reopening
from tgi_bench.load_observation import RequestObservation


def asked(index: int, ttft_ms: int, wait_ms: int = 0, resent: int = 0) -> RequestObservation:
    """One whose TTFT holds that wait, and whose answer lasts 100 ms more."""
    timing = Timing(index * MS, ttft_ms * MS, (100 * MS,), wait_ms * MS)
    return request(index, timing, new_connection=wait_ms > 0, resent=resent)


def found(seen: list[RequestObservation], streamed: bool = True) -> tuple[int, int, float, object]:
    """(requests, resent, wait in ms, moved)."""
    of = reopening(seen, streamed)
    assert of is not None
    return of.requests, of.resent, of.wait_p50_ns / MS, of.moved


def test_none_waited() -> None:
    assert reopening([asked(0, 20), asked(1, 30)], True) is None
    assert reopening([], True) is None


def test_every_request_waits_alike() -> None:
    """All percentiles of TTFT are 10 ms, 1 of it the wait; of E2E 110 ms."""
    seen = [asked(index, 10, 1, resent=index % 2) for index in range(100)]
    assert found(seen) == (100, 50, 1.0, pytest.approx(0.1))
    assert found(seen, False) == (100, 50, 1.0, pytest.approx(1 / 110))


def test_a_few_that_wait_move_the_highest_percentiles() -> None:
    """2 of 100: p50 stays, p99 is 20 ms with the wait and 10 without."""
    seen = [asked(index, 10) for index in range(98)]
    seen += [asked(98, 20, 10), asked(99, 20, 10)]
    assert found(seen) == (2, 0, 10.0, pytest.approx(0.5))
    few = seen[:10] + seen[98:]  # too few for p99: p90 of 12 is the second largest
    assert found(few) == (2, 0, 10.0, pytest.approx(0.5))
    assert found(seen[:90] + seen[98:99]) == (1, 0, 10.0, 0.0)


def test_what_an_open_loop_sent_late_is_no_wait_for_a_connection() -> None:
    late = [request(index, Timing(index * MS, 10 * MS, (), 5 * MS)) for index in range(99)]
    assert found([*late, asked(99, 10, 1)]) == (1, 0, 1.0, 0.0)


def test_runs_that_recorded_no_wait() -> None:
    """Before, a closed loop's request was intended when it was sent, whatever it waited for."""
    seen = [request(index, Timing(index * MS, 10 * MS), new_connection=True) for index in range(9)]
    assert found(seen) == (9, 0, 0.0, None)

"""The gaps between the steps of one rank."""

from __future__ import annotations

import pytest

from tgi_bench.server.simulated_engine import Turnaround

MS = 1_000_000


@pytest.mark.parametrize(
    ("gaps_ms", "outside_ms"),
    [
        ((), 0),
        ((3,), 3),
        ((3, 2, 5), 2),
        ((50,), 50),
        ((51,), 0),  # the caller had nothing to ask
        ((1, 4, 4, 4, 4, 4, 4, 4, 4), 4),  # the first is no longer kept
    ],
)
def test_the_least_of_the_last_gaps_is_taken_off(gaps_ms: tuple[int, ...], outside_ms: int) -> None:
    turnaround, now_ns = Turnaround(), 7 * MS
    turnaround.began(now_ns)
    for gap_ms in gaps_ms:
        now_ns += 20 * MS
        turnaround.ended(now_ns)
        now_ns += gap_ms * MS
        turnaround.began(now_ns)
    assert turnaround.outside_ns == outside_ms * MS


def test_another_call_in_between_is_no_gap() -> None:
    turnaround = Turnaround()
    turnaround.ended(10 * MS)
    turnaround.interrupted()
    turnaround.began(11 * MS)
    assert turnaround.outside_ns == 0


def test_a_step_that_failed_is_no_gap() -> None:
    turnaround = Turnaround()
    turnaround.began(10 * MS)
    turnaround.began(11 * MS)
    assert turnaround.outside_ns == 0

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.analysis.load_samples import (
    CLOSED,
    MS,
    OPEN,
    OPEN_STAGE,
    STAGE,
    S,
    Timing,
    lane,
    request,
    unsent,
)
from tgi_bench.kinds.load.figures import Window
from tgi_bench.kinds.load.window import find_window, mean_in_flight, mser_cut
from tgi_bench.load_observation import LoadPart, RequestObservation
from tgi_bench.trials.load import OpenLoop, Process, RatePart, TraceTimes


def one(index: int, begin_ms: int, end_ms: int) -> RequestObservation:
    return request(index, Timing(begin_ms * MS, (end_ms - begin_ms) * MS))


def test_mean_in_flight_by_hand() -> None:
    window = Window(0, 100 * MS, False)
    requests = [one(0, -50, 50), one(1, 25, 75), one(2, 90, 200), one(3, 100, 150), unsent(4, 10)]
    assert mean_in_flight(window, requests) == pytest.approx((50 + 50 + 10) / 100)
    assert mean_in_flight(window, []) == 0.0
    assert mean_in_flight(Window(5, 5, False), requests) is None


def test_a_closed_loop_is_cut_to_where_it_holds_its_level() -> None:
    """8 in flight from 1 s to 9 s of a window of 10 s; 4 before, 2 after."""
    requests = [one(i, 0, 9_000) for i in range(4)]
    requests += [one(4 + i, 1_000, 9_000) for i in range(2)]
    requests += [one(6 + i, 1_000, 10_000) for i in range(2)]
    assert find_window(CLOSED, STAGE, requests) == Window(1 * S, 9 * S, True)


def test_a_level_held_throughout_is_the_planned_window() -> None:
    found = find_window(CLOSED, STAGE, lane(8, 400 * MS, 10 * S))
    assert found == Window(0, 10 * S, True)


def test_warm_up_and_cool_down_are_never_in_the_window() -> None:
    stage = replace(STAGE, measured_from_ns=2 * S, measured_until_ns=8 * S)
    found = find_window(CLOSED, stage, lane(8, 400 * MS, 10 * S))
    assert found == Window(2 * S, 8 * S, True)


@pytest.mark.parametrize("requests", [[], [unsent(0, MS)], [one(0, 0, 4_000)]])
def test_no_level_is_held(requests: list[RequestObservation]) -> None:
    """Nothing in flight for most of the time: a median of 0 is no level."""
    assert find_window(CLOSED, STAGE, requests) == Window(0, 10 * S, False)


def e2e_series(values_ms: list[float]) -> list[RequestObservation]:
    """One every 50 ms."""
    return [request(i, Timing(i * 50 * MS, int(v * MS))) for i, v in enumerate(values_ms)]


def test_an_open_loops_transient_is_cut_off() -> None:
    rng = np.random.default_rng(0)
    values = [100 - 2 * i if i < 30 else 40 for i in range(200)] + rng.normal(0, 1, 200)
    found = find_window(OPEN, OPEN_STAGE, e2e_series([float(v) for v in values]))
    assert found.steady
    assert found.end_ns == 10 * S
    assert 20 * 50 * MS <= found.begin_ns <= 60 * 50 * MS


def test_less_than_half_of_the_window_is_not_used() -> None:
    """The transient is 40 % of the requests but 80 % of the time."""
    seen = [
        request(i, Timing((8_000 + (i - 80) * 10) * MS, 90 * MS))
        if i >= 80
        else request(i, Timing(i * 100 * MS, (500 - 5 * i) * MS))
        for i in range(200)
    ]
    assert find_window(OPEN, OPEN_STAGE, seen) == Window(0, 10 * S, False)


def test_an_open_loop_that_never_settles_keeps_the_planned_window() -> None:
    growing = e2e_series([10.0 + i for i in range(200)])
    assert find_window(OPEN, OPEN_STAGE, growing) == Window(0, 10 * S, False)


def test_a_steady_open_loop_keeps_its_beginning() -> None:
    values = np.random.default_rng(1).normal(100, 5, 200)
    found = find_window(OPEN, OPEN_STAGE, e2e_series([float(v) for v in values]))
    assert found.steady
    assert found.begin_ns <= S


def test_few_requests_and_those_of_other_parts_find_nothing() -> None:
    few = e2e_series([10.0] * 49)
    assert not find_window(OPEN, OPEN_STAGE, few).steady
    warm = [replace(seen, part=LoadPart.WARMUP) for seen in e2e_series([10.0] * 200)]
    assert not find_window(OPEN, OPEN_STAGE, warm).steady


def test_rates_that_change_have_no_steady_state() -> None:
    steady = e2e_series([10.0] * 200)
    ramp = OpenLoop(None, (RatePart(10 * S, 1.0, 40.0),), Process.CONSTANT, 1.0, 0)
    for arrivals in (ramp, TraceTimes(1.0)):
        trial = replace(OPEN, arrivals=arrivals)
        assert find_window(trial, OPEN_STAGE, steady) == Window(0, 10 * S, False)


def test_mser_by_hand() -> None:
    """Batch means 9, 1, 1, ...: cutting the first leaves no spread at all."""
    series = np.array([9.0] * 5 + [1.0] * 95)
    assert mser_cut(series) == 5
    assert mser_cut(np.ones(100)) == 0
    assert mser_cut(np.ones(9)) is None
    assert mser_cut(np.arange(100, dtype=np.float64)) is None

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.analysis.load_samples import MS, OPEN, OPEN_STAGE, Timing, request
from tgi_bench.analysis.samples import Figure
from tgi_bench.kinds.load.figures import StageSummary
from tgi_bench.kinds.load.search import certainly, wilson
from tgi_bench.kinds.load.summary import summarise_stage
from tgi_bench.load_observation import RequestOutcome
from tgi_bench.trials.load import SUCCESS, Find, LoadTrial, Slo, Sought

FIND = Find(Sought.MAX_RATE, 4.0, 0.5, 64.0, 0.05, 1)


def searching(*slos: Slo) -> LoadTrial:
    return replace(OPEN, find=FIND, slos=slos)


TRIAL = searching(Slo("ttft_mean", 50 * MS))


def stage(
    trial: LoadTrial, interval_ms: tuple[float | None, float | None] = (20, 30), failing: int = 0
) -> StageSummary:
    """100 requests, whose mean TTFT of 25 ms has the interval."""
    seen = [request(i, Timing(i * 100 * MS, 25 * MS)) for i in range(100)]
    for i in range(failing):
        seen[i] = replace(seen[i], outcome=RequestOutcome.SERVER_ERROR, reason="no")
    summary = summarise_stage(trial, OPEN_STAGE, seen)
    assert summary.ttft is not None
    low, high = (None if end is None else end * MS for end in interval_ms)
    mean = Figure(summary.ttft.mean.value, low, high)
    return replace(summary, ttft=replace(summary.ttft, mean=mean))


@pytest.mark.parametrize(
    ("interval_ms", "sure"),
    [
        ((20, 30), True),
        ((20, 50), True),
        ((40, 51), None),
        ((50, 60), None),
        ((51, 60), False),
        ((None, None), None),
    ],
)
def test_the_whole_interval_decides(
    interval_ms: tuple[float | None, float | None], sure: bool | None
) -> None:
    assert certainly(TRIAL, stage(TRIAL, interval_ms)) is sure


def test_a_greatest_value_has_no_interval() -> None:
    trial = searching(Slo("ttft_max", 50 * MS))
    assert certainly(trial, stage(trial)) is None


def test_one_slo_that_is_missed_is_enough_and_each_must_be_met() -> None:
    both = searching(Slo("ttft_mean", 50 * MS), Slo("ttft_max", 50 * MS))
    assert certainly(both, stage(both)) is None
    assert certainly(both, stage(both, (51, 60))) is False


@pytest.mark.parametrize(
    ("limit", "failing", "sure"),
    [
        (0.96, 0, True),  # 100 of 100: at least 96.3 %
        (0.97, 0, None),
        (0.9, 10, None),  # 90 of 100: 82.6 % to 94.5 %
        (0.95, 10, False),
    ],
)
def test_success_by_its_interval(limit: float, failing: int, sure: bool | None) -> None:
    trial = searching(Slo(SUCCESS, limit))
    assert certainly(trial, stage(trial, failing=failing)) is sure


def test_failures_that_no_slo_names() -> None:
    assert certainly(TRIAL, stage(TRIAL, failing=1)) is True  # met() allows for 1 %
    assert certainly(TRIAL, stage(TRIAL, failing=2)) is None
    assert certainly(TRIAL, stage(TRIAL, failing=10)) is False


def test_a_server_that_falls_behind_misses() -> None:
    summary = stage(TRIAL)
    assert summary.requests_per_s is not None
    behind = replace(summary, requests_per_s=Figure(5.0, None, None))
    assert certainly(TRIAL, behind) is False


@pytest.mark.parametrize(
    ("good", "total", "low", "high"),
    [(100, 100, 0.9630, 1.0), (90, 100, 0.8256, 0.9448), (0, 10, 0.0, 0.2775)],
)
def test_wilsons_interval(good: int, total: int, low: float, high: float) -> None:
    """By the formula of Wilson 1927, worked by hand for z = 1.96."""
    assert wilson(good, total) == pytest.approx((low, high), abs=1e-4)

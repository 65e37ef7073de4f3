from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.analysis.load_samples import CLOSED, MS, STAGE, Timing, request
from tgi_bench.kinds.load import slo as stopping
from tgi_bench.kinds.load.metrics import figure_of
from tgi_bench.kinds.load.slo import narrow_enough
from tgi_bench.kinds.load.summary import summarise_stage
from tgi_bench.load_observation import LoadPart, RequestObservation, RequestOutcome
from tgi_bench.trials.load import Until


def some(count: int, spread: float) -> list[RequestObservation]:
    """TTFT normal around 100 ms; ten gaps normal around 20 ms."""
    chance = random.Random(0)
    return [
        request(
            i,
            Timing(
                i * MS,
                int(100 * MS * (1 + spread * chance.gauss(0, 1))),
                [int(20 * MS * (1 + spread * chance.gauss(0, 1))) for _ in range(10)],
            ),
        )
        for i in range(count)
    ]


@pytest.mark.parametrize(
    ("metric", "share", "count", "spread", "expected"),
    [
        # 1.96 x 10 % / sqrt(n) is 2 % at n = 96
        ("ttft_mean", 0.02, 60, 0.1, False),
        ("ttft_mean", 0.02, 160, 0.1, True),
        ("ttft_p50", 0.02, 400, 0.1, True),
        ("itl_mean", 0.02, 20, 0.1, True),
        ("itl_p99", 0.02, 400, 0.05, True),
        ("e2e_mean", 0.001, 160, 0.1, False),
        # too few samples for the percentile or its interval, however alike they are
        ("ttft_p99", 0.5, 99, 0.01, False),
        ("ttft_p99", 0.5, 200, 0.01, False),
        ("ttft_p99", 0.5, 600, 0.01, True),
        ("ttft_p999", 0.5, 1200, 0.01, False),
        ("ttft_mean", 0.5, 9, 0.01, False),
        ("ttft_mean", 0.5, 10, 0.01, True),
        ("itl_p50", 0.5, 9, 0.01, False),
        ("itl_p99", 0.5, 99, 0.01, False),  # of 99 requests, however many gaps they have
        ("itl_p99", 0.5, 100, 0.01, True),
        # no interval, and a value of 0
        ("ttft_max", 0.5, 600, 0.01, False),
        ("send_lag_mean", 0.5, 600, 0.01, False),
    ],
)
def test_when_it_stops(
    metric: str, share: float, count: int, spread: float, expected: bool
) -> None:
    assert narrow_enough(Until(metric, share), CLOSED, some(count, spread)) is expected


def test_only_measured_requests_that_ended_well_count() -> None:
    seen = some(160, 0.1)
    until = Until("ttft_mean", 0.05)
    assert narrow_enough(until, CLOSED, seen)
    assert not narrow_enough(until, CLOSED, [replace(s, part=LoadPart.WARMUP) for s in seen])
    failed = [replace(s, outcome=RequestOutcome.TIMEOUT) for s in seen]
    assert not narrow_enough(until, CLOSED, failed)
    assert not narrow_enough(until, CLOSED, [])
    assert not narrow_enough(until, replace(CLOSED, stream=False), seen)


@pytest.mark.parametrize("metric", ["itl_mean", "itl_p90", "ttft_mean"])
def test_a_part_stands_for_all(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops at a share that lies around the whole's own half-width, and not far below it."""
    seen = some(2000, 0.3)
    figure = figure_of(summarise_stage(CLOSED, STAGE, seen), metric)
    assert figure is not None
    assert figure.low is not None
    assert figure.high is not None
    half = (figure.high - figure.low) / 2 / figure.value
    monkeypatch.setattr(stopping, "MOST_REQUESTS", 700)
    monkeypatch.setattr(stopping, "MOST_EVENTS", 8_000)
    assert narrow_enough(Until(metric, 1.5 * half), CLOSED, seen)
    assert not narrow_enough(Until(metric, 0.6 * half), CLOSED, seen)

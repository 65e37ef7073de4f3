from __future__ import annotations

from dataclasses import replace

import pytest

from tests.analysis.load_samples import MS, OPEN, OPEN_STAGE, S, Timing, request, unsent
from tgi_bench.kinds.load.figures import LoadSummary, Moved
from tgi_bench.kinds.load.rules import load_checks
from tgi_bench.kinds.load.summary import moved_by_lag, moves, summarise_stage
from tgi_bench.load_observation import RequestObservation
from tgi_bench.observation import Outcome, TrialEnd


def test_each_figure_with_its_share_by_hand() -> None:
    """10 requests of 100 ms, 1 ms of which is the part; of the last one 11 of 110 ms."""
    pairs = [(100.0, 99.0)] * 9 + [(110.0, 99.0)]
    found = {moved.figure: moved.share for moved in moves("ttft", pairs)}
    assert found == pytest.approx({"ttft_mean": 2 / 101, "ttft_p50": 0.01, "ttft_p90": 0.01})
    assert moves("ttft", []) == []


def late(lag_ns: int, ttft_ns: int, every: int = 1) -> list[RequestObservation]:
    """100 requests in 10 s with one token each; each `every`-th was sent late, which TTFT has."""
    return [
        request(
            i,
            Timing(
                i * 100 * MS,
                ttft_ns + (lag_ns if i % every == 0 else 0),
                lag_ns=lag_ns if i % every == 0 else 0,
            ),
        )
        for i in range(100)
    ]


def test_the_largest_share_of_any_figure() -> None:
    assert moved_by_lag(late(MS, 99 * MS), streamed=True) == Moved("ttft_mean", 0.01)
    of_some = moved_by_lag(late(100 * MS, 100 * MS, every=50), streamed=True)
    assert of_some == Moved("ttft_p99", 0.5)
    whole = moved_by_lag(late(MS, 99 * MS), streamed=False)
    assert whole == Moved("e2e_mean", 0.01)
    assert moved_by_lag([unsent(0, 0)], streamed=True) is None


@pytest.mark.parametrize(
    ("lag_ns", "ttft_ns", "valid"),
    [
        (2 * MS, S, True),  # late by 2 ms, of a second
        (2 * MS, 100 * MS, False),
        (MS // 2, 100 * MS, True),
        (MS // 2, 10 * MS, True),  # 5 %, but no more than half a millisecond
    ],
)
def test_a_lag_that_moves_no_figure_is_no_fault_and_is_printed(
    lag_ns: int, ttft_ns: int, valid: bool
) -> None:
    trial = replace(OPEN, arrivals=OPEN.arrivals)
    summary = summarise_stage(trial, OPEN_STAGE, late(lag_ns, ttft_ns))
    load = LoadSummary(trial, TrialEnd(Outcome.OK, ""), (summary,), None)
    (found,) = [c for c in load_checks((load,)) if c.name == "loads send on time"]
    assert found.passed is valid
    assert f"p99 send lag {lag_ns / 1e6:g} ms" in found.finding.replace("500 µs", "0.5 ms")
    assert "of TTFT mean it is " in found.finding

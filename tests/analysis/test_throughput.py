"""Rates over a window: answers by the share of their time in it, tokens by their arrival."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.analysis.load_samples import CLOSED, MS, S, Timing, request
from tgi_bench.analysis.samples import Figure
from tgi_bench.kinds.load.figures import Window
from tgi_bench.kinds.load.window import throughput
from tgi_bench.load_observation import RequestObservation, RequestOutcome
from tgi_bench.trials.load import Slo

WINDOW = Window(0, 10 * S, True)


def rate(requests: list[RequestObservation], window: Window = WINDOW) -> Figure:
    found = throughput(CLOSED, window, requests).requests_per_s
    assert found is not None
    return found


def one(begin_ns: int, length_ns: int, index: int = 0) -> RequestObservation:
    return request(index, Timing(begin_ns, length_ns))


@pytest.mark.parametrize(
    ("begin_ns", "length_ns", "counted"),
    [
        (2 * S, 3 * S, 1.0),  # within it
        (-1 * S, 4 * S, 0.75),  # begun before it
        (9 * S, 4 * S, 0.25),  # ended after it
        (-5 * S, 20 * S, 0.5),  # longer than it
        (-3 * S, 2 * S, 0.0),
        (11 * S, 2 * S, 0.0),
        (4 * S, 0, 1.0),  # no time at all
    ],
)
def test_an_answer_counts_by_its_share(begin_ns: int, length_ns: int, counted: float) -> None:
    assert rate([one(begin_ns, length_ns)]).value == pytest.approx(counted / 10)


def test_one_lane_has_the_rate_of_its_answers_and_an_interval_with_width() -> None:
    """Answers of 244 ms one after another: 4.098/s, though only 40 or 41 end within 10 s."""
    lengths = [(244 + 20 * (-1) ** i * (i % 5)) * MS for i in range(60)]
    begins = np.cumsum([0, *lengths[:-1]]) - S
    found = rate([one(int(b), n, i) for i, (b, n) in enumerate(zip(begins, lengths, strict=True))])
    assert found.value == pytest.approx(1e9 / float(np.mean(lengths[4:45])), rel=0.01)
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.value < found.high


def test_only_good_answers_count_and_prompts_by_the_same_share() -> None:
    good = request(0, Timing(-1 * S, 2 * S))
    bad = request(1, Timing(S, S), outcome=RequestOutcome.TIMEOUT)
    slow = replace(CLOSED, slos=(Slo("ttft_p99", 1.0 * S),))
    found = throughput(slow, WINDOW, [good, bad])
    assert found.requests_per_s == Figure(0.05, None, None)
    assert found.output_tokens_per_s == Figure(0.2, None, None)
    assert found.total_tokens_per_s == Figure(0.2 + 100 * 0.05, None, None)
    assert found.goodput_per_s == Figure(0.0, None, None)


def test_an_empty_window() -> None:
    empty = throughput(CLOSED, Window(S, S, False), [one(0, 2 * S)])
    assert empty.requests_per_s is None
    assert empty.total_tokens_per_s is None

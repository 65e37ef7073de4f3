from __future__ import annotations

from array import array
from dataclasses import fields

import numpy as np
import pytest

from tests.analysis.load_samples import MS, Timing, request, unsent
from tgi_bench.analysis.samples import Figure, LoadDistribution, statistic_of
from tgi_bench.kinds.load.figures import StageSummary
from tgi_bench.kinds.load.gaps import each_statistic, samples_of
from tgi_bench.kinds.load.metrics import LOAD_DEFINITIONS, OF_REQUEST, split_metric
from tgi_bench.trials.load import METRICS, STATISTICS

ONE = request(0, Timing(100 * MS, 30 * MS, (10 * MS, 20 * MS), lag_ns=2 * MS, tail_ns=MS))
"""Tokens at 130, 140, 160 ms; sent at 102; ended at 161."""


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("ttft", 30 * MS),
        ("service_ttft", 28 * MS),
        ("tpot", 15 * MS),
        ("e2e", 61 * MS),
        ("send_lag", 2 * MS),
    ],
)
def test_a_request_by_hand(metric: str, expected: float) -> None:
    assert OF_REQUEST[metric](ONE) == expected
    assert OF_REQUEST[metric](unsent(1, 5 * MS)) is None


def test_tpot_is_over_tokens_after_the_first_event() -> None:
    """Undefined where all came at once."""
    four_each = request(0, Timing(0, 20 * MS, (20 * MS,) * 31), tokens=[4] * 32)
    assert OF_REQUEST["tpot"](four_each) == 5 * MS  # over 127 tokens it would be 2.4 % less
    first_five = request(0, Timing(0, MS, (20 * MS,)), tokens=[5, 1])
    assert OF_REQUEST["tpot"](first_five) == 20 * MS
    vllm = request(0, Timing(0, MS, (40 * MS,) * 5), tokens=[1, 4, 4, 4, 4, 3])
    assert OF_REQUEST["tpot"](vllm) == pytest.approx(200 * MS / 19)
    assert OF_REQUEST["tpot"](request(0, Timing(0, MS))) is None
    assert OF_REQUEST["tpot"](request(0, Timing(0, MS), tokens=[8])) is None


def test_itl_spreads_an_events_gap_over_its_tokens() -> None:
    seen = request(0, Timing(0, MS, (20 * MS, 9 * MS)), tokens=[2, 4, 1])
    itl, gap = samples_of("itl", [seen]), samples_of("event_gap", [seen])
    assert itl.values_ns.tolist() == [5 * MS, 9 * MS]
    assert itl.weights.tolist() == [4, 1]
    assert gap.values_ns.tolist() == [20 * MS, 9 * MS]
    assert gap.weights.tolist() == [1, 1]


def test_gaps_never_cross_requests() -> None:
    requests = [
        request(0, Timing(0, MS, (3 * MS,))),
        unsent(1, 0),
        request(2, Timing(0, MS)),
        request(3, Timing(0, 5 * MS, (7 * MS, 8 * MS))),
    ]
    found = samples_of("event_gap", requests)
    assert found.values_ns.tolist() == [3 * MS, 7 * MS, 8 * MS]
    assert found.owners.tolist() == [0, 3, 3]
    assert samples_of("event_gap", []).values_ns.tolist() == []
    assert samples_of("ttft", requests).owners.tolist() == [0, 2, 3]


@pytest.mark.parametrize(
    ("statistic", "expected"),
    [("mean", 4.0), ("max", 10.0), ("p50", 3.0), ("p90", 10.0), ("p99", 10.0)],
)
def test_each_requests_own_statistic(statistic: str, expected: float) -> None:
    requests = [
        request(0, Timing(0, MS)),
        request(1, Timing(0, MS, (10, 3, 3, 1, 3))),
        request(2, Timing(0, MS, (8,)), tokens=[1, 4]),
    ]
    found = each_statistic(samples_of("itl", requests), statistic, 3)
    assert np.isnan(found[0])
    assert found[1:].tolist() == [expected, 2.0]
    assert np.isnan(each_statistic(samples_of("itl", requests[:1]), statistic, 1)).all()


def test_every_metric_and_statistic_has_a_name() -> None:
    figure = Figure(1.0, None, None)
    some = LoadDistribution(1, 1, figure, figure, None, None, None, None, 1.0)
    for metric in METRICS:
        assert metric in {field.name for field in fields(StageSummary)}
        for statistic in STATISTICS:
            assert split_metric(f"{metric}_{statistic}") == (metric, statistic)
    assert [statistic_of(some, name) for name in STATISTICS] == [
        figure,
        figure,
        None,
        None,
        None,
        None,
        figure,
    ]
    with pytest.raises(ValueError, match="no statistic"):
        statistic_of(some, "p42")


@pytest.mark.parametrize("name", ["p99", "ttft", "latency_p99", "ttft_p42", "success"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        split_metric(name)


def test_definitions_have_each_term_once() -> None:
    terms = [term for term, _ in LOAD_DEFINITIONS]
    assert len(terms) == len(set(terms))
    for term in ("TTFT", "service TTFT", "ITL", "inter-event gap", "TPOT", "E2E", "send lag"):
        assert term in terms


def test_samples_are_untouched() -> None:
    seen = request(0, Timing(0, MS, (MS,)))
    before = array("q", seen.event_ns)
    samples_of("itl", [seen])
    assert seen.event_ns == before
    seen.event_ns.append(1)  # no view of it is left behind: a view would refuse
    assert seen.event_ns.pop() == 1

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tgi_bench.analysis import bootstrap
from tgi_bench.analysis.bootstrap import (
    Floats,
    Ints,
    Samples,
    draws,
    load_distribution,
    one_figure,
    total_interval,
)
from tgi_bench.analysis.samples import Figure, LoadDistribution, nearest_rank, rank


def single(values: Floats | list[float]) -> Samples:
    """One sample a request."""
    count = len(values)
    return Samples(
        np.asarray(values, dtype=np.float64),
        np.ones(count, dtype=np.int64),
        np.arange(count, dtype=np.int64),
    )


def of(samples: Samples) -> LoadDistribution:
    found = load_distribution(samples)
    assert found is not None
    return found


def test_by_hand() -> None:
    found = of(single([30.0, 10.0, 20.0]))
    assert found == LoadDistribution(
        count=3,
        requests=3,
        mean=Figure(20.0, None, None),
        p50=Figure(20.0, None, None),
        p90=None,
        p95=None,
        p99=None,
        p999=None,
        highest=30.0,
    )
    assert load_distribution(single([])) is None


@pytest.mark.parametrize(
    ("count", "given"),
    [
        (9, []),
        (10, ["p90"]),
        (20, ["p90", "p95"]),
        (99, ["p90", "p95"]),
        (100, ["p90", "p95", "p99"]),
        (1000, ["p90", "p95", "p99", "p999"]),
    ],
)
def test_percentiles_need_their_samples(count: int, given: list[str]) -> None:
    found = of(single([float(i) for i in range(1, count + 1)]))
    percentiles = {"p90": found.p90, "p95": found.p95, "p99": found.p99, "p999": found.p999}
    assert [name for name, figure in percentiles.items() if figure is not None] == given
    for name, figure in percentiles.items():
        if figure is not None:
            assert figure.value == rank(count, {"p999": 999}.get(name, int(name[1:3]) * 10))


def test_weights_count_as_often_as_they_say() -> None:
    weighted = Samples(np.array([5.0, 9.0]), np.array([3, 1]), np.array([0, 1]))
    found = of(weighted)
    assert (found.count, found.requests) == (4, 2)
    assert (found.mean.value, found.p50.value) == (6.0, 5.0)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=300))
@settings(max_examples=50)
def test_points_are_nearest_ranks_and_intervals_hold_them(values: list[int]) -> None:
    found = of(single([float(v) for v in values]))
    assert found.p50.value == nearest_rank(sorted(values), 50)
    assert found.highest == max(values)
    assert found.mean.value == pytest.approx(sum(values) / len(values))
    for figure in (found.mean, found.p50, found.p90, found.p95, found.p99):
        if figure is not None and figure.low is not None and figure.high is not None:
            assert figure.low <= figure.value * (1 + 1e-12)
            assert figure.value <= figure.high * (1 + 1e-12)
    assert found == of(single([float(v) for v in values]))


def test_no_interval_where_the_samples_cannot_bound_it() -> None:
    values = np.random.default_rng(1).normal(100, 10, 200)
    found = of(single(values))
    assert found.p99 is not None
    assert (found.p99.low, found.p99.high) == (None, None)  # 0.99^200 = 13 %
    assert found.p95 is not None
    assert found.p95.high is not None
    more = of(single(np.random.default_rng(1).normal(100, 10, 400)))
    assert more.p99 is not None
    assert more.p99.high is not None


def test_equal_samples_have_an_interval_without_width() -> None:
    found = of(single([7.0] * 500))
    assert found.mean == Figure(7.0, 7.0, 7.0)
    assert found.p99 == Figure(7.0, 7.0, 7.0)


def test_a_resample_draws_as_often_as_there_are_groups() -> None:
    drawn = draws(37, 100)
    assert drawn.shape == (100, 37)
    assert set(drawn.sum(axis=1).tolist()) == {37.0}
    assert 0 < float((drawn == 0).mean()) < 1


def test_two_groups_by_hand() -> None:
    """Of two values the mean of a resample is one of three, the middle one half of the time."""
    means = draws(2, 1000).astype(np.float64) @ np.array([0.0, 2.0]) / 2
    assert set(means.tolist()) == {0.0, 1.0, 2.0}
    assert 0.45 < float((means == 1.0).mean()) < 0.55


def cells_of(samples: Samples, exact: int, monkeypatch: pytest.MonkeyPatch) -> LoadDistribution:
    monkeypatch.setattr(bootstrap, "_EXACT", exact)
    return of(samples)


def test_cells_change_an_interval_by_little(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = single(np.random.default_rng(2).lognormal(3, 0.5, 1800))
    exact = cells_of(samples, 10_000, monkeypatch)
    celled = cells_of(samples, 1, monkeypatch)
    for one, other in ((exact.p50, celled.p50), (exact.p90, celled.p90), (exact.p99, celled.p99)):
        assert one is not None
        assert other is not None
        assert one.low is not None
        assert one.high is not None
        assert other.low is not None
        assert other.high is not None
        width = one.high - one.low
        assert abs(one.low - other.low) < 0.15 * width
        assert abs(one.high - other.high) < 0.15 * width


def test_more_requests_than_groups() -> None:
    values = np.random.default_rng(3).normal(100, 10, 9000)
    found = of(single(values))
    assert found.requests == 9000
    assert found.mean.low is not None
    assert found.mean.high is not None
    half = (found.mean.high - found.mean.low) / 2
    assert half == pytest.approx(1.96 * 10 / 9000**0.5, rel=0.1)


def covered(figure: Figure | None, truth: float) -> bool:
    assert figure is not None
    assert figure.low is not None
    assert figure.high is not None
    return figure.low <= truth <= figure.high


def test_coverage_on_a_known_distribution() -> None:
    """95 % intervals of a log-normal's mean, p50 and p90 hold the truth in 95 % of 200 loads."""
    rng = np.random.default_rng(4)
    hits = [0, 0, 0]
    for _ in range(200):
        found = of(single(rng.lognormal(0.0, 0.5, 200)))
        hits[0] += covered(found.mean, float(np.exp(0.5 * 0.5**2)))
        hits[1] += covered(found.p50, 1.0)
        hits[2] += covered(found.p90, float(np.exp(1.2815515655 * 0.5)))
    for count in hits:
        assert 0.90 <= count / 200 <= 0.985, hits


def clustered(rng: np.random.Generator, requests: int, each: int) -> Samples:
    """Gaps that share their request's own level: N(0, 1) + N(0, 1) around 100."""
    owners: Ints = np.repeat(np.arange(requests), each)
    values = 100 + rng.normal(0, 1, requests)[owners] + rng.normal(0, 1, requests * each)
    return Samples(values, np.ones(len(values), dtype=np.int64), owners)


def test_coverage_where_gaps_of_a_request_are_alike() -> None:
    """Drawing single gaps would cover the mean in a third of the loads."""
    rng = np.random.default_rng(5)
    hits = [0, 0, 0]
    for _ in range(100):
        found = of(clustered(rng, 100, 20))
        hits[0] += covered(found.mean, 100.0)
        hits[1] += covered(found.p50, 100.0)
        hits[2] += covered(found.p90, 100 + 1.2815515655 * 2**0.5)
    for count in hits:
        assert 0.88 <= count / 100 <= 0.99, hits


def test_gaps_of_few_requests_do_not_bound_a_high_percentile() -> None:
    samples = clustered(np.random.default_rng(6), 12, 500)
    found = of(samples)
    assert found.count == 6000
    assert found.p999 is not None
    assert found.p999.high is None
    assert found.p50.high is not None
    few = of(clustered(np.random.default_rng(6), 9, 500))
    assert few.mean.low is None


def test_one_figure_is_that_of_all() -> None:
    samples = single(np.random.default_rng(7).normal(50, 5, 400))
    found = of(samples)
    assert one_figure(samples, "mean", 1000) == found.mean
    assert one_figure(samples, "p50", 1000) == found.p50
    assert one_figure(samples, "p999", 1000) is None
    assert one_figure(single([]), "mean", 1000) is None


def test_an_interval_of_blocks() -> None:
    assert total_interval([5] * 20) == (100.0, 100.0)
    low, high = total_interval([0, 10] * 10)
    assert 50 < low < 100 < high < 150

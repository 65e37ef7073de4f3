from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tgi_bench.analysis.samples import distribution, nearest_rank


@pytest.mark.parametrize(
    ("samples", "percent", "expected"),
    [
        ([7], 1, 7),
        ([7], 99, 7),
        ([1, 2, 3, 4], 50, 2),
        ([1, 2, 3, 4, 5], 50, 3),
        (list(range(1, 11)), 50, 5),
        (list(range(1, 11)), 90, 9),
        (list(range(1, 11)), 99, 10),
        (list(range(1, 101)), 99, 99),
        (list(range(1, 102)), 99, 100),
    ],
)
def test_nearest_rank_by_hand(samples: list[int], percent: int, expected: int) -> None:
    assert nearest_rank(samples, percent) == expected


@pytest.mark.parametrize(("samples", "percent"), [([], 50), ([1], 0), ([1], 101)])
def test_nearest_rank_refuses(samples: list[int], percent: int) -> None:
    with pytest.raises(ValueError, match="nearest_rank"):
        nearest_rank(samples, percent)


def test_no_samples_have_no_distribution() -> None:
    assert distribution([]) is None


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=200))
def test_a_distribution_is_in_order_and_of_the_samples(samples: list[int]) -> None:
    d = distribution(samples)
    assert d is not None
    assert d.p50 is not None
    assert d.p90 is not None
    assert d.p99 is not None
    assert d.lowest <= d.p50 <= d.p90 <= d.p99 <= d.highest
    assert {d.lowest, d.p50, d.p90, d.p99, d.highest} <= set(samples)
    assert d.lowest <= d.mean * (1 + 1e-12)
    assert d.mean <= d.highest * (1 + 1e-12)
    assert d == distribution(samples[::-1])

"""Durations, shares and spans: what is read, and what is refused in which words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tgi_bench.errors import InputError
from tgi_bench.sections.quantities import duration_ns, share, span


@pytest.mark.parametrize(
    ("value", "ns"),
    [
        ("500ms", 500_000_000),
        ("2s", 2_000_000_000),
        (" 1.5 m ", 90_000_000_000),
        ("2min", 120_000_000_000),
        ("1h", 3_600_000_000_000),
        ("20us", 20_000),
        ("20µs", 20_000),
        ("1ns", 1),
        (".25s", 250_000_000),
        (0.1, 100_000_000),
        (30, 30_000_000_000),
        ("30", 30_000_000_000),
        ("168h", 604_800_000_000_000),
        ("1.000000001s", 1_000_000_001),
    ],
)
def test_durations(value: object, ns: int) -> None:
    assert duration_ns(value) == ns


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("soon", "must be a duration such as 500ms, 2s, 1.5m or 1h, or a number of seconds, not "),
        ("5 days", "must be a duration"),
        ("", "must be a duration"),
        ("1e3s", "must be a duration"),
        ("٣s", "must be a duration"),
        (True, "must be a duration"),
        (None, "must be a duration"),
        ([1], "must be a duration"),
        (float("nan"), "must be a duration"),
        (float("inf"), "must be a duration"),
        ("-1s", "must be more than 0, not `-1s`"),
        (-3, "must be more than 0, not `-3`"),
        (0, "must be more than 0, not `0`"),
        ("0.1ns", "must be at least 1ns, not `0.1ns`"),
        (1e-12, "must be at least 1ns"),
        ("169h", r"must be at most a week \(168h\), not `169h`"),
        (1e300, "must be at most a week"),
        ("9" * 20 + "h", "must be at most a week"),
        ("9" * 4000, "must be a duration"),
    ],
)
def test_no_durations(value: object, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        duration_ns(value)
    assert len(str(caught.value)) < 200


def test_zero_where_it_is_allowed() -> None:
    assert duration_ns("0s", zero=True) == 0
    with pytest.raises(InputError, match="must be at least 0, not `-1ms`"):
        duration_ns("-1ms", zero=True)


@given(st.integers(1, 7 * 24 * 3600 * 10**9))
def test_a_duration_in_ns_is_read_to_the_nanosecond(ns: int) -> None:
    assert duration_ns(f"{ns}ns") == ns


@pytest.mark.parametrize(
    ("value", "expected"),
    [("2%", 0.02), ("99.9%", 0.999), ("0.02", 0.02), (0.02, 0.02), ("100%", 1.0), (1, 1.0)],
)
def test_shares(value: object, expected: float) -> None:
    assert share(value) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (2, "must be at most 100%, which is 1, not `2`; write 2% for so many hundredths"),
        ("101%", "must be at most 100%, which is 1, not `101%`$"),
        (0, "must be more than 0, not `0`"),
        ("-1%", "must be more than 0, not `-1%`"),
        ("most", "must be a share such as 2% or 0.02, not `most`"),
        (False, "must be a share"),
        (float("nan"), "must be a share"),
    ],
)
def test_no_shares(value: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        share(value)


@pytest.mark.parametrize("value", [0, 10, "10s", "0s", "1.5m"])
def test_spans_stay_as_they_are_written(value: int | str) -> None:
    assert span(value) == value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("10", "must be a duration with its unit, as in 10s, or a whole number of requests"),
        ("-1s", "must be at least 0"),
        (2.5, "must be a whole number of requests, or a duration with its unit"),
        (-1, "must be from 0 to 2147483647 requests, not `-1`"),
        (2**31, "must be from 0 to"),
        (True, "must be a whole number"),
        (None, "must be a whole number"),
    ],
)
def test_no_spans(value: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        span(value)

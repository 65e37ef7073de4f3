"""Durations for people, at and around where the unit changes."""

from __future__ import annotations

import pytest

from tgi_bench.report.durations import counted, duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.0 ms"),
        (0.00004, "0.0 ms"),
        (0.0082, "8.2 ms"),
        (0.0999, "99.9 ms"),
        (0.09994, "99.9 ms"),
        (0.09996, "100 ms"),
        (0.5, "500 ms"),
        (0.9994, "999 ms"),
        (0.9999, "1.0 s"),
        (1.0, "1.0 s"),
        (1.44, "1.4 s"),
        (59.4, "59.4 s"),
        (59.5, "1 min 00 s"),
        (60.0, "1 min 00 s"),
        (125.0, "2 min 05 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 00 min"),
        (3600.0, "1 h 00 min"),
        (7325.0, "2 h 02 min"),
        (360_000.0, "100 h 00 min"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_counts() -> None:
    assert [counted(n, "trial") for n in (0, 1, 2)] == ["0 trials", "1 trial", "2 trials"]

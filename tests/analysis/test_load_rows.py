"""Texts of the checks of loads."""

from __future__ import annotations

import pytest

from tgi_bench.kinds.load.figures import time_text


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (0, "0 µs"),
        (15, "0.015 µs"),
        (999, "0.999 µs"),
        (85_700, "85.7 µs"),
        (1.24e6, "1.24 ms"),
        (114e6, "114 ms"),
        (999.7e6, "1 s"),
        (1.14e10, "11.4 s"),
        (123_456e9, "123456 s"),
        (-5e6, "-5 ms"),
    ],
)
def test_a_time_has_a_unit_that_fits(time_ns: float, text: str) -> None:
    assert time_text(time_ns) == text

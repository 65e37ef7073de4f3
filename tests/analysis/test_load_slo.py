from __future__ import annotations

from dataclasses import replace

import pytest

from tests.analysis.load_samples import CLOSED, MS, STAGE, Timing, request
from tgi_bench.kinds.load.summary import summarise_stage
from tgi_bench.trials.load import Slo


def found_of(slo: Slo, ttft_ms: list[int], gaps_ms: list[int]) -> tuple[float | None, bool | None]:
    """Of requests with these TTFTs, each with these gaps."""
    gaps = [gap * MS for gap in gaps_ms]
    seen = [request(i, Timing(i * 10 * MS, ms * MS, gaps)) for i, ms in enumerate(ttft_ms)]
    (found,) = summarise_stage(replace(CLOSED, slos=(slo,)), STAGE, seen).slos_met
    return found


TTFT = Slo("ttft_p99", 50.0 * MS)
ITL = Slo("itl_p99", 50.0 * MS)


@pytest.mark.parametrize(
    ("slo", "ttft_ms", "gaps_ms", "found"),
    [
        (TTFT, [10] * 99 + [50], [], (10 * MS, True)),
        (TTFT, [10] * 98 + [51] * 2, [], (51 * MS, False)),
        # 20 requests tell p95 and no p99: all within is no proof
        (TTFT, [10] * 20, [], (10 * MS, None)),
        (TTFT, [10] * 19 + [51], [], (None, None)),
        (TTFT, [10] * 18 + [51] * 2, [], (51 * MS, False)),  # p95 is 51 ms already
        (TTFT, [51] * 9, [], (None, None)),  # of 9 no p90 is known
        (Slo("ttft_p50", 50.0 * MS), [51] * 9, [], (51 * MS, False)),
        # 1,260 gaps of 20 requests are 20 requests
        (ITL, [10] * 20, [20] * 63, (20 * MS, None)),
        (ITL, [10] * 20, [20] * 62 + [60], (None, None)),
        (ITL, [10] * 100, [20] * 63, (20 * MS, True)),
        (ITL, [10] * 20, [20] * 3 + [60], (60 * MS, False)),
        (Slo("itl_mean", 50.0 * MS), [10], [20], (20 * MS, True)),
        (Slo("itl_max", 50.0 * MS), [10], [60], (60 * MS, False)),
        (ITL, [10] * 20, [], (None, None)),
    ],
)
def test_a_percentile_is_met_by_enough_requests_only(
    slo: Slo, ttft_ms: list[int], gaps_ms: list[int], found: tuple[float | None, bool | None]
) -> None:
    assert found_of(slo, ttft_ms, gaps_ms) == found

"""Count, mean, extremes and percentiles of samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

METHOD = "nearest rank on sorted samples"


@dataclass(frozen=True, slots=True)
class Distribution:
    """Summary of `count` samples, in the samples' unit.

    A percentile is None only where a published report does not give it.
    """

    count: int
    mean: float
    lowest: float
    highest: float
    p50: float | None
    p90: float | None
    p99: float | None


def distribution(samples: Sequence[int | float]) -> Distribution | None:
    """The distribution of the samples; None for no samples."""
    if not samples:
        return None
    ordered = sorted(samples)
    return Distribution(
        count=len(ordered),
        mean=math.fsum(ordered) / len(ordered),
        lowest=ordered[0],
        highest=ordered[-1],
        p50=nearest_rank(ordered, 50),
        p90=nearest_rank(ordered, 90),
        p99=nearest_rank(ordered, 99),
    )


def nearest_rank(ordered: Sequence[int | float], percent: int) -> int | float:
    """The smallest sample that at least `percent` % of the samples do not exceed.

    ordered: ascending, not empty. percent: 1 to 100. With n samples, the ceil(percent/100 n)-th.
    """
    if not ordered or not 1 <= percent <= 100:
        raise ValueError("nearest_rank needs samples and a percent from 1 to 100")
    return ordered[rank(len(ordered), 10 * percent) - 1]


def rank(count: int, per_mille: int) -> int:
    """ceil(per_mille/1000 x count): which of `count` sorted samples the percentile is, from 1."""
    return -(-per_mille * count // 1000)

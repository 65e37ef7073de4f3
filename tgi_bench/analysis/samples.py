"""Count, mean, extremes and percentiles of samples, with their intervals where these are known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

METHOD = "nearest rank on sorted samples"
PER_MILLE = {"p50": 500, "p90": 900, "p95": 950, "p99": 990, "p999": 999}
"""The percentiles by name, in thousandths."""
LEAST_SAMPLES = {"p50": 1, "p90": 10, "p95": 20, "p99": 100, "p999": 1000}
"""With fewer samples a percentile is not given: it would be the highest sample. One that decides
needs as many requests: requests are what is drawn, and the gaps of one resemble each other."""
LEAST_REQUESTS = 10
"""With fewer requests no interval is given: there is too little to draw again from."""


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


@dataclass(frozen=True, slots=True)
class Figure:
    """A value and its 95 % bootstrap confidence interval; None where too few samples give none."""

    value: float
    low: float | None
    high: float | None

    @property
    def half_width(self) -> float | None:
        """Of the interval, as a share of the value: None without one, and of a value of 0."""
        if self.low is None or self.high is None or self.value <= 0:
            return None
        return (self.high - self.low) / 2 / self.value


@dataclass(frozen=True, slots=True)
class LoadDistribution:
    """Of `count` pooled samples in ns, by nearest rank.

    A percentile is None where there are too few samples for it: p90 needs 10, p95 20, p99 100,
    p999 1,000. requests: how many requests the samples come from.
    """

    count: int
    requests: int
    mean: Figure
    p50: Figure
    p90: Figure | None
    p95: Figure | None
    p99: Figure | None
    p999: Figure | None
    highest: float


def statistic_of(distribution: LoadDistribution, statistic: str) -> Figure | None:
    """A distribution's figure by its name; `max` has no interval. None where undefined."""
    match statistic:
        case "mean":
            return distribution.mean
        case "p50":
            return distribution.p50
        case "p90":
            return distribution.p90
        case "p95":
            return distribution.p95
        case "p99":
            return distribution.p99
        case "p999":
            return distribution.p999
        case "max":
            return Figure(distribution.highest, None, None)
    raise ValueError(f"{statistic} is no statistic")

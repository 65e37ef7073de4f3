"""95 % percentile bootstrap intervals of means, nearest-rank percentiles and rates.

What is drawn again is the request, with all of its samples: gaps of one request resemble each
other, and drawing them one by one would give intervals that are too narrow. Cost is bounded
whatever the number of samples: at most MOST_GROUPS groups of neighbouring requests are drawn,
and a resample is kept as the counts of at most some hundred cells of the sorted samples, which
are finest around each percentile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tgi_bench.analysis.samples import (
    LEAST_REQUESTS,
    LEAST_SAMPLES,
    PER_MILLE,
    Figure,
    LoadDistribution,
    rank,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
RESAMPLES = 1000
MOST_GROUPS = 2000
SEED = 20_240_601
_CELLS = 100
"""Cells around each percentile, over _REACH standard errors to each side."""
_REACH = 5.0
_EXACT = 500
"""Up to so many samples each is a cell of its own."""
_TAIL = 0.025
_FLOAT32_EXACT = 2**22
"""Resampled counts stay below 2^24, so that float32 holds them exactly."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Pooled samples in ns. All three arrays have one entry a sample.

    weights: how often a sample counts. owners: the request it is of, 0-based and ascending.
    """

    values_ns: Floats
    weights: Ints
    owners: Ints


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Samples in ascending order; upto: cumulative weights; groups: which are drawn together."""

    values_ns: Floats
    weights: Ints
    upto: Ints
    groups: Ints
    group_count: int
    requests: int

    @property
    def count(self) -> int:
        return int(self.upto[-1])

    def index(self, wanted: int) -> int:
        """Where the sample of that rank, from 1, lies."""
        return int(np.searchsorted(self.upto, wanted))


def load_distribution(samples: Samples) -> LoadDistribution | None:
    """Figures with intervals, by nearest rank over samples as often as they weigh.

    None without a sample.
    """
    if not len(samples.values_ns):
        return None
    ordered = _sorted(samples)
    given = [name for name in PER_MILLE if ordered.count >= LEAST_SAMPLES[name]]
    intervals = _intervals(ordered, given, RESAMPLES)
    points: dict[str, Figure] = {}
    for name in given:
        value = float(ordered.values_ns[ordered.index(rank(ordered.count, PER_MILLE[name]))])
        points[name] = Figure(value, *intervals.of_percentile(name))
    return LoadDistribution(
        count=ordered.count,
        requests=ordered.requests,
        mean=Figure(_mean(ordered), *intervals.mean),
        p50=points["p50"],
        p90=points.get("p90"),
        p95=points.get("p95"),
        p99=points.get("p99"),
        p999=points.get("p999"),
        highest=float(ordered.values_ns[-1]),
    )


def one_figure(samples: Samples, statistic: str, resamples: int) -> Figure | None:
    """The same of "mean" or one percentile only; None where there are too few samples."""
    if not len(samples.values_ns):
        return None
    ordered = _sorted(samples)
    if statistic == "mean":
        return Figure(_mean(ordered), *_intervals(ordered, [], resamples).mean)
    if ordered.count < LEAST_SAMPLES[statistic]:
        return None
    value = float(ordered.values_ns[ordered.index(rank(ordered.count, PER_MILLE[statistic]))])
    intervals = _intervals(ordered, [statistic], resamples)
    return Figure(value, *intervals.of_percentile(statistic))


def total_interval(counts: Sequence[float] | Floats) -> tuple[float, float]:
    """The interval of a sum over equal blocks of time, from the blocks' sums drawn again."""
    blocks = np.asarray(counts, dtype=np.float64)
    drawn = draws(len(blocks), RESAMPLES).astype(np.float64)
    # Loops of einsum, not BLAS: the sum's order is the same on every machine.
    return _between(np.einsum("rb,b->r", drawn, blocks))


@lru_cache(maxsize=4)
def draws(groups: int, resamples: int) -> NDArray[np.float32]:
    """How often each group is drawn in each resample, shape (resamples, groups); the same always.

    Each resample draws `groups` times with replacement.
    """
    drawn = np.random.default_rng(SEED).integers(0, groups, size=(resamples, groups))
    drawn += np.arange(resamples)[:, None] * groups
    counts = np.bincount(drawn.ravel(), minlength=resamples * groups)
    return counts.reshape(resamples, groups).astype(np.float32)


@dataclass(frozen=True, slots=True)
class _Intervals:
    mean: tuple[float | None, float | None]
    percentiles: tuple[tuple[str, tuple[float | None, float | None]], ...]

    def of_percentile(self, name: str) -> tuple[float | None, float | None]:
        return dict(self.percentiles)[name]


def _sorted(samples: Samples) -> _Sorted:
    _, owners = np.unique(samples.owners, return_inverse=True)
    requests = int(owners.max()) + 1
    groups = min(requests, MOST_GROUPS)
    order = np.argsort(samples.values_ns, kind="stable")
    weights = samples.weights[order]
    return _Sorted(
        values_ns=samples.values_ns[order],
        weights=weights,
        upto=np.cumsum(weights),
        groups=(owners * groups // requests)[order],
        group_count=groups,
        requests=requests,
    )


def _mean(ordered: _Sorted) -> float:
    return float(ordered.values_ns @ ordered.weights) / ordered.count


def _intervals(ordered: _Sorted, names: Sequence[str], resamples: int) -> _Intervals:
    """None for both ends below LEAST_REQUESTS, and where the extremes cannot bound a percentile."""
    if ordered.requests < LEAST_REQUESTS:
        return _Intervals((None, None), tuple((name, (None, None)) for name in names))
    errors = {name: _rank_error(ordered, PER_MILLE[name]) for name in names}
    bounded = [name for name in names if _bounded(ordered, PER_MILLE[name], errors[name])]
    drawn = draws(ordered.group_count, resamples)
    found = _resampled_percentiles(ordered, {n: errors[n] for n in bounded}, drawn)
    percentiles = tuple((name, found.get(name, (None, None))) for name in names)
    return _Intervals(_resampled_mean(ordered, drawn), percentiles)


def _rank_error(ordered: _Sorted, per_mille: int) -> float:
    """Standard error of the share of samples up to the percentile, over groups.

    sqrt(sum over groups of (samples up to it - share x samples)^2) / samples.
    """
    share = per_mille / 1000
    until = ordered.index(rank(ordered.count, per_mille)) + 1
    below = _sum_by_group(ordered, until)
    every = _sum_by_group(ordered, len(ordered.weights))
    return float(np.sqrt(np.sum((below - share * every) ** 2))) / ordered.count


def _sum_by_group(ordered: _Sorted, until: int) -> Floats:
    sums = np.bincount(
        ordered.groups[:until],
        weights=ordered.weights[:until].astype(np.float64),
        minlength=ordered.group_count,
    )
    return sums.astype(np.float64)


def _bounded(ordered: _Sorted, per_mille: int, error: float) -> bool:
    """Whether the true percentile lies within the samples at both sides with 97.5 % chance.

    With n samples that do not depend on each other, all lie below it with chance share^n. n is
    what the standard error says: share x (1 - share) / error^2, at most the count.
    """
    share = per_mille / 1000
    count = float(ordered.count)
    if error > 0:
        count = min(count, share * (1 - share) / error**2)
    return bool(max(share, 1 - share) ** count <= _TAIL)


def _resampled_percentiles(
    ordered: _Sorted, errors: dict[str, float], drawn: NDArray[np.float32]
) -> dict[str, tuple[float, float]]:
    if not errors:
        return {}
    ends = _cell_ends(ordered, errors)
    upto = np.cumsum(_drawn_counts(drawn, _cell_counts(ordered, ends), ordered.count), axis=1)
    values = ordered.values_ns[ends]
    found = {}
    for name in errors:
        wanted = np.ceil(PER_MILLE[name] * upto[:, -1] / 1000)
        cells = np.minimum(np.sum(upto < wanted[:, None], axis=1), len(ends) - 1)
        found[name] = _between(values[cells])
    return found


def _drawn_counts(drawn: NDArray[np.float32], held: Floats, count: int) -> Floats:
    """Samples in each cell of each resample, shape (resamples, cells)."""
    if count < _FLOAT32_EXACT:
        return (drawn @ held.astype(np.float32)).astype(np.float64)
    return drawn.astype(np.float64) @ held


def _cell_ends(ordered: _Sorted, errors: dict[str, float]) -> Ints:
    """The last index of each cell; the last cell ends with the last sample."""
    last = len(ordered.values_ns) - 1
    if last < _EXACT:
        return np.arange(last + 1, dtype=np.int64)
    ends = [np.array([0, last], dtype=np.int64)]
    for name, error in errors.items():
        share = PER_MILLE[name] / 1000
        around = np.linspace(share - _REACH * error, share + _REACH * error, _CELLS)
        wanted = np.clip(np.ceil(around * ordered.count), 1, ordered.count)
        ends.append(np.searchsorted(ordered.upto, wanted).astype(np.int64))
    return np.unique(np.concatenate(ends))


def _cell_counts(ordered: _Sorted, ends: Ints) -> Floats:
    """Samples of each group in each cell, shape (groups, cells)."""
    sizes = np.diff(ends, prepend=-1)
    cells = np.repeat(np.arange(len(ends), dtype=np.int64), sizes)
    counts = np.bincount(
        ordered.groups * len(ends) + cells,
        weights=ordered.weights.astype(np.float64),
        minlength=ordered.group_count * len(ends),
    )
    return counts.reshape(ordered.group_count, len(ends)).astype(np.float64)


def _resampled_mean(ordered: _Sorted, drawn: NDArray[np.float32]) -> tuple[float, float]:
    sums = np.bincount(
        ordered.groups,
        weights=ordered.values_ns * ordered.weights,
        minlength=ordered.group_count,
    )
    counts = _sum_by_group(ordered, len(ordered.weights))
    # Two columns by loops of einsum, not BLAS: the sum's order is the same on every machine.
    drawn64 = drawn.astype(np.float64)
    means = np.einsum("rg,g->r", drawn64, sums) / np.einsum("rg,g->r", drawn64, counts)
    return _between(means)


def _between(values: Floats) -> tuple[float, float]:
    """The 2.5 % and the 97.5 % of the resampled values, by nearest rank."""
    ordered = np.sort(values)
    count = len(ordered)
    return float(ordered[rank(count, 25) - 1]), float(ordered[rank(count, 975) - 1])

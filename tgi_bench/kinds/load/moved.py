"""How far a part of every request's time moves the figures that it is in."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from tgi_bench.analysis.samples import LEAST_SAMPLES, PER_MILLE, rank
from tgi_bench.kinds.load.figures import Moved
from tgi_bench.kinds.load.metrics import e2e_ns, send_lag_ns, ttft_ns
from tgi_bench.load_observation import RequestObservation


def moved_by_lag(answered: Sequence[RequestObservation], streamed: bool) -> Moved | None:
    """The figure of TTFT or E2E, which are from intended, that is the furthest from what it is
    from sent; None without a request that was sent."""
    found = []
    for metric, formula in (("ttft", ttft_ns), ("e2e", e2e_ns)):
        if metric == "ttft" and not streamed:
            continue
        pairs = [
            (value, value - lag)
            for seen in answered
            if (value := formula(seen)) is not None and (lag := send_lag_ns(seen)) is not None
        ]
        found += moves(metric, pairs)
    return max(found, key=lambda moved: moved.share, default=None)


def moves(metric: str, pairs: Sequence[tuple[float, float]]) -> list[Moved]:
    """Of (with the part, without it) of each request: each figure with its share that is the
    part's. Percentiles of which there are enough samples, and the mean."""
    if not pairs:
        return []
    whole, without = sorted(value for value, _ in pairs), sorted(value for _, value in pairs)
    figures = [("mean", fmean(whole), fmean(without))]
    for name, per_mille in PER_MILLE.items():
        if len(pairs) >= LEAST_SAMPLES[name]:
            place = rank(len(pairs), per_mille) - 1
            figures.append((name, whole[place], without[place]))
    return [
        Moved(f"{metric}_{name}", abs(value - less) / value)
        for name, value, less in figures
        if value > 0
    ]

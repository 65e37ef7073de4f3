"""Whether one step of a search met its SLOs, or missed one, beyond what chance may have made."""

from __future__ import annotations

import math

from tgi_bench.kinds.load.figures import StageSummary
from tgi_bench.kinds.load.metrics import figure_of
from tgi_bench.kinds.load.search import LEAST_SUCCESS, keeps_up, met
from tgi_bench.load_observation import RequestOutcome
from tgi_bench.trials.load import SUCCESS, LoadTrial, Slo

_Z = 1.959964
"""95 % of a normal distribution lie within so many standard deviations."""


def certainly(trial: LoadTrial, summary: StageSummary) -> bool | None:
    """True: it met every SLO, each metric's whole 95 % interval; False: of one the whole interval
    missed it; None: neither is so.

    Of a success that no SLO names the limit is LEAST_SUCCESS; a rate that the server fell behind
    by more than `keeps_up` allows for chance missed.
    """
    each = [_certainly(slo, value, summary) for slo, (value, _) in _found(trial, summary)]
    if all(slo.metric != SUCCESS for slo in trial.slos):
        good = dict(summary.outcomes).get(RequestOutcome.OK, 0)
        total = sum(count for _, count in summary.outcomes)
        if total and wilson(good, total)[1] < LEAST_SUCCESS:
            return False
    behind = summary.stage.rate_per_s is not None and not keeps_up(summary)
    if behind or False in each:
        return False
    return True if each and all(each) and met(trial, summary) else None


def _found(
    trial: LoadTrial, summary: StageSummary
) -> list[tuple[Slo, tuple[float | None, bool | None]]]:
    return list(zip(trial.slos, summary.slos_met, strict=True))


def _certainly(slo: Slo, value: float | None, summary: StageSummary) -> bool | None:
    """None as well where the metric has no interval: `max`, or too few samples."""
    if slo.metric == SUCCESS:
        if value is None or not summary.requests:
            return None
        low, high = wilson(round(value * summary.requests), summary.requests)
        return True if low >= slo.limit else False if high < slo.limit else None
    figure = figure_of(summary, slo.metric)
    if figure is None or figure.low is None or figure.high is None:
        return None
    return True if figure.high <= slo.limit else False if figure.low > slo.limit else None


def wilson(good: int, total: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of which `good` of `total` were seen (Wilson 1927)."""
    share, square = good / total, _Z**2 / total
    centre = (share + square / 2) / (1 + square)
    half = _Z * math.sqrt(share * (1 - share) / total + square / (4 * total)) / (1 + square)
    return max(0.0, centre - half), min(1.0, centre + half)

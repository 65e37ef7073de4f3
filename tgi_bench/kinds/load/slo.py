"""Whether a load met its SLOs, and whether it has seen enough to say so."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tgi_bench.analysis.bootstrap import one_figure
from tgi_bench.analysis.samples import (
    LEAST_REQUESTS,
    LEAST_SAMPLES,
    PER_MILLE,
    LoadDistribution,
    statistic_of,
)
from tgi_bench.kinds.load.gaps import each_statistic, samples_of, tokens_an_event
from tgi_bench.kinds.load.metrics import GAPS, OF_REQUEST, STREAMED, split_metric
from tgi_bench.load_observation import LoadPart, RequestObservation, RequestOutcome
from tgi_bench.trials.load import SUCCESS, LoadTrial, Slo, Until

RESAMPLES = 200
MOST_REQUESTS = 20_000
MOST_EVENTS = 100_000


def narrow_enough(until: Until, trial: LoadTrial, requests: Sequence[RequestObservation]) -> bool:
    """Whether the metric's 95 % interval is within ±share of its value.

    requests: all that ended so far; the measured ones that ended well are looked at. False with
    fewer of them than LEAST_REQUESTS or than the percentile needs, where it has no interval (`max`
    never has), where it cannot be measured, and where the value is 0. Of many requests, evenly
    spaced ones stand for all, and their interval is narrowed by sqrt(taken / all).
    """
    metric, statistic = split_metric(until.metric)
    if statistic == "max" or (metric in STREAMED and not trial.stream):
        return False
    known = [
        seen
        for seen in requests
        if seen.part is LoadPart.MEASURED and seen.outcome is RequestOutcome.OK
    ]
    if len(known) < max(LEAST_REQUESTS, LEAST_SAMPLES.get(statistic, 1)):
        return False
    if tokens_an_event(metric, known) is not None:
        return False
    taken = _thinned(known, metric)
    figure = one_figure(samples_of(metric, taken), statistic, RESAMPLES)
    if figure is None or figure.low is None or figure.high is None or figure.value <= 0:
        return False
    narrowing = math.sqrt(len(taken) / len(known))
    off = max(figure.high - figure.value, figure.value - figure.low)
    return off * narrowing <= until.share * figure.value


def _thinned(known: Sequence[RequestObservation], metric: str) -> Sequence[RequestObservation]:
    """Evenly spaced ones: at most MOST_REQUESTS, and of gaps about MOST_EVENTS events."""
    most = MOST_REQUESTS
    if metric in GAPS:
        events = sum(len(seen.event_ns) for seen in known)
        most = min(most, len(known) * MOST_EVENTS // max(events, 1))
    most = max(most, LEAST_REQUESTS)
    if len(known) <= most:
        return known
    return [known[i * len(known) // most] for i in range(most)]


Metrics = Mapping[str, LoadDistribution | None]


def check_slos(
    slos: Sequence[Slo], figures: Metrics, success: float | None
) -> tuple[tuple[float | None, bool | None], ...]:
    """Of each SLO what was found and whether it was met; None, None where it is undefined.

    A percentile of fewer requests than LEAST_SAMPLES, of which a gap is no other sample, is known
    to be missed where a lower one of enough requests is beyond the limit already; it is never
    known to be met: (the highest sample, None) where even that is within the limit. success: share
    of the requests that ended well.
    """
    return tuple(_check(slo, figures, success) for slo in slos)


def _check(slo: Slo, figures: Metrics, success: float | None) -> tuple[float | None, bool | None]:
    if slo.metric == SUCCESS:
        return (success, None if success is None else success >= slo.limit)
    metric, statistic = split_metric(slo.metric)
    distribution = figures.get(metric)
    if distribution is None:
        return None, None
    figure = statistic_of(distribution, statistic)
    if figure is not None and distribution.requests >= LEAST_SAMPLES.get(statistic, 1):
        return figure.value, figure.value <= slo.limit
    if any(value > slo.limit for value in _known_below(distribution, statistic)):
        return distribution.highest, False
    return (distribution.highest, None) if distribution.highest <= slo.limit else (None, None)


def _known_below(distribution: LoadDistribution, statistic: str) -> list[float]:
    """Percentiles below the one that statistic names, of those that there are requests for."""
    known = [
        statistic_of(distribution, name)
        for name, per_mille in PER_MILLE.items()
        if per_mille < PER_MILLE[statistic]
        and distribution.requests >= max(LEAST_REQUESTS, LEAST_SAMPLES[name])
    ]
    return [figure.value for figure in known if figure is not None]


def met_each(trial: LoadTrial, answered: Sequence[RequestObservation]) -> NDArray[np.bool_] | None:
    """Which of the requests that ended well met every latency SLO by themselves.

    A single-valued metric's own value is compared whatever the statistic; of itl and event_gap
    the request's own statistic. A request without a second token meets those and tpot; one
    without any token does not meet ttft. None without SLOs, and where the answers were not
    streamed and an SLO is on what only a stream has, or on what cannot be measured.
    """
    if not trial.slos:
        return None
    met = np.ones(len(answered), dtype=np.bool_)
    for slo in trial.slos:
        if slo.metric == SUCCESS:
            continue
        metric, statistic = split_metric(slo.metric)
        if metric in STREAMED and not trial.stream:
            return None
        if tokens_an_event(metric, answered) is not None:
            return None
        met &= _met(metric, statistic, slo.limit, answered)
    return met


def _met(
    metric: str, statistic: str, limit: float, answered: Sequence[RequestObservation]
) -> NDArray[np.bool_]:
    if metric in GAPS:
        values = each_statistic(samples_of(metric, answered), statistic, len(answered))
    else:
        formula = OF_REQUEST[metric]
        found = [formula(seen) for seen in answered]
        values = np.array([np.nan if v is None else v for v in found], dtype=np.float64)
    undefined_is_met = metric in (*GAPS, "tpot")
    return np.where(np.isnan(values), undefined_is_met, values <= limit)

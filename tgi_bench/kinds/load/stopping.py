"""Whether a load has seen enough: the interval of one metric is as narrow as asked."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tgi_bench.analysis.bootstrap import one_figure
from tgi_bench.analysis.samples import LEAST_REQUESTS, LEAST_SAMPLES
from tgi_bench.kinds.load.gaps import samples_of, tokens_an_event
from tgi_bench.kinds.load.metrics import GAPS, STREAMED, split_metric
from tgi_bench.load_observation import LoadPart, RequestObservation, RequestOutcome
from tgi_bench.trials.load import LoadTrial, Until

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

"""Samples pooled over requests, each with its owner: gaps between events, and single values."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from tgi_bench.analysis.bootstrap import Floats, Ints, Samples
from tgi_bench.analysis.samples import PER_MILLE
from tgi_bench.kinds.load.metrics import GAPS, OF_REQUEST
from tgi_bench.load_observation import RequestObservation

MOST_SPREAD = 0.01
MOST_OFF = 0.05


def samples_of(metric: str, requests: Sequence[RequestObservation]) -> Samples:
    """The samples of one of trials.load.METRICS; owners are indexes of `requests`."""
    if metric in GAPS:
        return _gap_samples(metric, requests)
    formula = OF_REQUEST[metric]
    known = [(i, value) for i, seen in enumerate(requests) if (value := formula(seen)) is not None]
    return Samples(
        np.array([value for _, value in known], dtype=np.float64),
        np.ones(len(known), dtype=np.int64),
        np.array([i for i, _ in known], dtype=np.int64),
    )


def tokens_an_event(metric: str, requests: Sequence[RequestObservation]) -> float | None:
    """Mean tokens of an event, where the metric cannot be measured for that; None where it can.

    Only where how many tokens each event carries is not what the server said of them. An ITL cannot
    where more than MOST_SPREAD of all events carry several: an even share of the gap before them
    would be invented. A TPOT cannot where so many tokens are in nobody knows which events that it
    would be off by more than MOST_OFF if all of them had come with the first, before its time.
    """
    untold = [seen for seen in requests if not seen.tokens_told and len(seen.event_tokens) > 1]
    if metric == "itl":
        spread = sum(1 for seen in untold for count in seen.event_tokens if count > 1)
        unknown = spread > MOST_SPREAD * sum(len(seen.event_tokens) for seen in requests)
    else:
        # One more than events is the end's, which has no text.
        more = sum(max(0, seen.output_tokens - len(seen.event_tokens) - 1) for seen in untold)
        later = sum(seen.output_tokens - 1 for seen in requests if len(seen.event_tokens) > 1)
        unknown = metric == "tpot" and more > MOST_OFF * later
    if not unknown:
        return None
    events = sum(len(seen.event_tokens) for seen in requests)
    return sum(seen.output_tokens for seen in requests) / events


def _gap_samples(metric: str, requests: Sequence[RequestObservation]) -> Samples:
    """event_gap: each counts once. itl: gap / tokens of the later event, counted for each."""
    times, tokens = arrivals(requests)
    lengths = np.array([len(seen.event_ns) for seen in requests], dtype=np.int64)
    owners = np.repeat(np.arange(len(requests), dtype=np.int64), lengths)
    inside = owners[1:] == owners[:-1]
    gaps = np.diff(times)[inside].astype(np.float64)
    owners = owners[1:][inside]
    if metric == "event_gap":
        return Samples(gaps, np.ones(len(gaps), dtype=np.int64), owners)
    weights = tokens[1:][inside]
    return Samples(gaps / weights, weights, owners)


def arrivals(requests: Sequence[RequestObservation]) -> tuple[Ints, Ints]:
    """Arrival (ns) and tokens of every event of the requests, one request after another."""
    times, tokens = array("q"), array("i")
    for seen in requests:
        times.extend(seen.event_ns)
        tokens.extend(seen.event_tokens)
    return np.array(times, dtype=np.int64), np.array(tokens, dtype=np.int64)


def each_statistic(samples: Samples, statistic: str, requests: int) -> Floats:
    """The statistic of each request's own samples, in ns; NaN where it has none.

    statistic: one of trials.load.STATISTICS; percentiles by nearest rank, however few.
    """
    figures = np.full(requests, np.nan)
    if not len(samples.values_ns):
        return figures
    owners, begins = np.unique(samples.owners, return_index=True)
    if statistic == "mean":
        sums = np.add.reduceat(samples.values_ns * samples.weights, begins)
        figures[owners] = sums / np.add.reduceat(samples.weights, begins)
    elif statistic == "max":
        figures[owners] = np.maximum.reduceat(samples.values_ns, begins)
    else:
        order = np.lexsort((samples.values_ns, samples.owners))
        counts = np.add.reduceat(samples.weights, begins)
        ends = np.cumsum(samples.weights[order])
        wanted = np.cumsum(counts) - counts + -(-PER_MILLE[statistic] * counts // 1000)
        figures[owners] = samples.values_ns[order][np.searchsorted(ends, wanted)]
    return figures

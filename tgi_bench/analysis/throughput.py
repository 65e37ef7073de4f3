"""Rates over a window, with intervals from blocks of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from tgi_bench.analysis.bootstrap import total_interval
from tgi_bench.analysis.gaps import Ints, arrivals
from tgi_bench.analysis.load_metrics import LEAST_REQUESTS, NS_PER_S
from tgi_bench.analysis.load_run import Figure, Window
from tgi_bench.analysis.load_slo import met_each
from tgi_bench.analysis.window import in_window
from tgi_bench.observation import RequestObservation, RequestOutcome
from tgi_bench.plan.load_trial import LoadTrial

LEAST_BLOCKS = 10
MOST_BLOCKS = 50


@dataclass(frozen=True, slots=True)
class Throughput:
    """Rates of a window, per second; None where the window is empty or a rate is undefined."""

    requests_per_s: Figure | None
    output_tokens_per_s: Figure | None
    total_tokens_per_s: Figure | None
    goodput_per_s: Figure | None


def throughput(
    trial: LoadTrial, window: Window, requests: Sequence[RequestObservation]
) -> Throughput:
    """requests: of every part of the stage, for what arrives in the window may be of any.

    Answers count that ended well in the window; tokens count that arrived in it, whatever became
    of their request.
    """
    answered = [
        seen
        for seen in requests
        if seen.outcome is RequestOutcome.OK and in_window(seen.ended_ns, window)
    ]
    blocks = _Blocks(window, _block_count(window, answered))
    ended = np.array([seen.ended_ns for seen in answered], dtype=np.int64)
    answers = blocks.counts(ended, np.ones(len(answered), dtype=np.int64))
    times, tokens = arrivals(requests)
    inside = (times >= window.begin_ns) & (times <= window.end_ns)
    arrived = blocks.counts(times[inside], tokens[inside])
    prompts = [seen.prompt_tokens for seen in answered]
    total: Figure | None = None
    if any(count is not None for count in prompts):
        known = np.array([count or 0 for count in prompts], dtype=np.int64)
        total = blocks.per_s(arrived + blocks.counts(ended, known), len(answered))
    return Throughput(
        requests_per_s=blocks.per_s(answers, len(answered)),
        output_tokens_per_s=blocks.per_s(arrived, len(answered)),
        total_tokens_per_s=total,
        goodput_per_s=_goodput(blocks, ended, met_each(trial, answered)),
    )


def _goodput(blocks: _Blocks, ended: Ints, met: NDArray[np.bool_] | None) -> Figure | None:
    if met is None:
        return None
    return blocks.per_s(blocks.counts(ended, met.astype(np.int64)), len(ended))


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Equal parts of a window.

    Blocks of time and not requests are drawn again: how many requests end in a window is what a
    rate is about, and drawing as many requests again would never change it.
    """

    window: Window
    count: int

    def counts(self, times_ns: Ints, amounts: Ints) -> Ints:
        """The sum of the amounts in each block; one sum where the window is empty."""
        span = self.window.end_ns - self.window.begin_ns
        if span <= 0:
            return np.array([np.sum(amounts)], dtype=np.int64)
        places = np.minimum((times_ns - self.window.begin_ns) * self.count // span, self.count - 1)
        sums = np.bincount(places, weights=amounts.astype(np.float64), minlength=self.count)
        return np.rint(sums).astype(np.int64)

    def per_s(self, counts: Ints, answers: int) -> Figure | None:
        """None for an empty window; no interval below LEAST_REQUESTS answers."""
        span = self.window.end_ns - self.window.begin_ns
        if span <= 0:
            return None
        scale = NS_PER_S / span
        value = float(np.sum(counts)) * scale
        if answers < LEAST_REQUESTS:
            return Figure(value, None, None)
        low, high = total_interval(counts)
        return Figure(value, low * scale, high * scale)


def _block_count(window: Window, answered: Sequence[RequestObservation]) -> int:
    """Blocks no shorter than the median service time, but at least LEAST_BLOCKS.

    What happens in one answer's time is one thing: shorter blocks would depend on each other.
    """
    times = [seen.ended_ns - seen.sent_ns for seen in answered if seen.sent_ns is not None]
    typical = median(times) if times else 0
    span = window.end_ns - window.begin_ns
    if typical <= 0:
        return MOST_BLOCKS
    return int(min(MOST_BLOCKS, max(LEAST_BLOCKS, span // typical)))

"""Rates over a window, with intervals from blocks of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from tgi_bench.analysis.bootstrap import Floats, Ints, total_interval
from tgi_bench.analysis.samples import LEAST_REQUESTS, Figure
from tgi_bench.kinds.load.figures import Window
from tgi_bench.kinds.load.gaps import arrivals
from tgi_bench.kinds.load.metrics import NS_PER_S
from tgi_bench.kinds.load.slo import met_each
from tgi_bench.load_observation import RequestObservation, RequestOutcome
from tgi_bench.trials.load import LoadTrial

LEAST_BLOCKS = 10
MOST_BLOCKS = 50
BLOCK_ANSWERS = 2
"""Service times that a block holds at least: an answer that two blocks share joins them."""
_POINT_NS = 1e-3
"""Less than any span has: of one without length all lies at its end."""


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

    An answer that ended well counts by the share of its time, from sent to ended, that lies in
    the window: whole answers would make the rate a multiple of 1 / window, and of the few that
    its ends cut through an accident. Tokens count that arrived in it, whatever became of their
    request.
    """
    answered = [
        seen for seen in requests if seen.outcome is RequestOutcome.OK and _touches(seen, window)
    ]
    blocks = _Blocks(window, _block_count(window, answered))
    spans = np.array([(_sent_ns(seen), seen.ended_ns) for seen in answered], dtype=np.int64)
    spans = spans.reshape(-1, 2)
    ones = np.ones(len(answered), dtype=np.float64)
    times, tokens = arrivals(requests)
    inside = (times >= window.begin_ns) & (times <= window.end_ns)
    arrived = blocks.counts(times[inside], tokens[inside])
    prompts = [seen.prompt_tokens for seen in answered]
    total: Figure | None = None
    if any(count is not None for count in prompts):
        known = np.array([count or 0 for count in prompts], dtype=np.float64)
        total = blocks.per_s(arrived + blocks.shares(spans, known), len(answered))
    return Throughput(
        requests_per_s=blocks.per_s(blocks.shares(spans, ones), len(answered)),
        output_tokens_per_s=blocks.per_s(arrived, len(answered)),
        total_tokens_per_s=total,
        goodput_per_s=_goodput(blocks, spans, met_each(trial, answered)),
    )


def _sent_ns(seen: RequestObservation) -> int:
    return seen.ended_ns if seen.sent_ns is None else seen.sent_ns


def _touches(seen: RequestObservation, window: Window) -> bool:
    """Whether some of its time lies in the window."""
    return _sent_ns(seen) <= window.end_ns and seen.ended_ns >= window.begin_ns


def _goodput(blocks: _Blocks, spans: Ints, met: NDArray[np.bool_] | None) -> Figure | None:
    if met is None:
        return None
    return blocks.per_s(blocks.shares(spans, met.astype(np.float64)), len(spans))


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Equal parts of a window.

    Blocks of time and not requests are drawn again: how many requests end in a window is what a
    rate is about, and drawing as many requests again would never change it.
    """

    window: Window
    count: int

    def counts(self, times_ns: Ints, amounts: Ints) -> Floats:
        """The sum of the amounts in each block; one sum where the window is empty."""
        span = self.window.end_ns - self.window.begin_ns
        if span <= 0:
            return np.array([np.sum(amounts)], dtype=np.float64)
        places = np.minimum((times_ns - self.window.begin_ns) * self.count // span, self.count - 1)
        sums = np.bincount(places, weights=amounts.astype(np.float64), minlength=self.count)
        return sums.astype(np.float64)

    def shares(self, spans: Ints, amounts: Floats) -> Floats:
        """Each amount spread evenly over its span: the sum in each block, shape (count,).

        spans: begin and end in ns, shape (n, 2); one without length counts where it ends. One sum
        where the window is empty.
        """
        span = self.window.end_ns - self.window.begin_ns
        if span <= 0:
            return np.array([np.sum(amounts)], dtype=np.float64)
        begins = (spans[:, 0] - self.window.begin_ns).astype(np.float64)
        ends = (spans[:, 1] - self.window.begin_ns).astype(np.float64)
        lengths = np.maximum(ends - begins, _POINT_NS)
        upto = [
            float(np.clip((edge - ends + lengths) / lengths, 0.0, 1.0) @ amounts)
            for edge in np.linspace(0.0, float(span), self.count + 1)
        ]
        return np.diff(np.array(upto, dtype=np.float64))

    def per_s(self, counts: Floats, answers: int) -> Figure | None:
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
    """Blocks no shorter than BLOCK_ANSWERS median service times, but at least LEAST_BLOCKS.

    What happens in one answer's time is one thing: shorter blocks would depend on each other.
    """
    times = [seen.ended_ns - seen.sent_ns for seen in answered if seen.sent_ns is not None]
    typical = median(times) if times else 0
    span = window.end_ns - window.begin_ns
    if typical <= 0:
        return MOST_BLOCKS
    return int(min(MOST_BLOCKS, max(LEAST_BLOCKS, span // (BLOCK_ANSWERS * typical))))

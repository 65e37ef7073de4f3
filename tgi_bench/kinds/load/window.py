"""The part of a load that figures are of, and rates over it with intervals from blocks of it.

Warm-up and cool-down are never part of it: a steady window lies within the planned one.
"""

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
from tgi_bench.kinds.load.metrics import NS_PER_S, closed_loop, constant_rate, e2e_ns
from tgi_bench.kinds.load.slo import met_each
from tgi_bench.load_observation import LoadPart, LoadStage, RequestObservation, RequestOutcome
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


STEADY_SHARE = 0.95
"""Of the median in flight: what a closed loop must hold."""
LEAST_SHARE = 0.5
"""Of the planned window: with less the steady one is not used."""
_BATCH = 5
_LEAST_BATCHES = 10


@dataclass(frozen=True, slots=True)
class _Levels:
    """Requests in flight as steps: level_i holds from begins_i to ends_i (ns)."""

    begins_ns: Ints
    ends_ns: Ints
    levels: Ints


def in_window(time_ns: int, window: Window) -> bool:
    """Whether the time lies in it, both ends included."""
    return window.begin_ns <= time_ns <= window.end_ns


def find_window(
    trial: LoadTrial, stage: LoadStage, requests: Sequence[RequestObservation]
) -> Window:
    """The steady window of a stage's requests, or the planned one where none is found.

    Closed loop: from the first to the last time at which requests in flight are at least
    STEADY_SHARE of their time-weighted median. Open loop at one rate: without what MSER-5
    (White 1997) cuts off the beginning of the E2E in order of intended time. Ramps, steps and
    traces have no steady state. What is shorter than LEAST_SHARE of the planned window is not
    used.
    """
    planned = Window(stage.measured_from_ns, stage.measured_until_ns, False)
    if closed_loop(trial):
        found = _held_level(planned, requests)
    elif constant_rate(trial):
        found = _after_transient(planned, requests)
    else:
        return planned
    span = planned.end_ns - planned.begin_ns
    if found is None or found.end_ns - found.begin_ns < LEAST_SHARE * span:
        return planned
    return found


def mean_in_flight(window: Window, requests: Sequence[RequestObservation]) -> float | None:
    """Integral of requests in flight over the window / its length; None where it has none."""
    span = window.end_ns - window.begin_ns
    if span <= 0:
        return None
    begins, ends = _times(window, requests)
    return float(np.sum(ends - begins)) / span


def _times(window: Window, requests: Sequence[RequestObservation]) -> tuple[Ints, Ints]:
    """sent and ended of each request that was in flight in the window, clipped to it."""
    sent = [(r.sent_ns, r.ended_ns) for r in requests if r.sent_ns is not None]
    times = np.array(sent, dtype=np.int64).reshape(-1, 2)
    begins = np.maximum(times[:, 0], window.begin_ns)
    ends = np.minimum(times[:, 1], window.end_ns)
    inside = begins < ends
    return begins[inside], ends[inside]


def _steps(window: Window, requests: Sequence[RequestObservation]) -> _Levels:
    begins, ends = _times(window, requests)
    edges = np.array([window.begin_ns, window.end_ns], dtype=np.int64)
    times = np.concatenate([begins, ends, edges])
    changes = np.repeat(np.array([1, -1, 0]), [len(begins), len(ends), 2])
    order = np.argsort(times, kind="stable")
    times, changes = times[order], changes[order]
    levels = np.cumsum(changes)[:-1]
    lasting = np.diff(times) > 0
    return _Levels(times[:-1][lasting], times[1:][lasting], levels[lasting])


def _held_level(planned: Window, requests: Sequence[RequestObservation]) -> Window | None:
    steps = _steps(planned, requests)
    if not len(steps.levels):
        return None
    lengths = steps.ends_ns - steps.begins_ns
    order = np.argsort(steps.levels, kind="stable")
    upto = np.cumsum(lengths[order])
    median = steps.levels[order][np.searchsorted(upto, upto[-1] / 2)]
    held = np.flatnonzero(steps.levels >= STEADY_SHARE * median)
    if median <= 0:
        return None
    return Window(int(steps.begins_ns[held[0]]), int(steps.ends_ns[held[-1]]), True)


def _after_transient(planned: Window, requests: Sequence[RequestObservation]) -> Window | None:
    """None where there are too few requests, or no end of the transient is found."""
    known = sorted(
        (r.intended_ns, value)
        for r in requests
        if r.part is LoadPart.MEASURED
        and r.outcome is RequestOutcome.OK
        and in_window(r.intended_ns, planned)
        and (value := e2e_ns(r)) is not None
    )
    if len(known) < _BATCH * _LEAST_BATCHES:
        return None
    cut = mser_cut(np.array([value for _, value in known], dtype=np.float64))
    if cut is None:
        return None
    begin = planned.begin_ns if cut == 0 else known[cut][0]
    return Window(begin, planned.end_ns, True)


def mser_cut(series: Floats) -> int | None:
    """How many of the first samples MSER-5 cuts off; None where it would cut more than half.

    Over means of batches of 5: the cut d that makes sum((Z_i - mean of the rest)^2) / (n - d)^2
    the least, of the first of equals.
    """
    batches = len(series) // _BATCH
    if batches < 2:
        return None
    means = series[: batches * _BATCH].reshape(batches, _BATCH).mean(axis=1)
    means = means - means.mean()
    left = np.arange(batches, 0, -1)
    sums = np.cumsum(means[::-1])[::-1]
    squares = np.cumsum(means[::-1] ** 2)[::-1]
    errors = np.maximum(squares - sums**2 / left, 0.0) / left**2
    # The last batches' spread is over too few to compare with.
    cut = int(np.argmin(errors[: max(1, batches - _BATCH)]))
    return None if 2 * cut > batches else cut * _BATCH

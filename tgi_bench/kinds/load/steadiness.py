"""Whether the parts of a window are alike: its halves, its middle, its begin; and where it stood.

A figure of a load is of its whole window. Where a part of that differs from the rest, it is of
neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import numpy as np
from numpy.typing import NDArray

from tgi_bench.analysis.bootstrap import Floats, Ints
from tgi_bench.analysis.samples import rank
from tgi_bench.kinds.load.figures import Begin, Part, Shift, Silences, Steadiness, Window
from tgi_bench.kinds.load.gaps import arrivals
from tgi_bench.kinds.load.lengths import ranks
from tgi_bench.kinds.load.metrics import OF_REQUEST
from tgi_bench.load_observation import RequestObservation

LEAST_IN_PART = 10
LEAST_FIRST = 5
"""Requests that are the first ones where a tenth of them is fewer."""
LEAST_LATER = 20
"""Requests of the second half that their p90 is taken from."""
SILENT_GAPS = 20
"""Median gaps that a silence lasts at least."""
SILENT_SHARE = 0.25
"""Of the median time from sent to ended: a silence of that length is in the E2E of all it holds."""
PREFILLS = 5
"""A silence that a first token ends is a prefill's, up to so many times the p90 of service TTFT."""
_SHIFTING = ("ttft", "tpot", "e2e")

Requests = Sequence[RequestObservation]


def steadiness(window: Window, answered: Requests, requests: Requests) -> Steadiness:
    """answered: those that the figures are of; requests: all of the stage."""
    shifts = tuple(
        Shift(metric, part, share, deviations)
        for metric in _SHIFTING
        for part, share, deviations in _shifts(OF_REQUEST[metric], window, answered)
    )
    return Steadiness(shifts, _begin(window, answered), _silences(window, answered, requests))


def _shifts(
    formula: Callable[[RequestObservation], float | None], window: Window, answered: Requests
) -> list[tuple[Part, float, float]]:
    """(part, share, deviations) of each part with enough requests in it and outside."""
    known = [(r.intended_ns, v) for r in answered if (v := formula(r)) is not None]
    times = np.array([at for at, _ in known], dtype=np.int64)
    values = np.array([value for _, value in known], dtype=np.float64)
    span = window.end_ns - window.begin_ns
    third, two_thirds = window.begin_ns + span // 3, window.begin_ns + 2 * span // 3
    within = {
        Part.SECOND_HALF: times >= window.begin_ns + span // 2,
        Part.MIDDLE: (times >= third) & (times < two_thirds),
    }
    found = []
    for part, inside in within.items():
        if min(inside.sum(), (~inside).sum()) < LEAST_IN_PART or median(values[~inside]) <= 0:
            continue
        share = median(values[inside]) / median(values[~inside]) - 1
        found.append((part, float(share), _rank_sum(values, inside)))
    return found


def _rank_sum(values: Floats, inside: NDArray[np.bool_]) -> float:
    """How many standard deviations the sum of the ranks inside is above what it is by chance
    where both are of one distribution (Wilcoxon 1945, Mann and Whitney 1947)."""
    count, total = int(inside.sum()), len(values)
    expected = count * (total + 1) / 2
    deviation = np.sqrt(count * (total - count) * (total + 1) / 12)
    return float((ranks(values)[inside].sum() - expected) / deviation)


def _begin(window: Window, answered: Requests) -> Begin | None:
    """None where the second half has too few requests to tell how fast later ones are."""
    formula = OF_REQUEST["ttft"]
    ordered = sorted(answered, key=lambda seen: (seen.intended_ns, seen.request_index))
    known = [(r.intended_ns, v) for r in ordered if (v := formula(r)) is not None]
    middle = window.begin_ns + (window.end_ns - window.begin_ns) // 2
    first = [value for _, value in known[: max(LEAST_FIRST, len(known) // 10)]]
    later = sorted(value for at, value in known if at >= middle)
    if len(later) < LEAST_LATER:
        return None
    return Begin(median(first), later[rank(len(later), 900) - 1])


def _silences(window: Window, answered: Requests, requests: Requests) -> Silences | None:
    """None where no two tokens of a stage came one after the other, and nothing was answered."""
    streamed = [seen for seen in requests if seen.event_ns]
    times, _ = arrivals(streamed)
    served = [seen.ended_ns - seen.sent_ns for seen in answered if seen.sent_ns is not None]
    gaps = np.concatenate([np.diff(seen.event_ns) for seen in answered] or [times[:0]])
    if not len(gaps) or not served:
        return None
    ordered: Ints = np.unique(times)
    begins, ends = ordered[:-1], ordered[1:]
    held = _streaming(streamed, begins)
    gap = float(np.median(gaps))
    first = _ended_by_a_first_token(streamed, ends, gap)
    limit = max(SILENT_GAPS * gap, SILENT_SHARE * median(served))
    limits: Floats = np.where(first, max(limit, PREFILLS * _p90_of_service_ttft(answered)), limit)
    inside = (begins >= window.begin_ns) & (ends <= window.end_ns) & (held >= 2)
    silent = inside & (ends - begins > limits)
    lengths = (ends - begins)[silent]
    return Silences(
        count=len(lengths),
        longest_ns=int(lengths.max(initial=0)),
        total_ns=int(lengths.sum()),
        held=_held_up(answered, begins[silent]),
        limit_ns=limit,
    )


def _streaming(streamed: Requests, at_ns: Ints) -> Ints:
    """At each time the requests between their first token and their last."""
    begun = np.sort(np.array([seen.event_ns[0] for seen in streamed], dtype=np.int64))
    ended = np.sort(np.array([seen.event_ns[-1] for seen in streamed], dtype=np.int64))
    counts: Ints = np.searchsorted(begun, at_ns, side="right") - np.searchsorted(
        ended, at_ns, side="right"
    )
    return counts


def _held_up(answered: Requests, silent_ns: Ints) -> int:
    """Requests within whose tokens one silence or more began; each counts once."""
    bounds = [(seen.event_ns[0], seen.event_ns[-1]) for seen in answered if seen.event_ns]
    firsts, lasts = np.array(bounds, dtype=np.int64).reshape(-1, 2).T
    return int((np.searchsorted(silent_ns, firsts) < np.searchsorted(silent_ns, lasts)).sum())


def _ended_by_a_first_token(streamed: Requests, ends_ns: Ints, gap_ns: float) -> NDArray[np.bool_]:
    """Whether the first token of some request came then, or within a gap of it."""
    firsts = np.sort(np.array([seen.event_ns[0] for seen in streamed], dtype=np.int64))
    places = np.searchsorted(firsts, ends_ns, side="left")
    following = np.append(firsts, np.iinfo(np.int64).max)[places]
    found: NDArray[np.bool_] = following - ends_ns <= gap_ns
    return found


def _p90_of_service_ttft(answered: Requests) -> float:
    formula = OF_REQUEST["service_ttft"]
    values = sorted(value for seen in answered if (value := formula(seen)) is not None)
    return values[rank(len(values), 900) - 1] if values else 0.0

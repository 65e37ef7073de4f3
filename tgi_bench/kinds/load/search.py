"""The highest load that meets its SLOs: what to try next, and how sure a step's result is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tgi_bench.kinds.load.figures import SearchAnswer, StageSummary
from tgi_bench.kinds.load.metrics import figure_of
from tgi_bench.load_observation import RequestOutcome
from tgi_bench.trials.load import SUCCESS, Find, LoadTrial, Slo, Sought

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


LEAST_SUCCESS = 0.99
"""Share of requests that must end well where no SLO says it."""
LEAST_ANSWERED = 0.95
"""Of the requests sent in a window so many must be answered in it: else a queue grows."""


@dataclass(frozen=True, slots=True)
class SearchStep:
    """One value as tried once. met: whether it met every SLO.

    sure: True, False: it met or missed them by more than chance; None: neither.
    """

    value: float
    met: bool
    sure: bool | None = None


def next_probe(find: Find, probes: Sequence[SearchStep]) -> float | SearchAnswer:
    """The value to try next (again, where a majority is still open), or what was found.

    From start the value is doubled while the SLOs are met, or halved while they are not, within
    lowest..highest; then the bracket is bisected, by its geometric middle for a rate and by
    whole numbers for a concurrency, until it is no wider than tolerance x its upper end. Each
    value is tried until a majority of `repeats` is certain, never more often; a tie is not met.
    Probes of values that the search does not come by are left alone.

    Then the bracket's two values, and those that the interval ends at, are tried until each has
    been so `repeats` times: other prompts and arrivals may say otherwise of them.
    """
    low: float | None = None
    high: float | None = None
    value = _clamped(find, find.start)
    while True:
        met = _majority(find, [probe.met for probe in probes if probe.value == value])
        if met is None:
            return value
        low, high = (value, high) if met else (low, value)
        following = _following(find, low, high)
        if following is None:
            again = _too_few(find, probes, (low, high, *_sure(probes)))
            return SearchAnswer(low, low, high, True) if again is None else again
        value = following


def _too_few(
    find: Find, probes: Sequence[SearchStep], values: Sequence[float | None]
) -> float | None:
    """The first of them that was tried less often than `repeats`; None where none was."""
    for value in values:
        if value is not None and sum(p.value == value for p in probes) < find.repeats:
            return value
    return None


def found_so_far(find: Find, probes: Sequence[SearchStep]) -> SearchAnswer:
    """The answer of a finished search, or the bracket that a search was cut off in: there a value
    counts by most of its tries so far, as the interval does; a tie is not met."""
    found = _bracket(find, probes)
    low, high = _sure(probes)
    return replace(
        found,
        sure_low=low,
        sure_high=high,
        met_in=_how_often(probes, found.value, met=True),
        missed_in=_how_often(probes, found.high, met=False),
        contradiction=_contradiction(probes),
    )


def _bracket(find: Find, probes: Sequence[SearchStep]) -> SearchAnswer:
    outcome = next_probe(find, probes)
    if isinstance(outcome, SearchAnswer):
        return outcome
    decided = {}
    for value in {probe.value for probe in probes}:
        tries = [probe.met for probe in probes if probe.value == value]
        most = _majority(find, tries)  # None where the search was cut off between its repeats
        decided[value] = 2 * sum(tries) > len(tries) if most is None else most
    low = max((value for value, met in decided.items() if met), default=None)
    unmet = [v for v, met in decided.items() if not met and (low is None or v > low)]
    return SearchAnswer(low, low, min(unmet, default=None), False)


def _sure(probes: Sequence[SearchStep]) -> tuple[float | None, float | None]:
    """The interval's ends: where values contradict each other it holds all that do."""
    by_value: dict[float, set[bool | None]] = {}
    for probe in probes:
        by_value.setdefault(probe.value, set()).add(probe.sure)
    good = [value for value, sure in by_value.items() if sure == {True}]
    bad = [value for value, sure in by_value.items() if sure == {False}]
    low = max((v for v in good if v < min(bad, default=math.inf)), default=None)
    high = min((v for v in bad if v > max(good, default=-math.inf)), default=None)
    return low, high


def _contradiction(probes: Sequence[SearchStep]) -> tuple[float, float] | None:
    """A value at which a try was surely missed, and a higher one at which a try was surely met; of
    several the furthest apart. Two tries at one value near the true one may do so by chance."""
    missed = min((p.value for p in probes if p.sure is False), default=None)
    met = max((p.value for p in probes if p.sure is True), default=None)
    return (missed, met) if missed is not None and met is not None and missed < met else None


def _how_often(probes: Sequence[SearchStep], value: float | None, met: bool) -> tuple[int, int]:
    tries = [probe.met for probe in probes if probe.value == value]
    return tries.count(met), len(tries)


def met(trial: LoadTrial, summary: StageSummary) -> bool:
    """Whether one probe met every SLO of the trial; what is undefined is not met.

    Of a percentile with too few requests the highest sample must be within: a search goes on from
    there, and the checks of its answer ask for more. Beyond the SLOs themselves: without one of
    success, LEAST_SUCCESS of the measured requests must have ended well, for latencies are of
    those only; and a rate must be one that the server keeps up with: sends in the window may be
    more than the answers in it by 1 - LEAST_ANSWERED of them at most, or by three square roots of
    their number where that is more.
    """
    if any(value is None or passed is False for value, passed in summary.slos_met):
        return False
    if all(slo.metric != SUCCESS for slo in trial.slos) and not succeeded(summary):
        return False
    return summary.stage.rate_per_s is None or keeps_up(summary)


def succeeded(summary: StageSummary) -> bool:
    """Whether LEAST_SUCCESS of the measured requests ended well."""
    counts = {outcome.value: count for outcome, count in summary.outcomes}
    total = sum(counts.values())
    return total > 0 and counts.get("ok", 0) >= LEAST_SUCCESS * total


def keeps_up(summary: StageSummary) -> bool:
    """Whether answers come as fast as requests are sent, as far as chance allows to say."""
    if summary.rate_per_s is None or summary.requests_per_s is None:
        return False
    seconds = (summary.window.end_ns - summary.window.begin_ns) / 1e9
    sent = summary.rate_per_s * seconds
    missing = sent - summary.requests_per_s.value * seconds
    return missing <= max((1 - LEAST_ANSWERED) * sent, 3 * math.sqrt(sent))


def _majority(find: Find, results: Sequence[bool]) -> bool | None:
    """What most of the repeats say; None where those still to come may decide it."""
    tried = results[: find.repeats]
    needed = find.repeats // 2 + 1
    good = sum(tried)
    if good >= needed:
        return True
    if good + find.repeats - len(tried) < needed:
        return False
    return None


def _clamped(find: Find, value: float) -> float:
    """Within lowest..highest, which are whole for a concurrency."""
    lowest, highest = find.lowest, find.highest
    if find.sought is Sought.MAX_CONCURRENCY:
        value, lowest, highest = math.floor(value), math.ceil(lowest), math.floor(highest)
    return float(min(max(value, lowest), highest))


def _following(find: Find, low: float | None, high: float | None) -> float | None:
    """The value after these bounds; None where the search is over."""
    if high is None and low is not None:
        following = _clamped(find, 2 * low)
        return following if following > low else None
    if low is None and high is not None:
        following = _clamped(find, high / 2)
        return following if following < high else None
    if low is None or high is None or high - low <= find.tolerance * high:
        return None
    return _middle(find, low, high)


def _middle(find: Find, low: float, high: float) -> float | None:
    """Strictly between; None where nothing is."""
    if find.sought is Sought.MAX_CONCURRENCY:
        whole = float((int(low) + int(high)) // 2)
        return whole if low < whole < high else None
    exact = math.sqrt(low * high)
    for value in (float(f"{exact:.4g}"), exact):  # a short number where one lies between
        if low < value < high:
            return value
    return None

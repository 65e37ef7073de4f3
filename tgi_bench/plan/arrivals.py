"""When the requests of an open loop are sent, in ns from its start.

Gaps are drawn for a process of one arrival a unit of time; a rate that changes stretches that
time: with L(t) = the integral of the rate from 0 to t, an arrival at unit time u is sent at the t
where L(t) = u. A Poisson process is not rescaled: its count is as random as it should be.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import accumulate, count, repeat, takewhile
from math import sqrt

from tgi_bench.sections.quantities import NS
from tgi_bench.trials.draws import exponential, gamma, sequence
from tgi_bench.trials.load import OpenLoop, Process, RatePart


def send_offsets_ns(arrivals: OpenLoop, duration_ns: int | None, stream: str = "") -> Iterator[int]:
    """Offsets in ns, never descending, each less than duration_ns and, with parts, than their end.

    Without parts and with duration_ns None they do not end. constant: 0, 1/rate, 2/rate ... each
    rounded by itself, so nothing adds up. poisson, gamma: the first one comes a gap after the
    start. stream: another one draws other gaps from the same seed; constant draws none.
    """
    end_ns = sum(part.duration_ns for part in arrivals.parts) if arrivals.parts else None
    if duration_ns is not None:
        end_ns = duration_ns if end_ns is None else min(end_ns, duration_ns)
    offsets: Iterator[int]
    if arrivals.parts:
        # A slope is computed in floating point, whose rounding may turn two near ones round.
        offsets = accumulate(_through(arrivals.parts, _unit_times(arrivals, stream)), max)
    elif arrivals.rate_per_s is None:
        raise ValueError("an open loop has neither a rate nor parts")
    elif arrivals.process is Process.CONSTANT:
        offsets = _multiples(_exact(arrivals.rate_per_s))
    else:
        gap_ns = NS / arrivals.rate_per_s
        offsets = (round(unit * gap_ns) for unit in _unit_times(arrivals, stream))
    return offsets if end_ns is None else takewhile(lambda offset: offset < end_ns, offsets)


def _unit_times(arrivals: OpenLoop, stream: str) -> Iterator[float]:
    """Arrivals of a process of one a unit of time; whole numbers from 0 where it is constant."""
    draw = sequence("arrivals", arrivals.seed, stream)
    match arrivals.process:
        case Process.CONSTANT:
            return iter(count())
        case Process.POISSON:
            return accumulate(exponential(draw) for _ in repeat(None))
        case Process.GAMMA:
            shape = arrivals.burstiness
            return accumulate(gamma(draw, shape) / shape for _ in repeat(None))


def _exact(rate_per_s: float) -> Fraction:
    """The rate as it was written: 0.1 is a tenth and not the nearest binary fraction."""
    return Fraction(repr(rate_per_s))


def _multiples(rate: Fraction) -> Iterator[int]:
    """The whole multiples of 1 / rate in ns, rounded half up."""
    gap_numerator, gap_denominator = NS * rate.denominator, rate.numerator
    return (
        (2 * number * gap_numerator + gap_denominator) // (2 * gap_denominator)
        for number in count()
    )


def _through(parts: tuple[RatePart, ...], units: Iterator[float]) -> Iterator[int]:
    """Unit times through the inverse of the parts' cumulative rate; ends with the last part."""
    begin_ns = 0
    begin = Fraction(0)
    unit = next(units)
    for part in parts:
        mean = (_exact(part.from_rate_per_s) + _exact(part.to_rate_per_s)) / 2
        end = begin + mean * part.duration_ns / NS
        while unit < end:
            yield begin_ns + min(_inverse_ns(part, unit - begin), part.duration_ns)
            unit = next(units)
        begin, begin_ns = end, begin_ns + part.duration_ns


def _inverse_ns(part: RatePart, arrivals: Fraction | float) -> int:
    """How far into the part `arrivals` have come, in ns.

    With rates a to b over T it is the t of a t + (b - a) t^2 / (2 T) = arrivals, in the form that
    does not subtract near numbers: 2 y / (a + sqrt(a^2 + 2 y (b - a) / T)).
    """
    a, b = part.from_rate_per_s, part.to_rate_per_s
    if a == b:
        return round(arrivals * NS / _exact(a))
    y = max(0.0, float(arrivals))
    if y == 0.0:
        return 0
    slope_per_s = (b - a) * NS / part.duration_ns
    # Rounding may take the root of a falling part's last arrival below 0.
    root = sqrt(max(0.0, a * a + 2.0 * y * slope_per_s))
    return round(2.0 * y / (a + root) * NS)

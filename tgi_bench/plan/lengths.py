"""Numbers of tokens, drawn from a length's distribution."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate, repeat
from math import exp, log
from statistics import NormalDist

from tgi_bench.plan.draws import Draw, below
from tgi_bench.plan.load_trial import Empirical, Fixed, Length, LogNormal, Normal, Uniform

_STANDARD = NormalDist()
_LEAST_PROBABILITY = 1e-300
_MOST_PROBABILITY = 1.0 - 2.0**-53


def lengths(length: Length, draw: Draw) -> Iterator[int]:
    """Endless draws. Normal and log-normal ones take one number each, whatever the bounds are."""
    match length:
        case Fixed(tokens):
            return repeat(tokens)
        case Uniform(lowest, highest):
            return (lowest + below(draw, highest - lowest + 1) for _ in repeat(None))
        case Normal(mean, deviation, lowest, highest):
            low = _STANDARD.cdf((lowest - 0.5 - mean) / deviation)
            high = _STANDARD.cdf((highest + 0.5 - mean) / deviation)
            return (
                _within(round(mean + deviation * _between(low, high, draw())), lowest, highest)
                for _ in repeat(None)
            )
        case LogNormal(median, sigma, lowest, highest):
            low = _STANDARD.cdf((log(lowest - 0.5) - log(median)) / sigma)
            high = _STANDARD.cdf((log(highest + 0.5) - log(median)) / sigma)
            return (
                _within(round(median * exp(sigma * _between(low, high, draw()))), lowest, highest)
                for _ in repeat(None)
            )
        case Empirical(values, weights):
            sums = list(accumulate(weights or [1.0] * len(values)))
            return (
                values[min(bisect_right(sums, draw() * sums[-1]), len(values) - 1)]
                for _ in repeat(None)
            )


def _between(low: float, high: float, number: float) -> float:
    """The standard normal's quantile at `number` of the way from probability low to high.

    The same distribution as drawing again whatever falls outside, without the loop.
    """
    probability = low + (high - low) * number
    return _STANDARD.inv_cdf(min(max(probability, _LEAST_PROBABILITY), _MOST_PROBABILITY))


def _within(tokens: int, lowest: int, highest: int) -> int:
    return min(max(tokens, lowest), highest)


def mean_tokens(length: Length) -> float:
    """The mean of a length; of Normal and LogNormal as it is before the bounds cut it."""
    match length:
        case Fixed(tokens):
            return tokens
        case Uniform(lowest, highest):
            return (lowest + highest) / 2
        case Normal(mean):
            return mean
        case LogNormal(median, sigma, lowest, highest):
            return min(max(median * exp(sigma * sigma / 2), lowest), highest)
        case Empirical(values, weights):
            shares = weights or (1.0,) * len(values)
            return sum(v * w for v, w in zip(values, shares, strict=True)) / sum(shares)

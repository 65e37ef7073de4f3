"""Numbers drawn from seeded sequences: the same for one seed on every version of Python.

Only Random.random() is used, which Python keeps the same from version to version.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from math import cos, log, pi, sqrt
from random import Random

Draw = Callable[[], float]
"""Gives the next number of a sequence: 0 <= number < 1."""


def sequence(*names: str | int) -> Draw:
    """The sequence of these names; another name is another sequence."""
    digest = sha256("\n".join(str(name) for name in names).encode()).digest()
    return Random(int.from_bytes(digest)).random


def text_seed(seed: int | None, start: str) -> int | str:
    """What texts are drawn from: the seed that is given, else `start`, a random word of each start
    of the tool: no two of them ask alike, not even two in a second or one that resumes another."""
    return f"start {start}" if seed is None else seed


def below(draw: Draw, count: int) -> int:
    """A whole number from 0 to count - 1, all alike."""
    return int(draw() * count)


def exponential(draw: Draw) -> float:
    """Mean 1: -ln(1 - u)."""
    return -log(1.0 - draw())


def normal(draw: Draw) -> float:
    """Mean 0, deviation 1, by Box and Muller's transform; its second value is not kept."""
    return sqrt(-2.0 * log(1.0 - draw())) * cos(2.0 * pi * draw())


def gamma(draw: Draw, shape: float) -> float:
    """Of that shape and scale 1, so its mean is the shape; by Marsaglia and Tsang (2000).

    A shape below 1 is drawn as shape + 1 and multiplied by u^(1 / shape), as they say.
    """
    if shape < 1.0:
        boost: float = (1.0 - draw()) ** (1.0 / shape)
        return gamma(draw, shape + 1.0) * boost
    d = shape - 1.0 / 3.0
    c = 1.0 / sqrt(9.0 * d)
    while True:
        x = normal(draw)
        v = (1.0 + c * x) ** 3
        if v > 0.0 and log(1.0 - draw()) < 0.5 * x * x + d - d * v + d * log(v):
            return d * v


def shuffled(draw: Draw, count: int) -> list[int]:
    """0 .. count - 1 in a drawn order, every one alike (Fisher and Yates)."""
    order = list(range(count))
    for last in range(count - 1, 0, -1):
        other = below(draw, last + 1)
        order[last], order[other] = order[other], order[last]
    return order

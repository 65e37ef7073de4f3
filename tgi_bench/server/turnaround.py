"""What a step costs its caller outside the engine."""

from __future__ import annotations

from collections import deque

_KEPT = 8
_LONGEST_NS = 50_000_000
"""A longer gap is a caller that had nothing to ask."""


class Turnaround:
    """The gaps between a step's end and the next step's begin, as one rank sees them.

    An estimate of a step is of what a caller sees, its calls included; a rank that slept through
    all of it would be late by its own codec, gRPC, the caller and the cores they wait for.
    outside_ns: the least of the last gaps, for a longer one may have been the caller's pause; 0
    before the first.
    """

    def __init__(self) -> None:
        self._gaps_ns: deque[int] = deque(maxlen=_KEPT)
        self._ended_ns: int | None = None

    @property
    def outside_ns(self) -> int:
        """To be taken off the next step."""
        return min(self._gaps_ns, default=0)

    def began(self, now_ns: int) -> None:
        """A step was called for."""
        if self._ended_ns is not None and now_ns - self._ended_ns <= _LONGEST_NS:
            self._gaps_ns.append(now_ns - self._ended_ns)
        self._ended_ns = None

    def ended(self, now_ns: int) -> None:
        """It is about to be answered."""
        self._ended_ns = now_ns

    def interrupted(self) -> None:
        """Something else was called for: what follows is no gap between two steps."""
        self._ended_ns = None

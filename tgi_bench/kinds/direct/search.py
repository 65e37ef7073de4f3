"""The largest batch size that fits: doubling until memory runs out, then bisection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tgi_bench.trials.direct import FindBatch


@dataclass(frozen=True, slots=True)
class BatchProbe:
    """A batch size that was tried, and whether it fitted."""

    batch_size: int
    fits: bool


@dataclass(frozen=True, slots=True)
class LargestBatch:
    """The answer of a search.

    fits: the largest batch size that fitted; None where none did. too_large: the smallest that
    did not; None where every one fitted, and then the true one may be larger.
    """

    fits: int | None
    too_large: int | None


def next_batch(find: FindBatch, probes: Sequence[BatchProbe]) -> int | LargestBatch:
    """The batch size to try next, or the answer.

    From `start` doubled up to `highest`; where `start` does not fit, halved down to 1. Between the
    largest that fits and the smallest that does not, the middle, until they are within the
    tolerance.
    """
    found = bracket(probes)
    match found.fits, found.too_large:
        case None, None:
            return find.start
        case int(low), None:
            return found if low >= find.highest else min(2 * low, find.highest)
        case None, int(high):
            return found if high == 1 else high // 2
        case int(low), int(high) if high - low > max(1, int(find.tolerance * low)):
            return (low + high) // 2
        case _:
            return found


def bracket(probes: Sequence[BatchProbe]) -> LargestBatch:
    """The largest batch size that fitted below the smallest that did not, and that one."""
    high = min((p.batch_size for p in probes if not p.fits), default=None)
    fitting = [p.batch_size for p in probes if p.fits and (high is None or p.batch_size < high)]
    return LargestBatch(max(fitting, default=None), high)

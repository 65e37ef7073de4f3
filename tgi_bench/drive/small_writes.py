"""Control requests before a load: does a server's first token wait for an acknowledgement?

A server that writes the head of its answer and its first event in small pieces, without
TCP_NODELAY, holds the second back until the first is acknowledged, which Linux delays on a
kept-alive connection; `quick_acknowledgement` says more. A small request is asked on one
connection as a load asks, and, where its first token may have waited so, on another one that
acknowledges at once.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tgi_bench.drive.control_request import NoControlError, asked, connected
from tgi_bench.drive.http_framing import FramingError
from tgi_bench.load_observation import SmallWrites
from tgi_bench.plan.distinct_text import DistinctTexts
from tgi_bench.plan.draws import text_seed

if TYPE_CHECKING:
    from tgi_bench.drive.prepared import Prepared

_PAIRS = 3
_WORDS = 12
_MOST_S = 1.0
"""For one way of asking: 2 s for both."""
_LEAST_HELD_NS = 35_000_000
_MOST_HELD_NS = 250_000_000
"""Linux delays an acknowledgement by 40 to 200 ms (TCP_DELACK_MIN, TCP_DELACK_MAX)."""
_TIMER_VARIES = 1.5
"""Times that a timer makes are alike: the longest against the shortest."""


@dataclass(frozen=True, slots=True)
class FirstTokens:
    """t_1 - sent and t_1 - head of each request, ascending."""

    ttft_ns: list[int]
    after_head_ns: list[int]


def control_requests(prepared: Prepared) -> SmallWrites | None:
    """At most 8 requests for one token, one after the other, in about 2 s at most.

    None: nothing is streamed, reads are acknowledged at once in any case, or the server keeps no
    connections, refuses, or needs too long for it. None too where this system is not Linux, which
    alone has TCP_QUICKACK.
    """
    if not prepared.trial.stream or prepared.trial.quickack or sys.platform != "linux":
        return None
    texts = _texts(prepared)
    try:
        usual = _asked(prepared, texts, quickack=False)
        may_wait = _LEAST_HELD_NS <= _middle(usual.after_head_ns) <= _MOST_HELD_NS
        quick = _asked(prepared, texts, quickack=True) if may_wait else None
    except (OSError, FramingError, NoControlError):
        return None  # the load will say what is wrong with the server
    return compared(usual, quick)


def compared(usual: FirstTokens, quick: FirstTokens | None) -> SmallWrites:
    """What the two told. quick: None where it was not asked."""
    ttft_ns, after_ns = usual.ttft_ns, usual.after_head_ns
    apart = (
        quick is not None
        and quick.ttft_ns[-1] < ttft_ns[0]
        and after_ns[0] >= _LEAST_HELD_NS
        and after_ns[-1] <= _TIMER_VARIES * after_ns[0]
    )
    return SmallWrites(
        pairs=len(ttft_ns) if quick is None else min(len(ttft_ns), len(quick.ttft_ns)),
        ttft_ns=_middle(ttft_ns),
        quickack_ttft_ns=None if quick is None else _middle(quick.ttft_ns),
        after_head_ns=_middle(after_ns),
        apart=apart,
    )


def _middle(ordered: list[int]) -> int:
    return ordered[len(ordered) // 2]


def _texts(prepared: Prepared) -> Iterator[str]:
    trial = prepared.trial
    seed = text_seed(trial.workload.seed, prepared.start)
    texts = DistinctTexts(seed, f"{trial.trial_id}/control")
    return (texts.text(number, _WORDS) for number in range(2 * (_PAIRS + 1)))


def _asked(prepared: Prepared, texts: Iterator[str], quickack: bool) -> FirstTokens:
    """One connection's requests but the first: what a fresh one receives is acknowledged at once.

    Raises OSError, FramingError, NoControlError.
    """
    began = time.monotonic()
    times: list[tuple[int, int]] = []
    with connected(prepared, _MOST_S) as sock:
        while len(times) <= _PAIRS:
            passed_s = time.monotonic() - began
            if len(times) > 1 and passed_s * (len(times) + 1) / len(times) > _MOST_S:
                break
            answer = asked(sock, prepared, (next(texts), 1), began + _MOST_S, quickack)
            if not answer.kept_alive:
                raise NoControlError("it keeps no connection")
            times.append((answer.event_ns[0], answer.event_ns[0] - answer.head_ns))
    return FirstTokens(*(sorted(values) for values in zip(*times[1:], strict=True)))

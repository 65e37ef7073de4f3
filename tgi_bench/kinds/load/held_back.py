"""How much of a load's TTFT is an acknowledgement that the server waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tgi_bench.analysis.rules import Check, Rule, Seen, apply
from tgi_bench.kinds.load.rows import LoadRow, time_text
from tgi_bench.load_observation import SmallWrites

LEAST_HELD_NS = 10_000_000
LEAST_HELD_SHARE = 0.20
"""Of the control requests' TTFT: what differs by less may be chance."""
MOST_HELD_SHARE = 0.10
"""Of the load's median TTFT."""
_LATER = 1.25
"""A first token so much later after its head than the control's waited for its own step."""
QUICKACK = "set load.quickack: true"


def held_ns(found: SmallWrites) -> float:
    """Of a control request's first token; 0 where nothing waits that could be seen."""
    return _difference_ns(found) if found.apart else 0.0


def _difference_ns(found: SmallWrites) -> float:
    """Of the medians; 0 where it is small."""
    if found.quickack_ttft_ns is None:
        return 0.0
    held = found.ttft_ns - found.quickack_ttft_ns
    return held if held > max(LEAST_HELD_NS, LEAST_HELD_SHARE * found.ttft_ns) else 0.0


def held_in_load_ns(found: SmallWrites) -> float:
    """Of the load's median first token, at most.

    The acknowledgement of the answer's head comes so long after it whatever happens: a first token
    that its own step makes later than that waits for nothing.
    """
    after_ns = found.load_after_head_ns
    if after_ns is not None and after_ns > _LATER * found.after_head_ns:
        return 0.0
    return held_ns(found)


def held_text(found: SmallWrites) -> str:
    """What the control requests told; "" where nothing waits."""
    held = held_ns(found)
    if not held or found.quickack_ttft_ns is None:
        return ""
    most, ttft, quick = (time_text(ns) for ns in (held, found.ttft_ns, found.quickack_ttft_ns))
    text = (
        "the server writes small pieces and waits for acknowledgements: alone, a first token took "
        f"{ttft}, and {quick} where reads were acknowledged at once"
    )
    after_ns = found.load_after_head_ns
    if not held_in_load_ns(found) and after_ns is not None:
        return f"{text}; this load's came {time_text(after_ns)} after their heads, so none waited"
    return f"{text}: up to {most} of TTFT is the connection's, not the model's"


def _held_back(row: LoadRow) -> Seen | None:
    if not row.load.trial.stream or row.stage.ttft is None:
        return None
    if row.load.trial.quickack:
        return Seen(False, 0.0, "reads were acknowledged at once (load.quickack)")
    found = row.stage.stage.conditions.small_writes
    if found is None or _too_unlike(found):
        return None
    p50_ns = row.stage.ttft.p50.value
    held = held_in_load_ns(found)
    text = held_text(found) or f"a first token alone took {time_text(found.ttft_ns)}, none of it so"
    if held:
        text += f", of {time_text(p50_ns)} (p50)"
    return Seen(held > MOST_HELD_SHARE * p50_ns, held / p50_ns if p50_ns else 0.0, text)


def _too_unlike(found: SmallWrites) -> bool:
    return bool(_difference_ns(found)) and not found.apart


def check_held_back(rows: Sequence[LoadRow]) -> Check:
    """Whether much of TTFT is such a wait; where no row tells, why."""
    return apply(replace(HELD_BACK, unmade=_unmade(rows)), rows)


def _unmade(rows: Sequence[LoadRow]) -> str:
    streamed = [row for row in rows if row.load.trial.stream and row.stage.ttft is not None]
    if not streamed:
        return HELD_BACK.unmade
    if any(row.stage.stage.conditions.small_writes is not None for row in streamed):
        return "control requests were too unlike each other to compare"
    return "no control requests were answered within a second on one kept-alive connection"


HELD_BACK: Rule[LoadRow] = Rule(
    f"waiting for acknowledgements is at most {MOST_HELD_SHARE:.0%} of TTFT",
    _held_back,
    "nothing was streamed",
    f"{QUICKACK}, or let the server, or the proxy before it, set TCP_NODELAY",
)

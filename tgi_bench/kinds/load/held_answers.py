"""Whether answers came as they were made, or were held back on their way."""

from __future__ import annotations

from statistics import median

from tgi_bench.analysis.rules import Rule, Seen
from tgi_bench.kinds.load.rows import LoadRow, time_text
from tgi_bench.load_observation import ControlPair

LEAST_OF_ALONE = 0.5
"""Of the time that a token takes alone: under load none takes less but what was held back, and
came with others. Clocks that wake up, and speculation, make some 30 % of difference."""
MOST_LATER = 0.10
"""Of the time that the other tokens take: so much later than the whole of an answer of one token
may a first token come."""
MOST_LATER_OF_ONE = 0.50
"""The same where there was but one pair."""
LEAST_UNDER_LOAD = 0.75
"""Of what was seen alone: an answer, or a first token, that takes less under load says that the
control requests were disturbed."""
MOST_LATER_NS = MOST_EARLIER_NS = 4_000_000
"""What is less a busy machine makes."""
MOST_EARLIER = 0.5
"""Of the time to the token of an answer of one: a first token that comes so much earlier
is none."""


def alone_ns(pairs: tuple[ControlPair, ...]) -> float | None:
    """Of a token but the first, at least: from answers of one token to those of more; the fastest
    of each, which nothing disturbed. None where they do not differ."""
    if not pairs:
        return None
    took = min(pair.e2e_ns for pair in pairs) - min(pair.one_token_e2e_ns for pair in pairs)
    found = took / (max(pair.tokens for pair in pairs) - 1)
    return found if found > 0 else None


def later_ns(pairs: tuple[ControlPair, ...]) -> float:
    """How much later first tokens came than whole answers of one token: by their medians, and only
    where each did than every one of those; 0 where not."""
    if not pairs or min(p.first_ns for p in pairs) < max(p.one_token_e2e_ns for p in pairs):
        return 0.0
    return median(p.first_ns for p in pairs) - median(p.one_token_e2e_ns for p in pairs)


def earlier_ns(pairs: tuple[ControlPair, ...]) -> float:
    """How much earlier what was counted as a first token came than the token of an answer of one:
    by their medians, and only where each did than every one of those; 0 where not.

    Of one pair 0: what a server does once, as for a new length, comes before its first token.
    """
    if len(pairs) < 2 or max(p.first_ns for p in pairs) >= min(p.one_token_ns for p in pairs):
        return 0.0
    return median(p.one_token_ns for p in pairs) - median(p.first_ns for p in pairs)


def too_early(pairs: tuple[ControlPair, ...]) -> str:
    """What was seen of events that are counted as first tokens and are none; "" where nothing."""
    earlier = earlier_ns(pairs)
    if earlier <= MOST_EARLIER_NS:
        return ""
    one_ns = median(pair.one_token_ns for pair in pairs)
    if earlier <= MOST_EARLIER * one_ns:
        return ""
    return (
        "alone, what counts as the first of several tokens came after "
        f"{time_text(one_ns - earlier)}, the token of an answer of one after {time_text(one_ns)}"
    )


def _held(row: LoadRow) -> Seen | None:
    pairs, tpot = row.stage.stage.conditions.control, row.stage.tpot
    each_ns = alone_ns(pairs)
    if each_ns is None or not row.load.trial.stream or _disturbed(row, pairs):
        return None
    tokens, later = max(pair.tokens for pair in pairs), later_ns(pairs)
    limit = MOST_LATER if len(pairs) > 1 else MOST_LATER_OF_ONE
    share = later / (each_ns * (tokens - 1))
    if later > MOST_LATER_NS and share > limit:
        text = (
            f"alone, the first of {tokens} tokens came {time_text(later)} after the whole of an "
            f"answer of one, {share:.0%} of what the others take"
        )
        return Seen(True, 1 + share, text)
    text = f"a token alone takes {time_text(each_ns)}"
    if tpot is None:
        return Seen(False, 0.0, text)
    of_alone = tpot.p50.value / each_ns
    text += f", under load {time_text(tpot.p50.value)} (TPOT p50)"
    missed_ns = (each_ns - tpot.p50.value) * (tokens - 1)
    bad = of_alone < LEAST_OF_ALONE and missed_ns > MOST_LATER_NS
    return Seen(bad, 1 - of_alone, text)


def _disturbed(row: LoadRow, pairs: tuple[ControlPair, ...]) -> bool:
    """Whether the load's answers were faster than those of the control requests, which were alone
    and no longer."""
    e2e, ttft = row.stage.e2e, row.stage.service_ttft
    alone = (min(p.e2e_ns for p in pairs), min(p.first_ns for p in pairs))
    return any(
        found is not None and found.p50.value < LEAST_UNDER_LOAD * least
        for found, least in zip((e2e, ttft), alone, strict=True)
    )


HELD = Rule(
    "answers come as they are made",
    _held,
    "nothing was streamed, answers are too short, or requests before the load were not answered, "
    "or took longer than those of the load",
    "turn off response buffering in the proxy before the server, or name the server's own address "
    "in server.url: answers are held back, so that TTFT is too late and ITL too short",
)

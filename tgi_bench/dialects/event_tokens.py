"""How many tokens each event of an answer carried: by what it says, else by its engine's ways."""

from __future__ import annotations

from dataclasses import dataclass, field

from tgi_bench.dialects.engine_ways import Ways


@dataclass(slots=True)
class Events:
    """Those that may carry a token: with a choice, and neither a role alone nor after the end.

    own: tokens that the event itself lists, else None. so_far: tokens of the answer until then,
    as it says, else None. finish_at: index of the one that says why the answer ended; -1: none.
    """

    arrivals: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    texts: list[bool] = field(default_factory=list)
    own: list[int | None] = field(default_factory=list)
    so_far: list[int | None] = field(default_factory=list)
    finish_at: int = -1


@dataclass(frozen=True, slots=True)
class Counts:
    """tokens: of each event. told, first_told: as tokens_told and first_told of
    RequestObservation. each: as counted_each of Reading."""

    tokens: list[int]
    told: bool
    first_told: bool
    each: bool = False


def counted(events: Events, ways: Ways, total: int | None, finish_reason: str | None) -> Counts:
    """The events' tokens, which sum to total where there are any.

    total: of the answer, None where nobody counted. By each event's own word where all of them
    say; else one for each that has text or is sent for a token by its engine, and `placed` where
    the total is another.
    """
    if total is not None and (said := _differences(events)) is not None:
        at_end = placed(said, total, [])
        return Counts(at_end, at_end == said, True, each=len(said) > 1)
    base = _by_engine(events, ways)
    first = next((i for i, count in enumerate(base) if count), len(base))
    more = total is None or total > sum(base)
    unclear = more and any(i < first and i != events.finish_at for i in range(len(base)))
    if total is None or total == sum(base):
        return Counts(base, True, not unclear)
    ending = _ending(events, base, finish_reason)
    if total == sum(base) + 1 and ending:
        base[events.finish_at] = 1
        return Counts(base, True, not unclear)
    empty = [i for i, count in enumerate(base) if not count and first < i != events.finish_at]
    tokens = placed(base, total, ending + empty[::-1], lightest=_without_text(events))
    return Counts(tokens, False, not unclear)


def placed(
    counts: list[int], total: int, empty: list[int], lightest: list[int] | None = None
) -> list[int]:
    """The counts changed so that they sum to total, where only that is known.

    A surplus goes to one event after the other of `empty`, one token each, and what is left to
    all counted events but the first, the last ones first: when a first token came is never moved
    by a count. What is too much is taken from `lightest`, the last first, then from the end.
    [] stays [].
    """
    found = list(counts)
    if not found:
        return found
    surplus = total - sum(found)
    for index in empty[: max(0, surplus)]:
        found[index] += 1
        surplus -= 1
    if surplus > 0:
        taking = [index for index, count in enumerate(counts) if count]
        taking = taking[1:] or taking or empty[:1] or [len(found) - 1]
        each, rest = divmod(surplus, len(taking))
        for place, index in enumerate(reversed(taking)):
            found[index] += each + (place < rest)
    for index in [*reversed(lightest or []), *reversed(range(len(found)))]:
        taken = min(found[index], max(0, -surplus))
        found[index] -= taken
        surplus += taken
    return found


def _differences(events: Events) -> list[int] | None:
    """By what each event says of the tokens so far; None where one with text does not, or where
    they fall."""
    before = 0
    found: list[int] = []
    for text, so_far in zip(events.texts, events.so_far, strict=True):
        if so_far is None:
            if text:
                return None
            found.append(0)
            continue
        if so_far < before:
            return None
        found.append(so_far - before)
        before = so_far
    return found if before else None


def _by_engine(events: Events, ways: Ways) -> list[int]:
    each = ways.event_each_token
    found = [
        int(text or each) if own is None else own
        for text, own in zip(events.texts, events.own, strict=True)
    ]
    at = events.finish_at
    if ways.reason_apart and at >= 0 and not events.texts[at] and events.own[at] is None:
        found[at] = 0
    return found


def _ending(events: Events, base: list[int], finish_reason: str | None) -> list[int]:
    """The event of the end of the sequence, which is a token without text; [] where the answer
    ended at its length, or that event is counted already."""
    at = events.finish_at
    alone = not any(base)
    if at < 0 or base[at] or (finish_reason == "length" and not alone):
        return []
    return [at]


def _without_text(events: Events) -> list[int]:
    return [index for index, text in enumerate(events.texts) if not text]

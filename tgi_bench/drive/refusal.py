"""A server that takes no more requests for now: how long a closed loop waits before the next.

A closed loop that is refused at once would ask again at once, thousands of times a second, and
measure nothing but that. An open loop never waits: its schedule is what was asked.
"""

from __future__ import annotations

import heapq
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from tgi_bench.drive.http_framing import Headers
from tgi_bench.load_observation import Waits

_FIRST_NS = 10_000_000
_LONGEST_NS = 1_000_000_000
_LONGEST_ASKED_NS = 60_000_000_000
_REFUSED = (429, 503)
_SHORT_BYTES = 2048
"""An answer that is a refusal alone is shorter."""
NEVER_NS = 2**63 - 1


def wait_ns(headers: Headers, refusals: int) -> int:
    """How long to wait after a refusal: Retry-After, at most a minute; else 10 ms, doubled for
    each of the refusals in a row before it, at most 1 s."""
    asked_ns = _retry_after_ns(dict(headers))
    if asked_ns > 0:
        return min(asked_ns, _LONGEST_ASKED_NS)
    return min(_FIRST_NS << min(refusals, 16), _LONGEST_NS)


def _retry_after_ns(headers: dict[bytes, bytes]) -> int:
    """Seconds, or a date: then less the answer's own Date, for the clocks may differ; 0 where it
    is neither, or past."""
    asked = headers.get(b"retry-after", b"").strip()
    if asked.isdigit():
        return int(asked[:9]) * 1_000_000_000
    if not asked:
        return 0
    until_s = _date_s(asked)
    now_s = _date_s(headers.get(b"date", b"")) or time.time()
    return round((until_s - now_s) * 1e9) if until_s is not None else 0


def _date_s(text: bytes) -> float | None:
    from email.utils import parsedate_to_datetime  # few servers send a date, and none at the start

    try:
        return parsedate_to_datetime(text.decode("latin-1")).timestamp()
    except (ValueError, OverflowError):
        return None


def with_one(waits: Waits, waited_ns: int) -> Waits:
    """One wait more."""
    return together((waits, Waits(1, waited_ns, waited_ns)))


def together(several: Iterable[Waits]) -> Waits:
    """Those of all."""
    waits = tuple(several)
    return Waits(
        count=sum(one.count for one in waits),
        total_ns=sum(one.total_ns for one in waits),
        longest_ns=max((one.longest_ns for one in waits), default=0),
    )


@dataclass(slots=True)
class SlotWaits:
    """The slots of one worker that wait. next_ns: until when; over: those that do no more."""

    pattern: re.Pattern[bytes] | None
    next_ns: int = NEVER_NS
    over: Waits = field(default_factory=Waits)
    _waiting: list[tuple[int, int, int]] = field(default_factory=list)
    _woken: list[int] = field(default_factory=list)

    @classmethod
    def told_by(cls, pattern: bytes) -> SlotWaits:
        """pattern: what a refusal inside a 200 holds, as a regular expression; b"": never waits."""
        return cls(re.compile(pattern) if pattern else None)

    def __len__(self) -> int:
        return len(self._waiting)

    def refused(self, status: int | None, headers: Headers, body: bytearray, before: int) -> None:
        """An answer came: its slot waits where that refuses. before: refusals in a row of it."""
        if self.pattern is None:
            return
        if status in _REFUSED or (len(body) < _SHORT_BYTES and self.pattern.search(body)):
            now = time.monotonic_ns()
            heapq.heappush(self._waiting, (now + wait_ns(headers, before), now, before + 1))
            self.next_ns = self._waiting[0][0]

    def wake(self, now: int) -> None:
        """End the waits whose time has come."""
        while self._waiting and self._waiting[0][0] <= now:
            _, began_ns, refusals = heapq.heappop(self._waiting)
            self.over = with_one(self.over, now - began_ns)
            self._woken.append(refusals)
        self.next_ns = self._waiting[0][0] if self._waiting else NEVER_NS

    def refusals(self) -> int:
        """In a row, of the slot that sends next."""
        return self._woken.pop() if self._woken else 0

    def end(self, now: int) -> None:
        """End all of them, with the load."""
        for _, began_ns, _ in self._waiting:
            self.over = with_one(self.over, now - began_ns)
        self._waiting.clear()

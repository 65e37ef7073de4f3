"""What else the machine computed during a load, from the kernel's own account of its cores."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_FILE = Path("/proc/stat")
_BUSY = (0, 1, 2, 5, 6, 7)
"""user, nice, system, irq, softirq, steal: all but idle and iowait; guests are in user."""


@dataclass(frozen=True, slots=True)
class MachineCpu:
    """busy_ns: of all cores since the machine began, None where the kernel does not say."""

    at_ns: int
    busy_ns: int | None

    @classmethod
    def now(cls) -> MachineCpu:
        """As it is at this moment."""
        return cls(time.monotonic_ns(), _busy_ns())

    def others_since(self, own_ns: Sequence[int]) -> str | None:
        """ "0.42 of 2 cores": busy since then less our own CPU time, over the time since then.

        None where the kernel does not say. The account is in ticks of 10 ms or so, and the
        server's share is in it where it runs on this machine.
        """
        later = MachineCpu.now()
        wall_ns = later.at_ns - self.at_ns
        if self.busy_ns is None or later.busy_ns is None or wall_ns <= 0:
            return None
        others_ns = max(0, later.busy_ns - self.busy_ns - sum(own_ns))
        return f"{others_ns / wall_ns:.2f} of {os.cpu_count()} cores"


def _busy_ns() -> int | None:
    try:
        words = _FILE.read_text(encoding="ascii").split("\n", 1)[0].split()
        ticks = [int(word) for word in words[1:]]
    except (OSError, ValueError):
        return None
    if words[:1] != ["cpu"] or len(ticks) <= max(_BUSY):
        return None
    return sum(ticks[i] for i in _BUSY) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")

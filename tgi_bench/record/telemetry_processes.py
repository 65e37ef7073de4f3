"""Which processes on a GPU are the deployment's, and which are somebody else's."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from tgi_bench.process_tree import PROC, process_stat
from tgi_bench.record.telemetry_take import Whose

_FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""The machine's own (PROC_PID_INIT_INO of Linux): there NVML's process ids are those of /proc."""
_CONTAINER = re.compile(r"[0-9a-f]{64}")


@dataclass(slots=True)
class Processes:
    """before: process ids on any GPU before the deployment was started. roots: as of Take."""

    whose: Whose
    before: frozenset[int]
    roots: tuple[int, ...]
    proc: Path = PROC
    _own: dict[int, bool] = field(default_factory=dict)

    def others(self, pids: frozenset[int]) -> int | None:
        """How many of them are not the deployment's; None where nobody can tell."""
        if self.whose is Whose.UNKNOWN or (self.whose is Whose.SERVER and not self._sees_all()):
            return None
        # An id that has gone may come back as another process.
        self._own = {pid: own for pid, own in self._own.items() if pid in pids}
        return sum(not self._is_own(pid) for pid in pids)

    def any_own(self, pids: frozenset[int]) -> bool:
        """Whether one of them is known as the deployment's."""
        others = self.others(pids)
        return others is not None and others < len(pids)

    def _is_own(self, pid: int) -> bool:
        if pid not in self._own:
            new = self.whose is Whose.SERVER or pid not in self.before
            self._own[pid] = new and self._belongs(pid)
        return self._own[pid]

    def _belongs(self, pid: int) -> bool:
        """Of one that came later; yes where /proc does not tell: it ended, or we are contained."""
        if not self._sees_all() or _has_ended(pid):
            return True
        if self.whose is Whose.CONTAINER:
            return _CONTAINER.search(self._cgroup(pid)) is not None
        at = pid
        while at > 1 and at not in self.roots:
            stat = process_stat(at, self.proc)
            at = 0 if stat is None else stat.parent
        return at in self.roots

    def _sees_all(self) -> bool:
        try:
            return os.readlink(self.proc / "self/ns/pid") == _FIRST_PID_NAMESPACE
        except OSError:
            return False

    def _cgroup(self, pid: int) -> str:
        """Empty where it is not for us to see."""
        try:
            return (self.proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""


def _has_ended(pid: int) -> bool:
    """Signal 0 is sent to nobody: it only asks."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False  # somebody else's
    return False

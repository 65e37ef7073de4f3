"""Which processes on a GPU are the deployment's, and which are somebody else's."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from tgi_bench.record.telemetry_take import Whose

_FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""The machine's own (PROC_PID_INIT_INO of Linux): there NVML's process ids are those of /proc."""
_CONTAINER = re.compile(r"[0-9a-f]{64}")
_PARENT = 1
"""Place in /proc/<pid>/stat after the command's closing parenthesis."""


@dataclass(slots=True)
class Processes:
    """before: process ids on any GPU before the deployment was started. sweep: its process id."""

    whose: Whose
    before: frozenset[int]
    sweep: int
    proc: Path = Path("/proc")
    _own: dict[int, bool] = field(default_factory=dict)

    def others(self, pids: frozenset[int]) -> int | None:
        """How many of them are not the deployment's; None where nobody can tell."""
        if self.whose is Whose.UNKNOWN:
            return None
        # An id that has gone may come back as another process.
        self._own = {pid: own for pid, own in self._own.items() if pid in pids}
        return sum(not self._is_own(pid) for pid in pids)

    def _is_own(self, pid: int) -> bool:
        if pid not in self._own:
            self._own[pid] = pid not in self.before and self._belongs(pid)
        return self._own[pid]

    def _belongs(self, pid: int) -> bool:
        """Of one that came later; yes where /proc does not tell: it ended, or we are contained."""
        if not self._sees_all() or _has_ended(pid):
            return True
        if self.whose is Whose.CONTAINER:
            return _CONTAINER.search(self._text(pid, "cgroup")) is not None
        at = pid
        while at > 1 and at != self.sweep:
            fields = self._text(at, "stat").rpartition(")")[2].split()
            at = int(fields[_PARENT]) if len(fields) > _PARENT else 0
        return at == self.sweep

    def _sees_all(self) -> bool:
        try:
            return os.readlink(self.proc / "self/ns/pid") == _FIRST_PID_NAMESPACE
        except OSError:
            return False

    def _text(self, pid: int, name: str) -> str:
        """Empty where it is not for us to see."""
        try:
            return (self.proc / str(pid) / name).read_text(encoding="utf-8", errors="replace")
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

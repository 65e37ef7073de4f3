"""Who owns a server: marks in its environment by which a later sweep finds what was left.

A process is named by its id and its start time, since ids are used again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tgi_bench.errors import InputError

RUN_MARK = "TGI_BENCH_RUN"
OWNER_MARK = "TGI_BENCH_OWNER"
DOMAIN_MARK = "TGI_BENCH_DOMAIN"
"""What killed sweeps left is ended by sweeps of the same domain alone; "" is one too."""

_DOMAIN = re.compile(r"[a-z0-9]{0,16}", re.ASCII)
_STATE, _START_TIME = 0, 19
"""Places in /proc/<pid>/stat after the command's closing parenthesis."""


@dataclass(frozen=True, slots=True)
class ProcessName:
    """One process for all time. started: clock ticks since the machine came up."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """The process that has this id now; None where none has, or it has only to be reaped."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        fields = stat.rpartition(")")[2].split()
        if len(fields) <= _START_TIME or fields[_STATE] in ("Z", "X"):
            return None
        return cls(pid, int(fields[_START_TIME]))

    @classmethod
    def own(cls) -> Self:
        """This process."""
        name = cls.of(os.getpid())
        if name is None:
            raise OSError("/proc does not show this process: it must be mounted")
        return name

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Of "<pid>:<started>"; None where the text is something else."""
        pid, colon, started = text.partition(":")
        if not (colon and pid.isdecimal() and started.isdecimal()):
            return None
        return cls(int(pid), int(started))

    def __str__(self) -> str:
        return f"{self.pid}:{self.started}"

    def lives(self) -> bool:
        """Whether this very process runs."""
        return type(self).of(self.pid) == self


def domain(environ: Mapping[str, str] = os.environ) -> str:
    """The domain that an environment names. Raises InputError where it is no name of one."""
    named = environ.get(DOMAIN_MARK, "")
    if not _DOMAIN.fullmatch(named):
        raise InputError(f"{DOMAIN_MARK}={named}: at most 16 of a to z and 0 to 9 are needed")
    return named


def marks(run_id: str) -> dict[str, str]:
    """What this process adds to the environment of the servers of a run."""
    return {RUN_MARK: run_id, OWNER_MARK: str(ProcessName.own()), DOMAIN_MARK: domain()}

"""The memory of a process and its descendants at their highest, watched from a process apart.

`python -m tgi_bench.selfcheck.memory_watch PID [EXCEPT_PID ...]` writes the peak in bytes when its
standard input ends. It is the sum of resident sizes, so pages that processes share count in
each: an upper bound. Linux only.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tgi_bench.errors import LaunchError
from tgi_bench.process_tree import all_stats, tree

_EVERY_S = 0.25


@dataclass(slots=True)
class MemoryPeak:
    """bytes: known once the watch has ended."""

    bytes: int | None = None


@contextmanager
def watched(except_pids: Sequence[int]) -> Iterator[MemoryPeak]:
    """Watch this process and its descendants but those named, until the context is left."""
    words = [str(pid) for pid in (os.getpid(), *except_pids)]
    command = [sys.executable, "-m", "tgi_bench.selfcheck.memory_watch", *words]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        process_group=0,  # a terminal's signals are for the sweep alone
    )
    peak = MemoryPeak()
    try:
        yield peak
    finally:
        said, _ = process.communicate()
    if not said.strip().isdigit():
        raise LaunchError(f"the memory watch ended with {process.returncode}")
    peak.bytes = int(said)


def tree_bytes(root: int, left_out: frozenset[int]) -> int:
    """Resident bytes of a process and its descendants, without those left out and theirs."""
    stats = all_stats()
    return sum(map(_resident_bytes, tree((root,), stats) - tree(left_out, stats)))


def _resident_bytes(pid: int) -> int:
    """0 where the process has ended meanwhile."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (FileNotFoundError, ProcessLookupError):
        return 0


def main() -> None:
    """Watch until the standard input ends."""
    root, *others = (int(word) for word in sys.argv[1:])
    left_out = frozenset((*others, os.getpid()))
    peak, ended = 0, False
    while not ended:
        ended = bool(select.select([0], [], [], _EVERY_S)[0])
        peak = max(peak, tree_bytes(root, left_out))
    os.write(1, b"%d\n" % peak)


if __name__ == "__main__":
    main()

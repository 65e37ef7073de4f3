"""A folder of the form of /proc (proc(5)), with the processes that a test gives it."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

OWN, SERVER = os.getpid(), 77_000_001
"""This process, and one of an id that Linux gives to none (2^22 is the most)."""
_HEAD = (
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode"
)


@dataclass(frozen=True, slots=True)
class ProcFolder:
    """path: in the place of /proc; made with the first process."""

    path: Path

    def process(
        self,
        pid: int,
        parent: int,
        *,
        session: int,
        group: int | None = None,
        terminal: int = 0,
        ticks: int = 0,
        ended: int = 0,
        command: str = "a) (b",
        fds: tuple[str, ...] = (),
    ) -> None:
        """ticks: of CPU; ended: of its children that ended. fds: what its open files link to."""
        folder = self.path / str(pid)
        (folder / "fd").mkdir(parents=True, exist_ok=True)
        (folder / "task").mkdir(exist_ok=True)
        place = f"{parent} {group or session} {session} {terminal}"
        text = f"{pid} ({command}) S {place} -1 0 0 0 0 0 {ticks} 0 {ended} 0 20 0 1 0 5 0 0"
        (folder / "stat").write_text(text)
        for number, target in enumerate(fds):
            link = folder / "fd" / str(number)
            link.unlink(missing_ok=True)
            link.symlink_to(target)

    def thread(self, pid: int, tid: int, ran_ns: int, waited_ns: int) -> None:
        """One thread's account of running and of waiting on the run queue."""
        folder = self.path / str(pid) / "task" / str(tid)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "schedstat").write_text(f"{ran_ns} {waited_ns} 12\n")

    def ends(self, pid: int, tid: int | None = None) -> None:
        """A process, or one of its threads."""
        folder = self.path / str(pid)
        shutil.rmtree(folder if tid is None else folder / "task" / str(tid))

    def busy(self, ticks: int) -> None:
        """Of all cores; idle, iowait and guests are not in it."""
        (self.path / "stat").write_text(
            f"cpu  {ticks - 20} 1 2 99999 777 3 4 10 55 66\ncpu0 1 2 3 4 5 6 7 8 9\n"
        )

    def tcp(
        self, *listening: tuple[str, int], table: str = "tcp", to: str = "0100007F:9C40"
    ) -> None:
        """Each (address in hexadecimal digits, inode) listens; one of inode 99 is connected to."""
        net = self.path / "self" / "net"
        net.mkdir(parents=True, exist_ok=True)
        rows = [f"{at} {'0' * (len(at) - 5)}:0000 0A" for at, _ in listening]
        rows.append(f"{listening[0][0]} {to} 01")
        inodes = [*(inode for _, inode in listening), 99]
        lines = (
            f"   {n}: {row} 00000000:00000000 00:00000000 00000000     0        0 {inode} 1 0"
            for n, (row, inode) in enumerate(zip(rows, inodes, strict=True))
        )
        (net / table).write_text("\n".join([_HEAD, *lines, ""]))

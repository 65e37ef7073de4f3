"""Processes of this machine as /proc shows them: who listens at an address, and what belongs to it.

Sources: proc(5); Documentation/networking/proc_net_tcp.rst of Linux.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

PROC = Path("/proc")
_PARENT, _GROUP, _SESSION, _TERMINAL, _TIMES, _ENDED = 1, 2, 3, 4, slice(11, 13), slice(13, 15)
"""Places in /proc/<pid>/stat after the command's closing parenthesis; the times are utime and
stime."""
_ESTABLISHED, _LISTEN = "01", "0A"
_ADDRESS, _REMOTE, _STATE, _INODE = 1, 2, 3, 9
"""Places in a line of /proc/net/tcp."""

Address = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """command: its name, at most 15 bytes. terminal: 0 for none. cpu_ns: of its threads;
    ended_cpu_ns: of its children that ended and were waited for. Both in the kernel's ticks."""

    pid: int
    command: str
    parent: int
    group: int
    session: int
    terminal: int
    cpu_ns: int
    ended_cpu_ns: int


def process_stat(pid: int, proc: Path = PROC) -> ProcessStat | None:
    """None where there is none of that id, or it is not shown."""
    try:
        text = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    head, _, rest = text.rpartition(")")
    fields = rest.split()
    if len(fields) <= _TERMINAL:
        return None
    return ProcessStat(
        pid=pid,
        command=head.partition("(")[2],
        parent=int(fields[_PARENT]),
        group=int(fields[_GROUP]),
        session=int(fields[_SESSION]),
        terminal=int(fields[_TERMINAL]),
        cpu_ns=ticks_ns(fields[_TIMES]),
        ended_cpu_ns=ticks_ns(fields[_ENDED]),
    )


def ticks_ns(fields: Iterable[str]) -> int:
    """The sum of times that /proc gives in ticks. Raises ValueError where one is no number."""
    return sum(map(int, fields)) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def all_stats(proc: Path = PROC) -> dict[int, ProcessStat]:
    """Every process that is shown, by its id; {} where the system has no such folder."""
    try:
        names = [entry.name for entry in os.scandir(proc) if entry.name.isdecimal()]
    except OSError:
        return {}
    found = (process_stat(int(name), proc) for name in names)
    return {stat.pid: stat for stat in found if stat is not None}


def ancestors(pid: int, stats: Mapping[int, ProcessStat]) -> list[int]:
    """Itself, its parent and so on, up to one that is not shown."""
    line: list[int] = []
    while pid in stats and pid not in line:
        line.append(pid)
        pid = stats[pid].parent
    return line


def tree(roots: Iterable[int], stats: Mapping[int, ProcessStat]) -> frozenset[int]:
    """The roots that are there and all that descend from them."""
    wanted = frozenset(roots)
    return frozenset(pid for pid in stats if not wanted.isdisjoint(ancestors(pid, stats)))


def root_of(pid: int, stats: Mapping[int, ProcessStat], own: int) -> int:
    """The highest ancestor that is still of the same program as pid, which may be itself.

    A router's parent is its launcher, whose other children are the shards. Not above it: process 1,
    what the client (own) descends from, which started both; another session, for a supervisor, a
    container's runtime or a terminal gives each program its own; a shell at a terminal, which leads
    the session and puts each of its jobs into a group.
    """
    ours = frozenset(ancestors(own, stats))
    while True:
        here = stats[pid]
        above = stats.get(here.parent)
        if above is None or above.pid <= 1 or above.pid in ours or above.session != here.session:
            return pid
        shell = above.pid == above.session and above.terminal != 0
        if shell and above.group != here.group:
            return pid
        pid = above.pid


def listeners(
    addresses: Iterable[str], port: int, pids: Iterable[int], proc: Path = PROC
) -> frozenset[int]:
    """Those of pids with a listening TCP socket at one of these addresses of this machine.

    Empty where there is none in this network namespace, or it is of a process whose open files
    this user may not see.
    """
    wanted = frozenset(_plain(ip_address(address)) for address in addresses)
    inodes = {
        inode
        for inode, at, at_port in _sockets(_LISTEN, _ADDRESS, proc)
        if at_port == port and (at.is_unspecified or at in wanted)
    }
    if not inodes:
        return frozenset()
    return frozenset(pid for pid in pids if not inodes.isdisjoint(_open(pid, proc)))


def connected_to(pids: Iterable[int], proc: Path = PROC) -> frozenset[tuple[str, int]]:
    """(address, port) of the other end of each of their TCP connections to a port at which
    something here listens: those of their clients are none."""
    listening = {port for _, _, port in _sockets(_LISTEN, _ADDRESS, proc)}
    ends = _sockets(_ESTABLISHED, _REMOTE, proc, listening)
    theirs = {link for pid in pids for link in _open(pid, proc)} if ends else set()
    return frozenset((str(at), port) for inode, at, port in ends if inode in theirs)


def _sockets(
    state: str, end: int, proc: Path, ports: Container[int] | None = None
) -> list[tuple[str, Address, int]]:
    """("socket:[<inode>]", address, port) of each in that state; end: _ADDRESS or _REMOTE. ports:
    of that end; None for all."""
    found = []
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "self/net" / table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue  # a kernel without IPv6
        for fields in map(str.split, lines):
            if len(fields) > _INODE and fields[_STATE] == state:
                address, _, digits = fields[end].partition(":")
                port = int(digits, 16)
                if ports is None or port in ports:
                    found.append((f"socket:[{fields[_INODE]}]", _address(address), port))
    return found


def _address(text: str) -> Address:
    """Of words of 32 bits in hexadecimal digits, each in the machine's own order of bytes."""
    words = (int(text[at : at + 8], 16) for at in range(0, len(text), 8))
    return _plain(ip_address(b"".join(word.to_bytes(4, sys.byteorder) for word in words)))


def _plain(address: Address) -> Address:
    """An IPv4 address that is written as one of IPv6 as what it is."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _open(pid: int, proc: Path) -> list[str]:
    """What its open files link to; [] where it ended, or is another user's."""
    folder = proc / str(pid) / "fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    links = []
    for name in names:
        try:
            links.append(os.readlink(folder / name))
        except OSError:
            continue  # closed meanwhile
    return links

"""What of this machine's CPU a server on it had during a load, and what it waited for a core.

The client's own waits too, from the kernel's account of its threads.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from tgi_bench.load_observation import ServerCpu, ServerHost, Untold
from tgi_bench.process_tree import (
    PROC,
    ProcessStat,
    all_stats,
    connected_to,
    listeners,
    root_of,
    ticks_ns,
    tree,
)

_THREADS = Path("/proc/self/task")


class CoreWait:
    """The account as it is at this moment: by thread, the time in which it could have run and had
    no core. Empty where the kernel does not say (schedstat of Linux)."""

    def __init__(self) -> None:
        self._by_thread: dict[str, int] = {}
        try:
            for thread in _THREADS.iterdir():
                self._read(thread)
        except (OSError, ValueError, IndexError):
            self._by_thread = {}

    def _read(self, thread: Path) -> None:
        try:
            text = (thread / "schedstat").read_text(encoding="ascii")
        except (FileNotFoundError, ProcessLookupError):
            return  # it has ended since it was listed, or the kernel keeps no such account
        self._by_thread[thread.name] = int(text.split()[1])

    def until_ns(self, later: CoreWait) -> int | None:
        """The longest that one thread waited from then until `later`; None where nobody says.

        Waits of several threads lie beside each other or are of none that an answer waited for:
        their sum would be more than was lost.
        """
        if not self._by_thread or not later._by_thread:
            return None
        return max(
            waited - self._by_thread.get(thread, 0) for thread, waited in later._by_thread.items()
        )


_BUSY = (1, 2, 3, 6, 7, 8)
"""user, nice, system, irq, softirq, steal: all but idle and iowait; guests are in user."""
_FORWARDERS = frozenset(
    {"docker-proxy", "rootlessport", "rootlesskit", "slirp4netns", "pasta", "kubectl", "ssh"}
    | {"socat", "haproxy", "nginx", "envoy", "traefik", "caddy"}
)
"""They listen for a server that is somewhere else: theirs is not its tree."""

Found = tuple[int, ...] | Untold


def server_roots(url: str, proc: Path = PROC) -> Found:
    """The processes from which all of the server at this URL descend, or why nobody can tell."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    addresses = _own_addresses(parts.hostname, port) if parts.hostname else []
    if not addresses:
        return Untold.ELSEWHERE
    stats, own = all_stats(proc), os.getpid()
    if own not in stats:
        return Untold.SYSTEM
    holders = [stats[pid] for pid in listeners(addresses, port, stats, proc)]
    if not holders:
        return Untold.UNSEEN
    if own in (stat.pid for stat in holders):
        return Untold.OWN_PROCESS
    if any(stat.command in _FORWARDERS for stat in holders):
        return Untold.FORWARDED
    return tuple(sorted({root_of(stat.pid, stats, own) for stat in holders}))


def known_roots(url: str) -> tuple[int, ...]:
    """As server_roots; () where nobody can tell."""
    found = server_roots(url)
    return () if isinstance(found, Untold) else found


def _own_addresses(host: str, port: int) -> list[str]:
    """Those of the host that are this machine's: a socket can be bound to them."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [str(place[0]) for family, _, _, _, place in found if _is_own(family, str(place[0]))]


def _is_own(family: int, address: str) -> bool:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


_FIRST_ENDS_NS = 500_000_000
"""Requests run by then, and the burst of the first ones is over."""
_ENDS_REST = 100
"""To look for connections takes longer the more sockets there are: at most 1 % of the time."""

Threads = dict[tuple[int, int], tuple[int, int]]
"""(running, waiting on the run queue) in ns of each thread, by its process's and its own id."""


class HostWatch:
    """From the moment it was made until its end. To make it takes some ten ms, a look some ms."""

    def __init__(self, url: str, proc: Path = PROC) -> None:
        """Of the server that listens at this URL."""
        self._proc = proc
        self._roots = server_roots(url, proc)
        self._began_ns = time.monotonic_ns()
        stats = all_stats(proc)
        self._busy_ns, self._stats = _busy_ns(proc), stats
        self._server_ns = self._of_server(stats)
        self._processes = self._tree(stats)
        self._before = _threads(self._processes, proc)
        self._last: Threads = {}
        self._ends: frozenset[tuple[str, int]] = frozenset()
        self._next_ends_ns = 0
        self._client: tuple[int, ...] = ()
        self._client_before: Threads | None = None
        self._client_last: Threads = {}

    def load_begins(self, workers: Iterable[int]) -> None:
        """From here on the client must not wait for a core. workers: process ids."""
        self._client = (os.getpid(), *workers)
        self._client_before = _threads(self._client, self._proc)
        self._next_ends_ns = time.monotonic_ns() + _FIRST_ENDS_NS

    def look(self) -> None:
        """From time to time: a thread that ends takes its account with it, and a proxy closes its
        connection once a request is answered. Of the processes that were there at the beginning
        alone: to look for others takes longer."""
        self._last |= _threads(self._processes, self._proc) or {}
        if time.monotonic_ns() >= self._next_ends_ns:
            self._see_ends()
        self._client_last |= _threads(self._client, self._proc) or {}

    def end(self, workers: Iterable[int] = ()) -> ServerHost:
        """What came since then; for after the last answer. workers: process ids, of the client."""
        stats, busy_ns = all_stats(self._proc), _busy_ns(self._proc)
        self._processes = self._tree(stats)
        self.look()
        self._see_ends()
        seen, passed_ns = self._server(stats), None
        if busy_ns is not None and self._busy_ns is not None:
            passed_ns = busy_ns - self._busy_ns
        return ServerHost(
            cores=os.cpu_count() or 1,
            wall_ns=time.monotonic_ns() - self._began_ns,
            busy_ns=passed_ns,
            client_ns=sum(self._since(stats, pid) for pid in (os.getpid(), *workers)),
            server=seen if isinstance(seen, ServerCpu) else None,
            untold=seen if isinstance(seen, Untold) else None,
            client_waited_ns=self._client_waited_ns(),
        )

    def _client_waited_ns(self) -> int | None:
        """Of one thread: waits of several lie beside each other, and their sum is more than was
        lost."""
        before = self._client_before
        if not before or not any(ran for ran, _ in before.values()):
            return None  # without CONFIG_SCHED_INFO some kernels give zeros
        return max(
            (
                waited - before.get(name, (0, 0))[1]
                for name, (_, waited) in self._client_last.items()
            ),
            default=None,
        )

    def _server(self, stats: Mapping[int, ProcessStat]) -> ServerCpu | Untold:
        if isinstance(self._roots, Untold):
            return self._roots
        if not self._processes:
            return Untold.ENDED
        if self._hands_on(stats):
            return Untold.FORWARDED
        before = self._before
        if before is None:
            return Untold.SYSTEM
        since = [
            (ran - before.get(name, (0, 0))[0], waited - before.get(name, (0, 0))[1])
            for name, (ran, waited) in self._last.items()
        ]
        return ServerCpu(
            processes=len(self._processes),
            threads=len(since),
            cpu_ns=max(0, self._of_server(stats) - self._server_ns),
            ran_ns=sum(ran for ran, _ in since),
            waited_ns=sum(waited for _, waited in since),
        )

    def _see_ends(self) -> None:
        began_ns = time.monotonic_ns()
        self._ends |= connected_to(self._processes, self._proc)
        now = time.monotonic_ns()
        self._next_ends_ns = now + _ENDS_REST * (now - began_ns)

    def _hands_on(self, stats: Mapping[int, ProcessStat]) -> bool:
        """Whether it was, at a look, connected to a server on this machine that is not of its tree:
        a proxy is, and a server whose workers are those of a service. What that computes is the
        server's."""
        for address, port in self._ends:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            holders = listeners([address], port, stats, self._proc)
            if holders - self._processes - {os.getpid()} and _is_own(family, address):
                return True
        return False

    def _tree(self, stats: Mapping[int, ProcessStat]) -> frozenset[int]:
        return frozenset() if isinstance(self._roots, Untold) else tree(self._roots, stats)

    def _of_server(self, stats: Mapping[int, ProcessStat]) -> int:
        """With those that ended, so that nothing of the tree is lost."""
        return sum(stats[pid].cpu_ns + stats[pid].ended_cpu_ns for pid in self._tree(stats))

    def _since(self, stats: Mapping[int, ProcessStat], pid: int) -> int:
        """CPU time of one process; 0 where it ended."""
        before, now = self._stats.get(pid), stats.get(pid)
        began_ns = 0 if before is None else before.cpu_ns
        return 0 if now is None else max(0, now.cpu_ns - began_ns)


def _threads(pids: Iterable[int], proc: Path) -> Threads | None:
    """None where the kernel does not count the waiting: it needs CONFIG_SCHED_INFO."""
    found: Threads = {}
    for pid in pids:
        try:
            names = os.listdir(proc / str(pid) / "task")
        except OSError:
            continue  # it ended
        for name in names:
            folder = proc / str(pid) / "task" / name
            try:
                ran, waited, _ = (folder / "schedstat").read_text(encoding="ascii").split()
            except OSError:
                if folder.exists():
                    return None
                continue  # it ended
            found[pid, int(name)] = (int(ran), int(waited))
    return found


def _busy_ns(proc: Path) -> int | None:
    """Of all cores since the machine began; None where the kernel does not say."""
    try:
        words = (proc / "stat").read_text(encoding="ascii").split("\n", 1)[0].split()
        if words[:1] != ["cpu"] or len(words) <= max(_BUSY):
            return None
        return ticks_ns(words[i] for i in _BUSY)
    except (OSError, ValueError):
        return None

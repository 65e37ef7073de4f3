"""All that sweeps which no longer run have left: processes, containers, temporary folders."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tgi_bench.errors import LaunchError
from tgi_bench.launch.launcher import Launcher
from tgi_bench.launch.owned_folder import remove_left_of_null_servers
from tgi_bench.launch.owner import DOMAIN_MARK, OWNER_MARK, RUN_MARK, ProcessName, domain
from tgi_bench.launch.sockets import remove_left_folders

_TERM_WAIT_S = 5.0
_KILL_WAIT_S = 2.0
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Orphan:
    """One process that was ended. killed: it did not end on SIGTERM."""

    process: ProcessName
    run_id: str
    killed: bool


def end_orphans() -> tuple[Orphan, ...]:
    """Ends this user's marked processes whose owner no longer lives.

    Those of a living owner, of another user, of another process namespace and of another domain
    are left alone. Raises InputError where the environment names no domain.
    """
    found = dict(_orphans())
    for process in found:
        _signal(process, signal.SIGTERM)
    stubborn = _wait(set(found), _TERM_WAIT_S)
    for process in stubborn:
        _signal(process, signal.SIGKILL)
    _wait(stubborn, _KILL_WAIT_S)
    return tuple(Orphan(process, run_id, process in stubborn) for process, run_id in found.items())


def _orphans() -> Iterator[tuple[ProcessName, str]]:
    """Each orphan and the run it belonged to."""
    own_namespace, own_domain = _namespace(Path("/proc/self")), domain()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal() or int(folder.name) == os.getpid():
            continue
        process = ProcessName.of(int(folder.name))
        environ = _environ(folder)
        owner = ProcessName.parse(environ.get(OWNER_MARK, ""))
        if process is None or owner is None or owner.lives():
            continue
        if environ.get(DOMAIN_MARK, "") != own_domain:
            continue
        # An owner's id means something only in the namespace that gave it.
        if _namespace(folder) == own_namespace:
            yield process, environ.get(RUN_MARK, "")


def _environ(folder: Path) -> dict[str, str]:
    """The process's environment; {} where it is another user's or has ended."""
    try:
        if folder.stat().st_uid != os.getuid():
            return {}
        data = (folder / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.partition("=") for entry in os.fsdecode(data).split("\0"))
    return {name: value for name, equals, value in pairs if equals}


def _namespace(folder: Path) -> str | None:
    try:
        return os.readlink(folder / "ns" / "pid")
    except OSError:
        return None


def _signal(process: ProcessName, number: signal.Signals) -> None:
    if not process.lives():
        return
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return  # ended in between


def _wait(processes: set[ProcessName], timeout_s: float) -> set[ProcessName]:
    """Those that live when the time is over."""
    deadline = time.monotonic() + timeout_s
    living = {p for p in processes if p.lives()}
    while living and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        living = {p for p in living if p.lives()}
    return living


@dataclass(frozen=True, slots=True)
class Left:
    """What was found and ended. by_launchers: a sentence for each. folders: of sockets.

    not_asked: what could not be looked for, and why, a sentence each.
    """

    processes: tuple[Orphan, ...]
    by_launchers: tuple[str, ...]
    folders: tuple[Path, ...]
    not_asked: tuple[str, ...] = ()
    null_server_folders: tuple[Path, ...] = ()

    def sentences(self) -> tuple[str, ...]:
        """What was done, a line each; () where nothing was left."""
        runs = Counter(orphan.run_id for orphan in self.processes)
        ended = (
            f"ended {count} {'process' if count == 1 else 'processes'} that the killed sweep of "
            f"{run_id} had left"
            for run_id, count in runs.items()
        )
        removed = (f"removed the socket folder {folder}" for folder in self.folders)
        others = (f"removed the null server's folder {one}" for one in self.null_server_folders)
        return (*ended, *self.by_launchers, *removed, *others)


def end_left(launchers: Iterable[type[Launcher]]) -> Left:
    """Ends what has no living owner any more, and nothing else.

    launchers: which are asked, beside the processes and folders of this machine.
    """
    processes = end_orphans()
    found: list[str] = []
    not_asked: list[str] = []
    for launcher in launchers:
        try:
            found += launcher.end_left()
        except LaunchError as error:
            not_asked.append(f"{launcher.leaves} were not looked for: {error}")
    # Last: what has ended holds no socket any more.
    folders = remove_left_folders()
    null_servers = remove_left_of_null_servers()
    return Left(processes, tuple(found), folders, tuple(not_asked), null_servers)

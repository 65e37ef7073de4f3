"""What a sweep owns, and all that sweeps which no longer run have left: processes and folders.

A process is named by its id and its start time, since ids are used again. A folder is locked by
its owner: the kernel frees the lock when the owner ends, so a later run knows which were left, in
whatever process namespace they were made.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tgi_bench.errors import InputError, LaunchError
from tgi_bench.launch.launcher import Launcher

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


_PREFIX = "tgi-bench.sockets."
_STEM = "shard"
_MOST_BYTES = 107
"""Of a unix socket's path; the kernel's field has 108 with the ending zero."""
_LONGEST_RANK = "-99"


@contextmanager
def socket_folder() -> Iterator[Path]:
    """A stem for sockets ("<stem>-<rank>") in a new folder of mode 700, removed at the end."""
    parent = _parents()[0]
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(owned_folder(parent, _PREFIX))
        except OSError as error:
            raise LaunchError(f"no folder for sockets in {parent}: {error.strerror}") from error
        yield folder / _STEM


def remove_left_folders() -> tuple[Path, ...]:
    """Removes the socket folders of this user whose owners no longer live; says which."""
    return remove_left(_parents(), _PREFIX)


def _parents() -> tuple[Path, ...]:
    """The folders for temporary files whose path leaves room for a socket's name."""
    found = dict.fromkeys((Path(tempfile.gettempdir()), Path("/tmp")))
    longest = f"/{of_domain(_PREFIX)}{'x' * ENDING_CHARACTERS}/{_STEM}{_LONGEST_RANK}"
    return tuple(p for p in found if len(os.fsencode(p)) + len(longest) <= _MOST_BYTES)


NULL_SERVER = "tgi-bench.null-server."
"""Prefix of the folders that null servers log into."""
ENDING_CHARACTERS = 8
"""What `tempfile` puts after a prefix."""
_NEW = "tgi-bench.new."
_ENDING = rf"[a-z0-9_]{{{ENDING_CHARACTERS}}}"


@contextmanager
def owned_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A new folder of mode 700 below parent, removed at the end. Raises OSError."""
    new = Path(tempfile.mkdtemp(prefix=_NEW, dir=parent))
    folder = parent / new.name.replace(_NEW, of_domain(prefix), 1)
    lock = os.open(new, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Locked first, named second: under this name no folder is ever seen unlocked.
        fcntl.flock(lock, fcntl.LOCK_EX)
        new.rename(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_left(parents: Iterable[Path], prefix: str) -> tuple[Path, ...]:
    """Removes this user's folders of that prefix and this domain whose owners no longer live.

    Says which. Only names as `owned_folder` makes them: what somebody else called alike is not
    touched.
    """
    prefix = of_domain(prefix)
    name = re.compile(re.escape(prefix) + _ENDING, re.ASCII)
    return tuple(
        folder
        for parent in parents
        for folder in sorted(parent.glob(f"{prefix}*"))
        if name.fullmatch(folder.name) and _remove_if_left(folder)
    )


def of_domain(prefix: str) -> str:
    """The prefix with this domain's name: `_ENDING` has no dot, so it is no other's ending."""
    return f"{prefix}{named}." if (named := domain()) else prefix


def remove_left_of_null_servers() -> tuple[Path, ...]:
    """`remove_left` of the folders that null servers log into."""
    return remove_left((Path(tempfile.gettempdir()),), NULL_SERVER)


def _remove_if_left(folder: Path) -> bool:
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False  # gone in between, or another user's, or no folder
    try:
        if os.fstat(lock).st_uid != os.getuid():
            return False
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()
    finally:
        os.close(lock)


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

"""Which GPUs of the host a deployment gets: never one that another running one holds.

A held GPU is a locked file in /tmp (the kernel frees it when its owner ends) and a label of a
running container (which may outlive its owner, or be of another machine's sweep).
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tgi_bench.errors import LaunchError

ALL = "all"
_FOLDER = Path("/tmp")
_CHOOSING = "choosing"
_NVIDIA_SMI_S = 20


@dataclass(frozen=True, slots=True)
class HostGpu:
    """One GPU of this host."""

    index: str
    uuid: str


@dataclass(frozen=True, slots=True)
class Gpus:
    """GPUs that are held. ids: which; () where the host does not say which it has.

    count: how many; -1 is all of them.
    """

    ids: tuple[str, ...]
    count: int

    @property
    def label(self) -> tuple[str, ...]:
        """What a container's label says of them."""
        if self.ids or self.count == 0:
            return self.ids
        return (ALL,)


NONE = Gpus((), 0)


def host_gpus() -> tuple[HostGpu, ...]:
    """This host's NVIDIA GPUs as nvidia-smi lists them; () where it cannot be asked."""
    command = ["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=_NVIDIA_SMI_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    rows = [[cell.strip() for cell in row.split(",")] for row in answer.stdout.splitlines()]
    return tuple(HostGpu(row[0], row[1]) for row in rows if len(row) == 2 and row[0].isdecimal())


@contextmanager
def held(
    request: str, host: Sequence[HostGpu], taken: Collection[str], locks: bool = True
) -> Iterator[Gpus]:
    """GPUs that are this deployment's alone while the context lasts.

    request: "all", a count, or ids or UUIDs joined by commas. host: its GPUs, () if not known.
    taken: what labels of running containers name. locks: False where the GPUs are another
    machine's, whose files cannot be locked.
    Raises LaunchError where there are too few, or one is held by another deployment.
    """
    with ExitStack() as stack:
        names = _Names(host, frozenset(taken), stack if locks else None)
        with _choosing(locks):
            chosen = _choose(request, names)
        yield chosen


@dataclass(frozen=True, slots=True)
class _Names:
    """stack: keeps the locks; None where nothing is locked."""

    host: Sequence[HostGpu]
    taken: frozenset[str]
    stack: ExitStack | None

    def take(self, name: str) -> bool:
        """Hold one GPU; False where another deployment does."""
        if name in self.taken or (ALL in self.taken and not self.host):
            return False
        return self.stack is None or self.stack.enter_context(_locked(name))

    def indices(self) -> tuple[str, ...]:
        return tuple(gpu.index for gpu in self.host)

    def index(self, text: str) -> str:
        """A UUID's index where it is known: one GPU must have one name."""
        return next((gpu.index for gpu in self.host if gpu.uuid == text), text)


def _choose(request: str, names: _Names) -> Gpus:
    if request.isdecimal():
        return _some(int(request), names)
    if request == ALL and not names.host:
        return _unnamed(-1, names)
    ids = names.indices() if request == ALL else _listed(request, names)
    for name in ids:
        if not names.take(name):
            raise LaunchError(f"GPU {name} is held by another running deployment of tgi-bench")
    return Gpus(ids, len(ids))


def _listed(request: str, names: _Names) -> tuple[str, ...]:
    ids = tuple(names.index(text.strip()) for text in request.split(",") if text.strip())
    # A part of a GPU (MIG-..., 0:1) is in no list; the engine refuses it where it is wrong.
    whole = [name for name in ids if name.isdecimal() or name.startswith("GPU-")]
    unknown = [name for name in whole if names.host and name not in names.indices()]
    if unknown:
        raise LaunchError(
            f"GPU {unknown[0]} does not exist: this host has {', '.join(names.indices())}"
        )
    if len(set(ids)) != len(ids):
        raise LaunchError(f"server.docker.gpus names a GPU twice: {request}")
    return ids


def _some(count: int, names: _Names) -> Gpus:
    if count == 0:
        return NONE
    if not names.host:
        return _unnamed(count, names)
    chosen: list[str] = []
    for name in names.indices():
        if len(chosen) < count and names.take(name):
            chosen.append(name)
    if len(chosen) < count:
        others = len(names.host) - len(chosen)
        held_words = f", of which other running deployments hold {others}" if others else ""
        raise LaunchError(
            f"too few GPUs: {count} are needed and this host has {len(names.host)}{held_words}"
        )
    return Gpus(tuple(chosen), count)


def _unnamed(count: int, names: _Names) -> Gpus:
    """The engine gives the first ones to everybody: only one deployment at a time may ask."""
    if names.taken or not names.take(ALL):
        raise LaunchError(
            "another running deployment of tgi-bench holds GPUs, and without nvidia-smi on this "
            "machine nobody can tell which: name them with server.docker.gpus"
        )
    return Gpus((), count)


@contextmanager
def _choosing(locks: bool) -> Iterator[None]:
    """One at a time: two that take a GPU each must not both find too few."""
    if not locks:
        yield
        return
    lock = _opened(_CHOOSING)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


@contextmanager
def _locked(name: str) -> Iterator[bool]:
    """Whether the lock of that GPU is ours while the context lasts."""
    lock = _opened(name)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        free = True
    except BlockingIOError:
        free = False
    try:
        yield free
    finally:
        os.close(lock)


def _opened(name: str) -> int:
    """The file of a lock; made by whoever came first, read by everybody."""
    path = _FOLDER / f"tgi-bench-gpu-{re.sub(r'[^A-Za-z0-9-]', '_', name)}.lock"
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            # Never O_CREAT on a file that is there: the kernel may refuse another user's.
            return os.open(path, flags | os.O_CREAT, 0o644)
    except OSError as error:
        raise LaunchError(f"{path} cannot be opened: {error.strerror}") from error

"""This process's own memory on Linux: how much there is, and a limit to what it may take;
and what the engine raises where memory does not suffice. Imports no torch.

A CPU has no allocator of its own that fails: without a limit the kernel ends a process, maybe
another one, once memory is gone. RLIMIT_DATA makes the allocation fail that goes beyond it. It
counts private writable memory, not the libraries and the files of weights that are mapped.
Source: setrlimit(2), proc(5), cgroups(7).
"""

from __future__ import annotations

import resource
from pathlib import Path

_KIB = 1024
_STATUS = Path("/proc/self/status")
_MEMORY = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int | None:
    """Memory that processes can take now without swapping: of the machine, or what the cgroup
    has left where that is less. None where the system does not say (not Linux)."""
    free = _kib_line(_MEMORY, "MemAvailable")
    if free is None:
        return None
    limit, taken = _number(_CGROUP / "memory.max"), _number(_CGROUP / "memory.current")
    if limit is None or taken is None:
        return free
    return max(0, min(free, limit - taken))


def data_bytes() -> int | None:
    """Private writable memory of this process; what RLIMIT_DATA counts. None as above."""
    return _kib_line(_STATUS, "VmData")


def peak_bytes() -> int | None:
    """The most memory that was resident in this process since it began. None as above."""
    return _kib_line(_STATUS, "VmHWM")


def limit_data(more_bytes: int) -> None:
    """From now on allocations fail that take more than `more_bytes` beside what is taken.

    Raises RuntimeError where the system has no such limit; a lower limit in force stays.
    """
    taken = data_bytes()
    if taken is None:
        raise RuntimeError("this system does not limit a process's memory: Linux does")
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    in_force = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    limit = min([taken + max(0, more_bytes), *in_force])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


def data_limit_bytes() -> int | None:
    """The limit in force, of RLIMIT_DATA or RLIMIT_AS, the lower one; None where there is none."""
    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_DATA, resource.RLIMIT_AS)]
    set_ones = [limit for limit in limits if limit != resource.RLIM_INFINITY]
    return min(set_ones) if set_ones else None


def _kib_line(file: Path, name: str) -> int | None:
    try:
        lines = file.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    found = next((line for line in lines if line.startswith(f"{name}:")), None)
    return None if found is None else int(found.split()[1]) * _KIB


def _number(file: Path) -> int | None:
    """None: there is no such file, or it says "max"."""
    try:
        text = file.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


_GIB = 2**30
_MIB = 2**20


class OutOfMemory(RuntimeError):  # noqa: N818 - as torch calls it
    """An allocation failed. The message is torch's on CUDA, and in its form on the CPU:

    "CPU out of memory. Tried to allocate 3.00 GiB. ..."
    """


def size_text(value: float) -> str:
    """Bytes as torch prints them: "7.66 GiB", "20.00 MiB", "0 bytes"."""
    if value >= _GIB:
        return f"{value / _GIB:.2f} GiB"
    if value >= _MIB:
        return f"{value / _MIB:.2f} MiB"
    return f"{value / 1024:.2f} KiB" if value >= 1024 else f"{int(value)} bytes"

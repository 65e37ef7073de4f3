"""What proves that memory ran out, and whose: words of allocators, and the kernel's own count.

A process that was killed is no proof by itself: whoever may send a signal can kill one.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from tgi_bench.observation import Outcome

_DEVICE = re.compile(
    r"\b[A-Z]{3,4} out of memory|(?:CUDA|HIP) error: out of memory"
    r"|cudaErrorMemoryAllocation|hipErrorOutOfMemory|CUDA_ERROR_OUT_OF_MEMORY"
    r"|(?:cuda|hip)Malloc\w* failed: out of memory|(?:CUBLAS|HIPBLAS)_STATUS_ALLOC_FAILED"
    r"|\bOutOfMemoryError\b|Out of available cache blocks|Not enough memory to handle"
)
_CPU = re.compile(r"DefaultCPUAllocator|can't allocate memory|std::bad_alloc|\bMemoryError\b")
_HOST = re.compile(r"Cannot allocate memory")
"""The system's own ENOMEM, of any call: no device was asked."""

_EVENTS = "memory.events"
_CONTROL = "memory.oom_control"
_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def out_of_memory(text: str, device_type: str | None = None) -> Outcome | None:
    """OUT_OF_MEMORY or HOST_OUT_OF_MEMORY where a message says so; None where it does not.

    device_type: as in "cuda"; None: not known. An allocator of the CPU ran out of the host's
    memory where the device is another, and of the device's own where it is the CPU or not known.
    """
    if _DEVICE.search(text):
        return Outcome.OUT_OF_MEMORY
    if _CPU.search(text):
        own = device_type in (None, "cpu")
        return Outcome.OUT_OF_MEMORY if own else Outcome.HOST_OUT_OF_MEMORY
    return Outcome.HOST_OUT_OF_MEMORY if _HOST.search(text) else None


@dataclass(frozen=True, slots=True)
class KillCounter:
    """How many processes of a cgroup the kernel killed for want of memory, ever.

    file: the cgroup's memory.events (v2, with its descendants) or memory.oom_control (v1); None
    where the process is in none that counts.
    """

    file: Path | None

    @classmethod
    def of(cls, pid: int | None = None, proc: Path = Path("/proc")) -> KillCounter:
        """Of a process's own cgroup; None: of this process's."""
        folder = proc / str(os.getpid() if pid is None else pid)
        cgroups, mounts = _text(folder / "cgroup"), _text(folder / "mountinfo")
        for line in cgroups.splitlines():
            _, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            v1 = "memory" in controllers.split(",")
            if v1 or not controllers:
                name = _CONTROL if v1 else _EVENTS
                found = _below_mount(mounts, "memory" if v1 else None, path, name)
                if found is not None:
                    return cls(found)
        return cls(None)

    def read(self) -> int:
        """The count; 0 where none is kept."""
        found = _COUNT.search(_text(self.file)) if self.file is not None else None
        return int(found[1]) if found is not None else 0


def _below_mount(mountinfo: str, controller: str | None, path: str, name: str) -> Path | None:
    """The cgroup's file; None where its hierarchy is not mounted, or has no such file.

    controller: None of cgroup v2. A container sees its own cgroup as its mount's root.
    """
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, of_type = before.split(), after.split()
        if len(fields) < 5 or len(of_type) < 3:
            continue
        root, point = fields[3], Path(fields[4])
        kind = "cgroup2" if controller is None else "cgroup"
        if of_type[0] != kind or (controller and controller not in of_type[2].split(",")):
            continue
        inside = path.removeprefix(root) if root != "/" and path.startswith(root) else path
        for folder in (point / inside.lstrip("/"), point):
            if _COUNT.search(_text(folder / name)):
                return folder / name
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

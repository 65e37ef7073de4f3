"""Which devices are to be sampled, and by which program. Light: a load waits for its import."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")
PROGRAM = (sys.executable, "-m", "tgi_bench.record.telemetry_sampler")
RAPL_ZONES = "intel-rapl:*"
"""The kernel's name for AMD's counters too."""
_DRIVERS = (Path("/dev/nvidiactl"), Path("/dev/dxg"))
"""Of NVIDIA on Linux, and on Windows' Linux."""


class Whose(StrEnum):
    """How the deployment's processes are known."""

    CHILDREN = "children"
    """They descend from the sweep, and came after it began."""
    SERVER = "server"
    """They are of the tree of what listens at the server's address, since whenever."""
    CONTAINER = "container"
    """They are in a container, and were not there before it was started."""
    UNKNOWN = "unknown"
    """They were there before: nobody can tell."""


@dataclass(frozen=True, slots=True)
class Take:
    """Which devices to sample.

    gpus: of this machine, by NVML's number or UUID, in the deployment's order; None: all.
    count: how many of them, from the first, where no process of the deployment shows which.
    cpu: whether RAPL is read. whose: the processes on GPUs. roots: process ids; the sweep's,
        or of whose SERVER the server's.
    """

    gpus: tuple[str, ...] | None
    count: int
    cpu: bool
    whose: Whose
    roots: tuple[int, ...]


def why_nothing_to_sample(powercap: Path = POWERCAP) -> str:
    """Why no sampler need be started on this machine; empty where one may find a device."""
    if any(path.exists() for path in _DRIVERS) or any(powercap.glob(RAPL_ZONES)):
        return ""
    return "this machine has no NVIDIA driver and no RAPL counter"

"""Which devices are to be sampled, and what the sweep and its sampler say to each other.

Light: a load waits for its import. The two say a line each. To the sampler: a Take, then BEGIN and
END for each trial. From it: Taken once after the Take, a Tick for each time that it sampled, Ended
after the Tick that END asks for.
"""

from __future__ import annotations

import os
import sys
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from pathlib import Path

from tgi_bench.devices.observation import Device, DeviceSample

POWERCAP = Path("/sys/class/powercap")
PROGRAM = (sys.executable, "-m", "tgi_bench.devices.sampler")
RAPL_ZONES = "intel-rapl:*"
"""The kernel's name for AMD's counters too."""
_DRIVERS = (Path("/dev/nvidiactl"), Path("/dev/dxg"))
"""Of NVIDIA on Linux, and on Windows' Linux."""


SIMULATED = "the server simulates: no device computes"
ELSEWHERE = "the server is another machine's"


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


def own_devices(count: int, environ: Mapping[str, str], cpu_only: bool = False) -> Take:
    """Those of processes that descend from this one: `count` GPUs of those it may use, and RAPL.

    The first ones, where no process is seen to compute on any when the devices are chosen.

    environ: CUDA_VISIBLE_DEVICES says which it may use.
    """
    gpus = () if cpu_only else listed_gpus(environ.get("CUDA_VISIBLE_DEVICES"))
    return Take(gpus, count, True, Whose.CHILDREN, (os.getpid(),))


def listed_gpus(text: str | None) -> tuple[str, ...] | None:
    """CUDA's list of devices: numbers or UUIDs up to the first that is none; None: all."""
    if text is None:
        return None
    names: list[str] = []
    for name in (part.strip() for part in text.split(",")):
        if not (name.isdecimal() or name.startswith(("GPU-", "MIG-"))):
            break
        names.append(name)
    return tuple(names)


class Word(Enum):
    """What a sampler that has its devices is told."""

    BEGIN = "begin"
    END = "end"


@dataclass(frozen=True, slots=True)
class Taken:
    """absent: why there is none of a kind that was asked for; empty where there is."""

    devices: tuple[Device, ...]
    absent: str


@dataclass(frozen=True, slots=True)
class Tick:
    """All devices once. cpu_ns: of the sampler's process so far. period_ns: until the next."""

    cpu_ns: int
    period_ns: int
    samples: tuple[DeviceSample, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """Everything up to `end` has been written."""


Command = Take | Word
Said = Taken | Tick | Ended


def line_of(told: Command | Said) -> bytes:
    """A value as a line for the other one, which is a process of this program too."""
    import pickle  # only here: a load on a machine without devices does not wait for it

    return b64encode(pickle.dumps(told)) + b"\n"


def read_command(line: bytes) -> Command:
    """What the sweep says. Raises ValueError for anything else."""
    value = _read(line)
    if isinstance(value, Take | Word):
        return value
    raise ValueError(f"no command: {value}")


def read_said(line: bytes) -> Said:
    """What a sampler says. Raises ValueError for anything else."""
    value = _read(line)
    if isinstance(value, Taken | Tick | Ended):
        return value
    raise ValueError(f"nothing that a sampler says: {value}")


def _read(line: bytes) -> object:
    import pickle

    value: object = pickle.loads(b64decode(line))
    return value

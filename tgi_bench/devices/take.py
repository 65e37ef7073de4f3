"""Which devices are to be sampled, and what the sweep and its sampler say to each other.

Light: a load waits for its import. The two say a line of JSON each, as typed values. To the
sampler: take, begin, end. From it: taken once after take, a tick for each time that it sampled,
ended after the tick that end asks for.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from enum import StrEnum
from pathlib import Path

from tgi_bench.devices.observation import Device, DeviceKind, DeviceSample

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


BEGIN, END = "begin", "end"
_TAKE, _TAKEN, _TICK, _ENDED = "take", "taken", "tick", "ended"


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


def command(word: str) -> bytes:
    """BEGIN or END as a line."""
    return _line([word])


def take_line(take: Take) -> bytes:
    """For the sampler."""
    return _line([_TAKE, take.gpus, take.count, take.cpu, take.whose.value, take.roots])


def read_command(line: bytes) -> Take | str:
    """BEGIN, END or a Take. Raises ValueError for anything else."""
    match json.loads(line):
        case [str(word)] if word in (BEGIN, END):
            return word
        case ["take", gpus, int(count), bool(cpu), str(whose), list(roots)]:
            names = None if gpus is None else tuple(map(str, gpus))
            return Take(names, count, cpu, Whose(whose), tuple(map(int, roots)))
        case other:
            raise ValueError(f"no command: {other}")


def said_line(said: Taken | Tick | Ended) -> bytes:
    """For the sweep."""
    match said:
        case Taken(devices, absent):
            return _line([_TAKEN, [astuple(device) for device in devices], absent])
        case Tick(cpu_ns, period_ns, samples):
            return _line([_TICK, cpu_ns, period_ns, [astuple(sample) for sample in samples]])
        case Ended():
            return _line([_ENDED])


def read_said(line: bytes) -> Taken | Tick | Ended:
    """Raises ValueError for anything else."""
    match json.loads(line):
        case ["taken", list(devices), str(absent)]:
            return Taken(tuple(Device(i, DeviceKind(kind), *r) for i, kind, *r in devices), absent)
        case ["tick", int(cpu_ns), int(period_ns), list(samples)]:
            return Tick(cpu_ns, period_ns, tuple(DeviceSample(*cells) for cells in samples))
        case ["ended"]:
            return Ended()
        case other:
            raise ValueError(f"nothing that a sampler says: {other}")


def _line(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"

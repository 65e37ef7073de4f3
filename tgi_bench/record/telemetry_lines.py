"""What the sweep and its sampler say to each other: a line of JSON each, as typed values.

To the sampler: take, begin, end. From it: taken once after take, a tick for each time that it
sampled, ended after the tick that end asks for.
"""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass

from tgi_bench.device_observation import Device, DeviceKind, DeviceSample
from tgi_bench.record.telemetry_take import Take, Whose

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

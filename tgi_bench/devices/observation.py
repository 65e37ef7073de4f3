"""What devices said of themselves while a trial ran, beside what its driver saw.

Nothing here is computed. Times are integer nanoseconds of the monotonic clock that the trial's
own times are of.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag, StrEnum
from typing import Annotated

from tgi_bench.observation import Child, Named, table


class DeviceKind(StrEnum):
    """What a device is; figures of two kinds are never added."""

    GPU = "gpu"
    """Asked through NVML."""
    CPU = "cpu"
    """A RAPL domain: the energy counter of a processor package or of its memory."""


class Throttle(IntFlag):
    """Bits of DeviceSample.throttle that hold the clocks down against the device's will.

    Values: nvmlClocksEventReason* of NVIDIA's nvml.h.
    """

    POWER_CAP = 0x04
    """The power limit holds the clocks down."""
    HW_SLOWDOWN = 0x08
    SW_THERMAL = 0x20
    HW_THERMAL = 0x40
    POWER_BRAKE = 0x80


@dataclass(frozen=True, slots=True)
class Device:
    """One device that was sampled. None: it does not tell.

    index: 0-based, among the devices of one Telemetry. memory_bytes: of the whole device.
    power_limit_mw: as enforced; default_power_limit_mw: as the device comes.
    """

    index: Annotated[int, Named("device")]
    kind: DeviceKind
    name: str
    memory_bytes: int | None
    power_limit_mw: int | None
    default_power_limit_mw: int | None


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """One device at one time. None: it does not tell.

    power_mw: as the device averages it. energy_mj: a counter that only grows.
    memory_bytes: used, by whomever. utilisation: 0 to 1, share of the device's own last period in
    which a kernel ran. throttle: bits of Throttle, and NVML's others.
    others: processes that compute on it and are not the deployment's.
    """

    device: int
    at_ns: int
    power_mw: int | None
    energy_mj: int | None
    memory_bytes: int | None
    utilisation: float | None
    sm_clock_mhz: int | None
    memory_clock_mhz: int | None
    temperature_c: int | None
    throttle: int | None
    others: int | None


Gauges = tuple[tuple[str, float], ...]
"""Name and value of a server's metrics."""


@table("telemetry", key=())
@dataclass(frozen=True, slots=True)
class Telemetry:
    """Everything that was sampled around one attempt at a trial.

    absent: why there are no samples; empty where there are. period_ns: between two samples of a
    device, as asked. cpu_ns, wall_ns: of the sampler's process from its first sample to its last.
    All three are None without samples. samples: by time.
    began, ended: the server's gauges just before and just after; () where it has none.
    """

    absent: str
    period_ns: int | None
    cpu_ns: int | None
    wall_ns: int | None
    devices: Annotated[tuple[Device, ...], Child("telemetry_devices", key=("device",))]
    samples: Annotated[
        tuple[DeviceSample, ...],
        Child("telemetry_samples", key=("at_ns", "device"), of=("telemetry_devices", "device")),
    ]
    began: Gauges
    ended: Gauges


def without_devices(why: str, began: Gauges = (), ended: Gauges = ()) -> Telemetry:
    """A trial whose devices were not sampled."""
    return Telemetry(why, None, None, None, (), (), began, ended)

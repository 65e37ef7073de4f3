"""NVML as a module of two GPUs, with values written down in NVML's units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tgi_bench.devices.sources import NvmlError

Told = TypeVar("Told")

NOT_SUPPORTED, UNKNOWN, LOST = 3, 999, 15


class FakeError(NvmlError):
    """As pynvml's NVMLError: value is the nvmlReturn_t."""

    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes."""

    total: int
    used: int


@dataclass(frozen=True, slots=True)
class Rates:
    """Percent."""

    gpu: int


@dataclass(frozen=True, slots=True)
class Running:
    """A process."""

    pid: int


@dataclass(slots=True)
class Gpu:
    """One GPU. energy_mj, power_mw: one value for each time that it is asked, then the last."""

    name: str = "NVIDIA H100 80GB HBM3"
    uuid: str = "GPU-0"
    energy_mj: tuple[int, ...] = (1_000_000, 1_070_000, 1_140_000)
    power_mw: tuple[int, ...] = (700_000,)
    used: int = 20 << 30
    throttle: int = 0
    limit_mw: int = 700_000
    pids: tuple[int, ...] = ()
    fails: dict[str, int] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)


class FakeNvml:
    """The functions that NvmlDevice asks; handles are the GPUs themselves."""

    NVMLError: type[NvmlError] = FakeError
    nvmlMemory_v2 = 2  # noqa: N815 - NVIDIA's names, here and below

    def __init__(self, *gpus: Gpu, init: int = 0) -> None:
        self.gpus = gpus
        self._init = init

    def nvmlInit(self) -> None:  # noqa: N802
        if self._init:
            raise FakeError(self._init)

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> object:  # noqa: N802
        return self.gpus[index]

    def nvmlDeviceGetUUID(self, handle: object) -> str:  # noqa: N802
        return _ask(handle, "uuid", lambda gpu, _: gpu.uuid)

    def nvmlDeviceGetName(self, handle: object) -> str:  # noqa: N802
        return _ask(handle, "name", lambda gpu, _: gpu.name)

    def nvmlDeviceGetMemoryInfo(  # noqa: N802
        self, handle: object, version: int | None = None
    ) -> Memory:
        # Version 1 counts what the driver reserves as used.
        reserved = 0 if version else 1 << 29
        what = "memory_v2" if version else "memory"
        return _ask(handle, what, lambda gpu, _: Memory(80 << 30, gpu.used + reserved))

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: object) -> int:  # noqa: N802
        return _ask(handle, "limit", lambda gpu, _: gpu.limit_mw)

    def nvmlDeviceGetPowerManagementDefaultLimit(self, handle: object) -> int:  # noqa: N802
        return _ask(handle, "default_limit", lambda gpu, _: 700_000)

    def nvmlDeviceGetPowerUsage(self, handle: object) -> int:  # noqa: N802
        return _ask(handle, "power", lambda gpu, n: gpu.power_mw[min(n, len(gpu.power_mw) - 1)])

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: object) -> int:  # noqa: N802
        return _ask(handle, "energy", lambda gpu, n: gpu.energy_mj[min(n, len(gpu.energy_mj) - 1)])

    def nvmlDeviceGetUtilizationRates(self, handle: object) -> Rates:  # noqa: N802
        return _ask(handle, "utilisation", lambda gpu, _: Rates(97))

    def nvmlDeviceGetClockInfo(self, handle: object, kind: int) -> int:  # noqa: N802
        return _ask(handle, "clock", lambda gpu, _: {1: 1980, 2: 2619}[kind])

    def nvmlDeviceGetTemperature(self, handle: object, sensor: int) -> int:  # noqa: N802
        return _ask(handle, "temperature", lambda gpu, _: 61 + sensor)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: object) -> int:  # noqa: N802
        return _ask(handle, "throttle", lambda gpu, _: gpu.throttle)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: object) -> Sequence[Running]:  # noqa: N802
        return _ask(handle, "processes", lambda gpu, _: [Running(pid) for pid in gpu.pids])


def _ask(handle: object, what: str, tell: Callable[[Gpu, int], Told]) -> Told:
    assert isinstance(handle, Gpu)
    count = handle.asked.get(what, 0)
    handle.asked[what] = count + 1
    if what in handle.fails:
        raise FakeError(handle.fails[what])
    return tell(handle, count)

"""One NVIDIA GPU as NVML tells of it, through nvidia-ml-py."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Protocol, TypeVar, cast

from tgi_bench.device_observation import Device, DeviceKind, DeviceSample
from tgi_bench.record.telemetry_processes import Processes

_SM, _MEMORY = 1, 2  # NVML_CLOCK_SM, NVML_CLOCK_MEM
_GPU_SENSOR = 0  # NVML_TEMPERATURE_GPU
_NEVER = frozenset({3, 4, 13})
"""NVML_ERROR_NOT_SUPPORTED, _NO_PERMISSION, _FUNCTION_NOT_FOUND: asking again brings nothing."""

Told = TypeVar("Told")


class NvmlError(Exception):
    """What NVML raises. value: its nvmlReturn_t."""

    value: int


class _Memory(Protocol):
    @property
    def total(self) -> int: ...
    @property
    def used(self) -> int: ...


class _Utilisation(Protocol):
    @property
    def gpu(self) -> int: ...


class _Process(Protocol):
    @property
    def pid(self) -> int: ...


class Nvml(Protocol):
    """What is used of the module pynvml. Handles are its own."""

    NVMLError: type[NvmlError]
    nvmlMemory_v2: int  # noqa: N815

    def nvmlInit(self) -> None: ...  # noqa: N802 - the names here are NVIDIA's
    def nvmlDeviceGetCount(self) -> int: ...  # noqa: N802
    def nvmlDeviceGetHandleByIndex(self, index: int) -> object: ...  # noqa: N802
    def nvmlDeviceGetUUID(self, handle: object) -> str: ...  # noqa: N802
    def nvmlDeviceGetName(self, handle: object) -> str: ...  # noqa: N802
    def nvmlDeviceGetMemoryInfo(  # noqa: N802
        self, handle: object, version: int | None = None
    ) -> _Memory: ...
    def nvmlDeviceGetEnforcedPowerLimit(self, handle: object) -> int: ...  # noqa: N802
    def nvmlDeviceGetPowerManagementDefaultLimit(self, handle: object) -> int: ...  # noqa: N802
    def nvmlDeviceGetPowerUsage(self, handle: object) -> int: ...  # noqa: N802
    def nvmlDeviceGetTotalEnergyConsumption(self, handle: object) -> int: ...  # noqa: N802
    def nvmlDeviceGetUtilizationRates(self, handle: object) -> _Utilisation: ...  # noqa: N802
    def nvmlDeviceGetClockInfo(self, handle: object, kind: int) -> int: ...  # noqa: N802
    def nvmlDeviceGetTemperature(self, handle: object, sensor: int) -> int: ...  # noqa: N802
    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: object) -> int: ...  # noqa: N802
    def nvmlDeviceGetComputeRunningProcesses(  # noqa: N802
        self, handle: object
    ) -> Sequence[_Process]: ...


def nvml_module() -> Nvml:
    """The module; ImportError where it is not installed."""
    return cast(Nvml, import_module("pynvml"))


class NvmlDevice:
    """One GPU. What it does not tell is None, and asked no more where it never will."""

    def __init__(self, nvml: Nvml, number: int) -> None:
        """number: NVML's own, which is the order on the bus. Raises NVMLError."""
        self._nvml = nvml
        self._handle = nvml.nvmlDeviceGetHandleByIndex(number)
        self._silent: set[Callable[..., object]] = set()
        self.number = number

    @property
    def uuid(self) -> str:
        """ "GPU-..."; empty where it has none."""
        return self._told(self._nvml.nvmlDeviceGetUUID) or ""

    def pids(self) -> frozenset[int] | None:
        """Processes that compute on it; None where it does not say."""
        running = self._told(self._nvml.nvmlDeviceGetComputeRunningProcesses)
        return None if running is None else frozenset(process.pid for process in running)

    def describe(self, index: int) -> Device:
        """index: its place in the Telemetry."""
        nvml = self._nvml
        memory = self._memory()
        return Device(
            index=index,
            kind=DeviceKind.GPU,
            name=self._told(nvml.nvmlDeviceGetName) or "GPU",
            memory_bytes=None if memory is None else memory.total,
            power_limit_mw=self._told(nvml.nvmlDeviceGetEnforcedPowerLimit),
            default_power_limit_mw=self._told(nvml.nvmlDeviceGetPowerManagementDefaultLimit),
        )

    def sample(self, index: int, processes: Processes) -> DeviceSample:
        """What it says now; at_ns is when its energy was asked for."""
        nvml, told = self._nvml, self._told
        at_ns = time.monotonic_ns()
        energy_mj = told(nvml.nvmlDeviceGetTotalEnergyConsumption)
        power_mw = told(nvml.nvmlDeviceGetPowerUsage)
        memory, busy, pids = self._memory(), self._utilisation(), self.pids()
        return DeviceSample(
            device=index,
            at_ns=at_ns,
            power_mw=power_mw,
            energy_mj=energy_mj,
            memory_bytes=None if memory is None else memory.used,
            utilisation=busy,
            sm_clock_mhz=told(nvml.nvmlDeviceGetClockInfo, _SM),
            memory_clock_mhz=told(nvml.nvmlDeviceGetClockInfo, _MEMORY),
            temperature_c=told(nvml.nvmlDeviceGetTemperature, _GPU_SENSOR),
            throttle=told(nvml.nvmlDeviceGetCurrentClocksThrottleReasons),
            others=None if pids is None else processes.others(pids),
        )

    def _memory(self) -> _Memory | None:
        """Without what the driver reserves, where it tells that apart (driver 510)."""
        exact = self._told(self._nvml.nvmlDeviceGetMemoryInfo, self._nvml.nvmlMemory_v2)
        if exact is not None:
            return exact
        try:
            return self._nvml.nvmlDeviceGetMemoryInfo(self._handle)
        except self._nvml.NVMLError:
            return None  # a part of a GPU, or one that was lost

    def _utilisation(self) -> float | None:
        rates = self._told(self._nvml.nvmlDeviceGetUtilizationRates)
        return None if rates is None else rates.gpu / 100

    def _told(self, ask: Callable[..., Told], *more: int) -> Told | None:
        if ask in self._silent:
            return None
        try:
            return ask(self._handle, *more)
        except self._nvml.NVMLError as error:
            if error.value in _NEVER:
                self._silent.add(ask)
            return None

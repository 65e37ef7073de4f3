"""What can be sampled: NVIDIA's GPUs through nvidia-ml-py, processors through Linux's powercap
folder (RAPL of Intel and AMD); and whose the processes on a GPU are.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Protocol, TypeVar, cast

from tgi_bench.devices.observation import Device, DeviceKind, DeviceSample
from tgi_bench.devices.take import POWERCAP, RAPL_ZONES, Whose
from tgi_bench.process_tree import PROC, process_stat

_FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""The machine's own (PROC_PID_INIT_INO of Linux): there NVML's process ids are those of /proc."""
_CONTAINER = re.compile(r"[0-9a-f]{64}")


@dataclass(slots=True)
class Processes:
    """before: process ids on any GPU before the deployment was started. roots: as of Take."""

    whose: Whose
    before: frozenset[int]
    roots: tuple[int, ...]
    proc: Path = PROC
    _own: dict[int, bool] = field(default_factory=dict)

    def others(self, pids: frozenset[int]) -> int | None:
        """How many of them are not the deployment's; None where nobody can tell."""
        if self.whose is Whose.UNKNOWN or (self.whose is Whose.SERVER and not self._sees_all()):
            return None
        # An id that has gone may come back as another process.
        self._own = {pid: own for pid, own in self._own.items() if pid in pids}
        return sum(not self._is_own(pid) for pid in pids)

    def any_own(self, pids: frozenset[int]) -> bool:
        """Whether one of them is known as the deployment's."""
        others = self.others(pids)
        return others is not None and others < len(pids)

    def _is_own(self, pid: int) -> bool:
        if pid not in self._own:
            new = self.whose is Whose.SERVER or pid not in self.before
            self._own[pid] = new and self._belongs(pid)
        return self._own[pid]

    def _belongs(self, pid: int) -> bool:
        """Of one that came later; yes where /proc does not tell: it ended, or we are contained."""
        if not self._sees_all() or _has_ended(pid):
            return True
        if self.whose is Whose.CONTAINER:
            return _CONTAINER.search(self._cgroup(pid)) is not None
        at = pid
        while at > 1 and at not in self.roots:
            stat = process_stat(at, self.proc)
            at = 0 if stat is None else stat.parent
        return at in self.roots

    def _sees_all(self) -> bool:
        try:
            return os.readlink(self.proc / "self/ns/pid") == _FIRST_PID_NAMESPACE
        except OSError:
            return False

    def _cgroup(self, pid: int) -> str:
        """Empty where it is not for us to see."""
        try:
            return (self.proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""


def _has_ended(pid: int) -> bool:
    """Signal 0 is sent to nobody: it only asks."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False  # somebody else's
    return False


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


_UJ_PER_MJ = 1000


class RaplDevice:
    """One domain: a package, or its memory, which is not in the package's counter.

    Raises OSError where its counter cannot be read, ValueError where it is no number.
    """

    def __init__(self, zone: Path, name: str) -> None:
        self._name = name
        self._range_uj = int((zone / "max_energy_range_uj").read_text())
        self._file = os.open(zone / "energy_uj", os.O_RDONLY | os.O_CLOEXEC)
        self._last_uj = self._counter_uj()
        self._passed_uj = 0

    def describe(self, index: int) -> Device:
        """index: its place in the Telemetry."""
        return Device(index, DeviceKind.CPU, self._name, None, None, None)

    def sample(self, index: int, processes: Processes) -> DeviceSample:
        """The counter now, from 0 at the first; whose the processes on it are it does not tell."""
        del processes
        at_ns = time.monotonic_ns()
        now_uj = self._counter_uj()
        # It begins again at 0 after its range, minutes under load.
        self._passed_uj += (now_uj - self._last_uj) % (self._range_uj + 1)
        self._last_uj = now_uj
        energy_mj = self._passed_uj // _UJ_PER_MJ
        return DeviceSample(
            index, at_ns, None, energy_mj, None, None, None, None, None, None, others=None
        )

    def _counter_uj(self) -> int:
        return int(os.pread(self._file, 32, 0))


def rapl_devices(powercap: Path = POWERCAP) -> tuple[tuple[RaplDevice, ...], str]:
    """Every package and its memory; and why there is none, empty where there is one."""
    found: list[RaplDevice] = []
    why = "no RAPL counter"
    for zone in sorted(powercap.glob(RAPL_ZONES)):
        try:
            name = _name(zone)
            if name is not None:
                found.append(RaplDevice(zone, name))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "no number"
            why = f"RAPL counters cannot be read: {reason}"
    return tuple(found), "" if found else why


def _name(zone: Path) -> str | None:
    """ "package-0", "package-0 dram"; None: core, uncore (in the package) and psys (over all)."""
    own = (zone / "name").read_text().strip()
    if own.startswith("package"):
        return own
    if own == "dram":
        # intel-rapl:0:1 lies in intel-rapl:0
        above = zone.parent / zone.name.rpartition(":")[0]
        return f"{(above / 'name').read_text().strip()} dram"
    return None

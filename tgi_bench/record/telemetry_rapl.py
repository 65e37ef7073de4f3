"""The energy counters of processors: Linux's powercap folder (RAPL of Intel and AMD)."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tgi_bench.device_observation import Device, DeviceKind, DeviceSample
from tgi_bench.record.telemetry_processes import Processes
from tgi_bench.record.telemetry_take import POWERCAP, RAPL_ZONES

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

"""A process of its own that samples devices while a trial runs, at a cost that it watches itself.

    python -m tgi_bench.devices.sampler <sweep's process id> [<powercap folder>]

It reads commands from stdin and writes lines to stdout (take). It ends when stdin does, or when the
sweep is no longer its parent: a sweep that was killed leaves none behind.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tgi_bench.devices.observation import Device, DeviceSample
from tgi_bench.devices.sources import Nvml, NvmlDevice, Processes, nvml_module, rapl_devices
from tgi_bench.devices.take import (
    POWERCAP,
    Ended,
    Take,
    Taken,
    Tick,
    Whose,
    Word,
    line_of,
    read_command,
)

SHORTEST_PERIOD_S = 0.1
LONGEST_PERIOD_S = 5.0
MOST_CORE_SHARE = 0.003
"""Of one core, by this process's own CPU time: well below the 0.5 % that are promised."""
_IDLE_LOOK_S = 1.0
_IN, _OUT = 0, 1


class Source(Protocol):
    """A device that can be sampled."""

    def describe(self, index: int) -> Device:
        """What it is; index: its place in the Telemetry."""

    def sample(self, index: int, processes: Processes) -> DeviceSample:
        """What it says now."""


class Machine(Protocol):
    """What there is to sample."""

    def sources(self, take: Take) -> tuple[Sequence[Source], str, Processes]:
        """The devices, why there is none (empty where there is), and whose processes are whose."""


@dataclass(slots=True)
class ThisMachine:
    """GPUs by NVML and processors by RAPL. before: process ids on GPUs when this was made."""

    powercap: Path
    load: Callable[[], Nvml] = nvml_module
    _gpus: tuple[NvmlDevice, ...] = ()
    _why_no_gpu: str = ""
    _before: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        self._gpus, self._why_no_gpu = _gpus(self.load)
        self._before = frozenset(pid for gpu in self._gpus for pid in gpu.pids() or ())

    def sources(self, take: Take) -> tuple[Sequence[Source], str, Processes]:
        """As Machine says."""
        processes = Processes(take.whose, self._before, take.roots)
        gpus = () if take.gpus == () else self._chosen(take)
        if take.whose is Whose.SERVER:
            own = tuple(gpu for gpu in gpus if processes.any_own(gpu.pids() or frozenset()))
            # Of a server whose workers descend from a service of their own, none is seen.
            processes = processes if own else Processes(Whose.UNKNOWN, self._before, take.roots)
            gpus = own or gpus
        cpus, why_no_cpu = rapl_devices(self.powercap) if take.cpu else ((), "")
        found: tuple[Source, ...] = (*gpus, *cpus)
        if found:
            return found, "", processes
        why_no_gpu = "" if take.gpus == () else self._why_no_gpu or "no process computes on a GPU"
        reasons = [why for why in (why_no_gpu, why_no_cpu) if why]
        return (), "; ".join(reasons) or "it computes on no device of this machine", processes

    def _chosen(self, take: Take) -> tuple[NvmlDevice, ...]:
        """Those on which processes came since; without such, the first ones that it may use."""
        allowed = self._gpus
        if take.gpus is not None:
            by_name = {str(gpu.number): gpu for gpu in self._gpus}
            by_name |= {gpu.uuid: gpu for gpu in self._gpus}
            allowed = tuple(by_name[name] for name in take.gpus if name in by_name)
        earlier = frozenset() if take.count == 0 else self._before
        used = tuple(gpu for gpu in allowed if (gpu.pids() or frozenset()) - earlier)
        return used or allowed[: take.count]


def _gpus(load: Callable[[], Nvml]) -> tuple[tuple[NvmlDevice, ...], str]:
    """All of this machine, and why there is none; empty where there is one."""
    try:
        nvml = load()
    except ImportError:
        return (), "nvidia-ml-py is not installed"
    try:
        nvml.nvmlInit()
        found = tuple(NvmlDevice(nvml, number) for number in range(nvml.nvmlDeviceGetCount()))
    except nvml.NVMLError as error:
        return (), f"NVML: {error}"
    return found, "" if found else "no NVIDIA GPU"


@dataclass(slots=True)
class Pace:
    """The period that keeps the process below its share of a core: CPU time of a tick / share."""

    period_s: float = SHORTEST_PERIOD_S
    _ticks: int = 0
    _cpu_s: float = 0.0

    def ticked(self, cpu_s: float) -> None:
        """One more tick took that CPU time."""
        self._ticks += 1
        self._cpu_s += cpu_s
        wanted = self._cpu_s / self._ticks / MOST_CORE_SHARE
        self.period_s = min(max(wanted, SHORTEST_PERIOD_S), LONGEST_PERIOD_S)


@dataclass(slots=True)
class Sampler:
    """Obeys commands of one stream and writes to another, both file descriptors."""

    machine: Machine
    inlet: int = _IN
    outlet: int = _OUT
    pace: Pace = field(default_factory=Pace)
    _sources: Sequence[Source] = ()
    _processes: Processes | None = None
    _due_s: float | None = None
    _read: bytes = b""
    _cpu_s: float = 0.0

    def run(self, parent: int) -> None:
        """Until the commands end or the process of that id is no longer the parent."""
        while os.getppid() == parent:
            timeout_s = _IDLE_LOOK_S
            if self._due_s is not None:
                timeout_s = min(max(self._due_s - time.monotonic(), 0.0), timeout_s)
            if select.select([self.inlet], [], [], timeout_s)[0]:
                if not (received := os.read(self.inlet, 1 << 16)):
                    return
                self._obey(received)
            elif self._due_s is not None and time.monotonic() >= self._due_s:
                self._tick()

    def _obey(self, received: bytes) -> None:
        *lines, self._read = (self._read + received).split(b"\n")
        for line in lines:
            match read_command(line):
                case Take() as take:
                    self._sources, absent, self._processes = self.machine.sources(take)
                    told = tuple(s.describe(i) for i, s in enumerate(self._sources))
                    self._say(Taken(told, absent))
                    self._cpu_s = time.process_time()
                case Word.BEGIN:
                    self._tick()
                case Word.END:
                    self._tick()
                    self._due_s = None
                    self._say(Ended())

    def _tick(self) -> None:
        """Sample every device, write it, and set the next time."""
        if self._processes is None:
            return
        began_s = time.monotonic()
        samples = tuple(s.sample(i, self._processes) for i, s in enumerate(self._sources))
        cpu_ns, period_ns = time.process_time_ns(), round(self.pace.period_s * 1e9)
        self._say(Tick(cpu_ns, period_ns, samples))
        # With what waking up for it took.
        before_s, self._cpu_s = self._cpu_s, time.process_time()
        self.pace.ticked(self._cpu_s - before_s)
        self._due_s = began_s + self.pace.period_s

    def _say(self, said: Taken | Tick | Ended) -> None:
        os.write(self.outlet, line_of(said))


def main() -> None:
    """What the sweep starts."""
    parent, *rest = sys.argv[1:]
    powercap = Path(rest[0]) if rest else POWERCAP
    Sampler(ThisMachine(powercap)).run(int(parent))


if __name__ == "__main__":
    main()

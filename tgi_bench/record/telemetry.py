"""The sampler's process as the sweep sees it: started, told when a trial begins and ends, read.

It writes into memory (memfd), which is read between trials: nobody reads a pipe while steps are
timed, and none can fill.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tgi_bench.device_observation import Gauges, Telemetry, without_devices
from tgi_bench.record.telemetry_lines import (
    BEGIN,
    END,
    Ended,
    Taken,
    Tick,
    command,
    read_said,
    take_line,
)
from tgi_bench.record.telemetry_take import POWERCAP, PROGRAM, Take

_TAKE_S = 10.0
"""NVML may have to wake a device."""
_TICK_S = 2.0
_LOOK_S = 0.0005
_STOP_S = 1.0
_SILENT = "the sampler did not answer"


@dataclass(slots=True)
class DeviceSampling:
    """A sampler's process. taken: the devices that it said it samples; None: it was just asked."""

    _process: subprocess.Popen[bytes]
    _lines: int
    _taken: Taken | None = field(default_factory=lambda: Taken((), "no device was chosen"))
    _said: list[Taken | Tick | Ended] = field(default_factory=list)
    _at: int = 0

    @classmethod
    def start(cls, program: tuple[str, ...] = PROGRAM, powercap: Path = POWERCAP) -> Self:
        """Raises OSError where it cannot be started."""
        lines = os.memfd_create("tgi-bench-telemetry")
        try:
            process = subprocess.Popen(
                [*program, str(os.getpid()), str(powercap)],
                stdin=subprocess.PIPE,
                stdout=lines,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except BaseException:
            os.close(lines)
            raise
        return cls(process, lines)

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def take(self, take: Take) -> None:
        """Choose the devices; `begin` waits for the answer, which is in every Telemetry."""
        self._tell(take_line(take))
        self._taken = None

    def _devices(self) -> Taken:
        if self._taken is None:
            said = self._until(Taken, _TAKE_S)
            self._taken = next((s for s in said if isinstance(s, Taken)), Taken((), _SILENT))
            self._said.clear()
        return self._taken

    def begin(self) -> None:
        """Sample now and then periodically; returns when the first sample is there."""
        if self._devices().devices:
            self._tell(command(BEGIN))
            if not self._until(Tick, _TICK_S):
                self._taken = Taken((), _SILENT)

    def end(self, began: Gauges = ()) -> Telemetry:
        """Sample once more and stop; everything since `begin`. began: the gauges then."""
        taken = self._devices()
        if not taken.devices:
            return without_devices(taken.absent, began)
        self._tell(command(END))
        said = self._until(Ended, _TICK_S)
        ticks = tuple(s for s in said if isinstance(s, Tick))
        self._said.clear()
        if not ticks:
            self._taken = Taken((), _SILENT)
            return without_devices(_SILENT, began)
        os.ftruncate(self._lines, 0)  # all was read; it goes on writing where it was
        samples = tuple(sample for tick in ticks for sample in tick.samples)
        return Telemetry(
            absent="",
            period_ns=ticks[-1].period_ns,
            cpu_ns=ticks[-1].cpu_ns - ticks[0].cpu_ns,
            wall_ns=samples[-1].at_ns - samples[0].at_ns,
            devices=taken.devices,
            samples=samples,
            began=began,
            ended=(),
        )

    def stop(self) -> None:
        """End the process; it holds nothing that is worth waiting for."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # a call into a driver may hang
            self._process.wait()
        os.close(self._lines)

    def _tell(self, line: bytes) -> None:
        if self._process.stdin is None:
            return
        try:
            os.write(self._process.stdin.fileno(), line)
        except BrokenPipeError:
            return  # it has ended: then it does not answer either, which is what is recorded

    def _until(
        self, kind: type[Taken | Tick | Ended], timeout_s: float
    ) -> Sequence[Taken | Tick | Ended]:
        """Everything that it said since the last trial, once something of that kind is there.

        () where that does not come in time.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            over = self._process.poll() is not None or time.monotonic() >= deadline
            more = max(0, os.fstat(self._lines).st_size - self._at)
            new = os.pread(self._lines, more, self._at)
            whole, _, _ = new.rpartition(b"\n")
            if whole:
                self._at += len(whole) + 1
                self._said += map(read_said, whole.split(b"\n"))
            if self._said and isinstance(self._said[-1], kind):
                return self._said
            if over:
                return ()
            time.sleep(_LOOK_S)

"""Telemetry of a sweep: one sampler for each deployment, one record for each attempt at a trial.

The sampler is a process that writes into memory (memfd), which is read between trials: nobody reads
a pipe while steps are timed, and none can fill.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, Self

from tgi_bench.devices.observation import Gauges, Telemetry, without_devices
from tgi_bench.devices.take import (
    POWERCAP,
    PROGRAM,
    SIMULATED,
    Command,
    Ended,
    Said,
    Take,
    Taken,
    Tick,
    Whose,
    Word,
    line_of,
    read_said,
    why_nothing_to_sample,
)

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
    _said: list[Said] = field(default_factory=list)
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
        self._tell(take)
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
            self._tell(Word.BEGIN)
            if not self._until(Tick, _TICK_S):
                self._taken = Taken((), _SILENT)

    def end(self, began: Gauges = ()) -> Telemetry:
        """Sample once more and stop; everything since `begin`. began: the gauges then."""
        taken = self._devices()
        if not taken.devices:
            return without_devices(taken.absent, began)
        self._tell(Word.END)
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

    def _tell(self, told: Command) -> None:
        if self._process.stdin is None:
            return
        try:
            os.write(self._process.stdin.fileno(), line_of(told))
        except BrokenPipeError:
            return  # it has ended: then it does not answer either, which is what is recorded

    def _until(self, kind: type[Taken | Tick | Ended], timeout_s: float) -> Sequence[Said]:
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


AskGauges = Callable[[], Callable[[], Gauges]]
"""Asks a server, and gives what waits for its answer; () is none."""

FindRoots = Callable[[], tuple[int, ...]]


class Recorder(Protocol):
    """Where what was seen is kept: run.db."""

    def add(self, attempt: int, seen: Iterable[object]) -> None:
        """Writes what was sampled around one attempt, once."""

    def add_end_gauges(self, attempt: int, gauges: Gauges) -> None:
        """Adds to it what the server said just after the attempt, once."""


_MOMENT_NS = 500_000_000
"""The end of a trial is the beginning of the next where no more time lies between."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A server that was asked. ended: the attempt that ended then; None: none did."""

    answer: Callable[[], Gauges]
    at_ns: int
    ended: tuple[Recorder, int] | None


@dataclass(slots=True)
class TelemetryWatch:
    """Used by one sweep at a time.

    `of` around what is measured from before its start, `serving` around a server that is ready (or
    `ready`, of what is no server), `during` around each trial.

    enabled: False: nothing is sampled nor read. program, powercap: of the sampler.
    """

    enabled: bool = True
    program: tuple[str, ...] = PROGRAM
    powercap: Path = POWERCAP
    _sampling: DeviceSampling | None = None
    _absent: str = ""
    _take: Take | None = None
    _ask: AskGauges | None = None
    _asked: _Asked | None = None

    @contextmanager
    def of(self, choice: Take | str) -> Iterator[None]:
        """The sampler runs inside; enter it before what is measured is started.

        What computes on a GPU then is somebody else's. choice: the devices, or why there are none.
        """
        self._absent, self._take = "telemetry was turned off", None
        if self.enabled:
            self._start(choice)
        try:
            yield
        finally:
            self._stop()

    def ready(self, simulated: bool = False, roots: FindRoots = tuple) -> None:
        """It runs, or is about to: choose its devices, once. simulated: as it says of itself.

        roots: finds the processes from which those of a server of somebody else descend; () where
        nobody knows.
        """
        if not self.enabled:
            return
        if simulated:
            self._stop()
            self._absent = SIMULATED
        elif self._sampling is not None and self._take is not None:
            take = self._take
            if take.whose is Whose.UNKNOWN and (found := roots()):
                take = replace(take, whose=Whose.SERVER, roots=found)
            self._sampling.take(take)
            self._take = None

    @contextmanager
    def serving(self, simulated: bool, ask: AskGauges, roots: FindRoots = tuple) -> Iterator[None]:
        """`ready`, of a server whose metrics are asked around trials while it runs."""
        self.ready(simulated, roots)
        if self.enabled:
            self._ask = ask
            self._ask_now()
        try:
            yield
        finally:
            self._settle()
            self._ask = None

    @contextmanager
    def during(self, store: Recorder, attempt: int) -> Iterator[None]:
        """Sample what happens inside and record it, where it ends by itself or by an error.

        Nothing is recorded of what a user interrupts. The gauges at the end are asked for then,
        and recorded when the next trial begins or the server is about to stop.
        """
        if not self.enabled:
            yield
            return
        began = self._gauges_now()
        if self._sampling is not None:
            self._sampling.begin()
        try:
            yield
        except Exception:  # not KeyboardInterrupt; it goes on up once what was seen is kept
            self._record((store, attempt), began)
            raise
        self._record((store, attempt), began)

    def _record(self, of: tuple[Recorder, int], began: Gauges) -> None:
        store, attempt = of
        self._ask_now()
        if self._sampling is None:
            seen = without_devices(self._absent, began)
        else:
            seen = self._sampling.end(began)
        store.add(attempt, [seen])
        # Only now is there something that the answer can be added to.
        if self._asked is not None:
            self._asked = replace(self._asked, ended=of)

    def _ask_now(self) -> None:
        if self._ask is not None:
            self._asked = _Asked(self._ask(), time.monotonic_ns(), None)

    def _gauges_now(self) -> Gauges:
        """What was asked a moment ago, else what is asked now."""
        asked = self._asked
        recent = asked is not None and time.monotonic_ns() - asked.at_ns <= _MOMENT_NS
        gauges = self._settle()
        if recent or self._ask is None:
            return gauges
        self._ask_now()
        return self._settle()

    def _settle(self) -> Gauges:
        """Wait for the answer and record whose it is; a server without any is asked no more."""
        asked, self._asked = self._asked, None
        if asked is None:
            return ()
        gauges = asked.answer()
        if not gauges:
            self._ask = None
        elif asked.ended is not None:
            store, attempt = asked.ended
            store.add_end_gauges(attempt, gauges)
        return gauges

    def _start(self, choice: Take | str) -> None:
        if isinstance(choice, str):
            self._absent = choice
            return
        self._absent = why_nothing_to_sample(self.powercap)
        if self._absent:
            return
        self._take = choice
        try:
            self._sampling = DeviceSampling.start(self.program, self.powercap)
        except OSError as error:
            self._absent = f"the sampler could not be started: {error.strerror}"

    def _stop(self) -> None:
        if self._sampling is not None:
            self._sampling.stop()
            self._sampling = None

"""Telemetry of a sweep: one sampler for each deployment, one record for each attempt at a trial."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tgi_bench.device_observation import Gauges, without_devices
from tgi_bench.record.store import RunStore
from tgi_bench.record.telemetry_choice import SIMULATED
from tgi_bench.record.telemetry_take import POWERCAP, PROGRAM, Take, Whose, why_nothing_to_sample

if TYPE_CHECKING:
    from tgi_bench.record.telemetry import DeviceSampling

AskGauges = Callable[[], Callable[[], Gauges]]
"""Asks a server, and gives what waits for its answer; () is none."""

FindRoots = Callable[[], tuple[int, ...]]

_MOMENT_NS = 500_000_000
"""The end of a trial is the beginning of the next where no more time lies between."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A server that was asked. ended: the attempt that ended then; None: none did."""

    answer: Callable[[], Gauges]
    at_ns: int
    ended: tuple[RunStore, str, int] | None


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
    def during(self, store: RunStore, trial_id: str, attempt: int) -> Iterator[None]:
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
            self._record((store, trial_id, attempt), began)
            raise
        self._record((store, trial_id, attempt), began)

    def _record(self, of: tuple[RunStore, str, int], began: Gauges) -> None:
        store, trial_id, attempt = of
        self._ask_now()
        if self._sampling is None:
            seen = without_devices(self._absent, began)
        else:
            seen = self._sampling.end(began)
        store.add_telemetry(trial_id, attempt, seen)
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
            store, trial_id, attempt = asked.ended
            store.add_end_gauges(trial_id, attempt, gauges)
        return gauges

    def _start(self, choice: Take | str) -> None:
        if isinstance(choice, str):
            self._absent = choice
            return
        self._absent = why_nothing_to_sample(self.powercap)
        if self._absent:
            return
        # Only here: a load on a machine without devices does not wait for it.
        from tgi_bench.record.telemetry import DeviceSampling

        self._take = choice
        try:
            self._sampling = DeviceSampling.start(self.program, self.powercap)
        except OSError as error:
            self._absent = f"the sampler could not be started: {error.strerror}"

    def _stop(self) -> None:
        if self._sampling is not None:
            self._sampling.stop()
            self._sampling = None

"""Waiting for a server: /health, then one real token; until then what its log says."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol

import httpx

from tgi_bench.errors import LaunchError
from tgi_bench.launch.cause import decisive_cause, fatal_cause
from tgi_bench.launch.endpoint import Death, Progress
from tgi_bench.launch.log import LogFile, connected, is_launcher
from tgi_bench.launch.phases import StartPhase, last_step
from tgi_bench.launch.probe import NO_KEY, Failure, FirstToken, ServerProbe
from tgi_bench.plan.plan import Timeouts

LOG_LINES_SHOWN = 50
_POLL_S = 0.05
_HEALTH_TIMEOUT_S = 1.0
_DEATH_SHOWS_S = 1.0
"""A launcher whose shard ended takes a moment to end; its exit says more than its log."""
_AGAIN_S = 0.25


class StartingServer(Protocol):
    """A server that was started and may not be ready."""

    @property
    def log(self) -> LogFile:
        """What it wrote since this start."""

    def alive(self) -> bool:
        """Whether it runs."""

    def death(self) -> Death | None:
        """Why it ended, or is about to; None while it runs and its log says nothing of it."""


def wait_until_ready(
    server: StartingServer, probe: ServerProbe, timeouts: Timeouts, progress: Progress
) -> str:
    """The server's URL, once its health path answers 200 and one token was generated there.

    Raises LaunchError with the last 50 log lines: it ended, its log says that a part of it did,
    a phase took longer than its timeout, or it answered the request with an error.
    """
    watch = _Watch(server, timeouts, progress)
    url: str | None = None
    with httpx.Client(timeout=_HEALTH_TIMEOUT_S, trust_env=False) as client:
        while True:
            lines = watch.look()
            url = probe.find_url(lines) or url
            if url is not None and watch.listens:
                status = probe.health(client, url)
                if status == httpx.codes.OK:
                    break
                if status in NO_KEY:
                    watch.give_up(probe.key_missing(status))
            time.sleep(_POLL_S)
        watch.enter(StartPhase.PROBE)
        while (failure := _answer(watch, probe, url)) is not None:
            if not failure.passing:
                watch.give_up(f"its first generation failed: {failure.reason}")
            watch.last_failure = failure.reason
            time.sleep(_AGAIN_S)
        watch.look()
        if watch.broken is not None:  # another program answered at the address
            watch.give_up(watch.broken)
    return url


def _answer(watch: _Watch, probe: ServerProbe, url: str) -> Failure | None:
    """How one request for a token went."""
    watch.look()
    generation = FirstToken(probe, url, watch.left_s())
    while not generation.done(_POLL_S):
        watch.look()
    return generation.failure


@dataclass(slots=True)
class _Watch:
    """A start under way. spent_s: of each phase, which may be left and come back."""

    server: StartingServer
    timeouts: Timeouts
    progress: Progress
    phase: StartPhase = StartPhase.LOAD
    last_failure: str = ""
    spent_s: dict[StartPhase, float] = field(default_factory=dict)
    seen: float = field(default_factory=time.monotonic)
    said: str = ""
    broken: str | None = None
    broken_at: float = 0.0
    is_launcher: bool = False
    connected: bool = False

    @property
    def listens(self) -> bool:
        """False where a launcher's log does not say so yet: another program may answer there."""
        return self.connected or not self.is_launcher

    def look(self) -> tuple[str, ...]:
        """The log's new lines. Raises LaunchError where the start has failed."""
        # Asked before its log is read: what it wrote before its end is then in there.
        alive = self.server.alive()
        lines = self.server.log.read_on()
        if not alive:
            raise self._failed(self._death("it ended"))
        now = time.monotonic()
        self.spent_s[self.phase] = self.spent_s.get(self.phase, 0.0) + now - self.seen
        self.seen = now
        self._read(lines, now)
        if self.left_s() <= 0:
            raise self._failed(self._too_long())
        return lines

    def enter(self, phase: StartPhase) -> None:
        """Another phase begins, whatever the log says."""
        self.phase = phase
        self._say(phase.value)

    def left_s(self) -> float:
        """Of the phase's timeout."""
        return self.phase.timeout_s(self.timeouts) - self.spent_s.get(self.phase, 0.0)

    def give_up(self, cause: str) -> None:
        """Raises LaunchError, with why the server ended where it is about to."""
        until = time.monotonic() + _DEATH_SHOWS_S
        while time.monotonic() < until:
            if not self.server.alive():
                cause = self._death(cause)
                break
            time.sleep(_POLL_S)
        else:
            logged = fatal_cause(self.server.log.lines())
            cause = cause if logged is None else f"{cause} (its log: {logged.text})"
        raise self._failed(cause)

    def _read(self, lines: tuple[str, ...], now: float) -> None:
        self.is_launcher = self.is_launcher or is_launcher(lines)
        self.connected = self.connected or connected(lines)
        step = last_step(lines) if self.phase is not StartPhase.PROBE else None
        if step is not None:
            self.phase = step.phase
            self._say(step.text)
        if self.broken is None and (broken := decisive_cause(lines)) is not None:
            self.broken, self.broken_at = broken.text, now
        if self.broken is not None and now - self.broken_at >= _DEATH_SHOWS_S:
            raise self._failed(self._death(self.broken))

    def _death(self, otherwise: str) -> str:
        death = self.server.death()
        return otherwise if death is None else death.cause

    def _say(self, text: str) -> None:
        if text != self.said:
            self.said = text
            self.progress(text)

    def _too_long(self) -> str:
        seconds = self.phase.timeout_s(self.timeouts)
        doing = self.said or self.phase.value
        why = f": {self.last_failure}" if self.last_failure else ""
        return (
            f"it was not ready within {seconds:g} s ({self.phase.key}) of {self.phase.value}; "
            f"the last that it said: {doing}{why}"
        )

    def _failed(self, cause: str) -> LaunchError:
        return LaunchError(cause, self.server.log.tail(LOG_LINES_SHOWN))

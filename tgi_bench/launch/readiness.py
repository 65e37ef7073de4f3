"""Waiting for a server: /health, then one real token; until then what its log says."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from http.client import OK
from typing import Protocol

from tgi_bench.ask import Asker, Asking, NoAnswerError, contact
from tgi_bench.dialects import first_asked
from tgi_bench.dialects.abilities import asked
from tgi_bench.dialects.dialect import Abilities
from tgi_bench.dialects.identity import Models, asked_by
from tgi_bench.engines.engine import EngineSpec, engine_spec
from tgi_bench.errors import LaunchError
from tgi_bench.http_rules import NO_KEY
from tgi_bench.launch.cause import decisive_cause, fatal_cause
from tgi_bench.launch.deployment import Deployment, Timeouts
from tgi_bench.launch.launcher import Death, Progress
from tgi_bench.launch.log import LogFile, connected, is_launcher, said
from tgi_bench.launch.secrets import bearer
from tgi_bench.load_observation import RequestOutcome, TokenSource


class StartPhase(StrEnum):
    """A part of a start that has a timeout of its own; the text says what it is doing."""

    PULL = "pulling its image"
    DOWNLOAD = "downloading"
    LOAD = "loading"
    PROBE = "generating its first token"

    @property
    def key(self) -> str:
        """The experiment's key of its timeout."""
        return f"server.timeouts.{self.name.lower()}_s"

    def timeout_s(self, timeouts: Timeouts) -> float:
        """How long it may take, in seconds."""
        match self:
            case StartPhase.PULL:
                return timeouts.pull_s
            case StartPhase.DOWNLOAD:
                return timeouts.download_s
            case StartPhase.LOAD:
                return timeouts.load_s
            case StartPhase.PROBE:
                return timeouts.probe_s


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a log says is going on."""

    phase: StartPhase
    text: str


_LINES: tuple[tuple[re.Pattern[str], StartPhase, str], ...] = tuple(
    (re.compile(pattern), phase, words)
    for pattern, phase, words in (
        # text-generation-launcher, its shards and its router
        (r"Starting (?:check and )?download process", StartPhase.DOWNLOAD, "downloading"),
        (
            r"Download: \[(\d+)/(\d+)\] -- ETA: ([\d:. a-z]+)",
            StartPhase.DOWNLOAD,
            "downloading {0} of {1}, {2} left",
        ),
        (r"Download: \[(\d+)/(\d+)\]", StartPhase.DOWNLOAD, "downloading {0} of {1}"),
        (r"Download file: (\S+)", StartPhase.DOWNLOAD, "downloading {0}"),
        (r"Convert: \[(\d+)/(\d+)\]", StartPhase.DOWNLOAD, "converting {0} of {1}"),
        (r"Files are already present", StartPhase.LOAD, "weights are there already"),
        (r"Successfully downloaded weights", StartPhase.LOAD, "loading"),
        (r"Sharding model on (\d+) processes", StartPhase.LOAD, "sharding on {0} processes"),
        (r"Starting shard\b", StartPhase.LOAD, "starting shards"),
        (r"Waiting for shard (?:\d+ )?to be ready", StartPhase.LOAD, "waiting for shards"),
        (r"Shard (?:\d+ )?ready in", StartPhase.LOAD, "shards are ready"),
        (r"Starting Webserver", StartPhase.LOAD, "starting its webserver"),
        (r"Warming up model", StartPhase.LOAD, "warming up"),
        (r"(?:^|: )Connected$", StartPhase.LOAD, "listening"),
        # what the engines print through the hub's library
        (r"Fetching \d+ files:.*?(\d+)/(\d+)", StartPhase.DOWNLOAD, "downloading {0} of {1}"),
        (
            r"(?:safetensors|pt|bin) checkpoint shards:.*?(\d+)/(\d+)",
            StartPhase.LOAD,
            "loading {0} of {1}",
        ),
        # vLLM, SGLang, llama.cpp
        (r"Starting to load model|Load weight begin", StartPhase.LOAD, "loading"),
        (r"Captur(?:e|ing) (?:cuda|CUDA) graph", StartPhase.LOAD, "capturing CUDA graphs"),
        (r"trying to download model from", StartPhase.DOWNLOAD, "downloading"),
        (r"load_model: loading model|main: loading model", StartPhase.LOAD, "loading"),
        (r"warming up the model", StartPhase.LOAD, "warming up"),
    )
)


def last_step(lines: Sequence[str]) -> Step | None:
    """What the last line that says anything of it says; None where none does."""
    return next((step for line in reversed(said(lines)) if (step := _step(line))), None)


def steps(lines: Sequence[str]) -> tuple[Step, ...]:
    """All that the lines say of it, in their order."""
    return tuple(step for line in said(lines) if (step := _step(line)))


def _step(line: str) -> Step | None:
    for pattern, phase, words in _LINES:
        match = pattern.search(line)
        if match is not None:
            return Step(phase, words.format(*(group.strip() for group in match.groups())))
    return None


LOG_LINES_SHOWN = 50
_POLL_S = 0.05
_HEALTH_TIMEOUT_S = 1.0
_DEATH_SHOWS_S = 1.0
"""A launcher whose shard ended takes a moment to end; its exit says more than its log."""
_AGAIN_S = 0.25
_PROMPT = "Hello"


FindUrl = Callable[[Sequence[str]], str | None]
"""Given the log's new lines, the server's URL where they, or anything else, say it."""


@dataclass(frozen=True, slots=True)
class ServerProbe:
    """How a deployment's server is found and asked. headers: sent with every question."""

    spec: EngineSpec
    model: str
    find_url: FindUrl
    headers: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, deployment: Deployment, find_url: FindUrl, environ: dict[str, str]) -> ServerProbe:
        """For a deployment whose server was started with that environment."""
        spec = engine_spec(deployment.engine)
        return cls(spec, deployment.model, find_url, bearer(environ.get(spec.api_key_variable)))

    def key_missing(self, status: int) -> str:
        """That it wants an API key, and where that is named."""
        variable = self.spec.api_key_variable
        another = "another" if self.headers else "an"
        return (
            f"it wants {another} API key (HTTP {status}): name the variable that holds it in "
            f"server.env: [{variable}]"
        )

    def health(self, url: str) -> int | None:
        """The status that its health path answers; None where it does not listen or answer yet."""
        try:
            with Asker(url, Asking(self.headers, timeout_s=_HEALTH_TIMEOUT_S)) as asker:
                return asker.get(self.spec.health_path).status
        except NoAnswerError:
            return None

    def first_token(self, url: str, timeout_s: float) -> Failure | None:
        """Of one request for one token; None where it came."""
        engine, model = self.spec.engine, self.model
        dialect = first_asked(engine)
        if dialect.takes_model:
            served = Models.of(asked_by(contact(url, self.headers))("/v1/models")).names
            model = model if model in served or not served else served[0]
        able = Abilities(dialect, model, engine)
        ask = dialect.ask((("user", _PROMPT),), None, 1)
        try:
            with Asker(url, Asking(self.headers, timeout_s=timeout_s)) as asker:
                reply, reading = asked(asker, able, ask, stream=False)
        except NoAnswerError as error:
            return Failure(str(error), passing=True)
        if reply.status in NO_KEY:
            return Failure(self.key_missing(reply.status), passing=False)
        if reading.outcome is not RequestOutcome.OK:
            return Failure(reading.reason, reading.outcome is RequestOutcome.OVERLOADED)
        tokens = reading.output_tokens
        if tokens != 1 and able.counted_by is TokenSource.SERVER:
            return Failure(f"{tokens} tokens came instead of one", passing=False)
        return None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why no token came. passing: the server may answer otherwise in a moment."""

    reason: str
    passing: bool


class FirstToken:
    """One request for one token, sent from a thread: meanwhile the server is watched."""

    def __init__(self, probe: ServerProbe, url: str, timeout_s: float) -> None:
        self._probe, self._url, self._timeout_s = probe, url, timeout_s
        self.failure: Failure | None = None
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)
        self._thread.start()

    def done(self, wait_s: float) -> bool:
        """Whether it is over, waited for that long."""
        self._thread.join(wait_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        self.failure = self._probe.first_token(self._url, self._timeout_s)


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
    while True:
        lines = watch.look()
        url = probe.find_url(lines) or url
        if url is not None and watch.listens:
            status = probe.health(url)
            if status == OK:
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

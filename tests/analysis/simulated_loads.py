"""Loads of a server that batches by steps, computed and not measured: clean ones, and the same
with one thing wrong, over any number of seeds."""

from __future__ import annotations

import heapq
import random
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from tests.analysis.load_samples import CLIENT, CLOSED, OPEN, STAGE, S
from tgi_bench.load_observation import (
    LoadPart,
    LoadStage,
    RequestObservation,
    RequestOutcome,
    TokenSource,
)
from tgi_bench.trials.load import (
    ClosedLoop,
    Extent,
    Fixed,
    LoadTrial,
    LogNormal,
    OpenLoop,
    Process,
    Uniform,
)

Length = Fixed | Uniform | LogNormal
PROMPT, OUTPUT = Fixed(512), Fixed(64)
_LENGTHS: tuple[tuple[Length, Length], ...] = (
    (PROMPT, OUTPUT),
    (LogNormal(300, 0.8, 16, 4000), LogNormal(60, 0.6, 8, 400)),
    (Uniform(64, 1024), Uniform(16, 128)),
    (Fixed(32), Fixed(16)),
)
Pace = Callable[[float], float]
"""Of the time since the window began, as a share of its length (negative in the warm-up): how many
times as long a step takes that begins then."""


def even(at: float) -> float:
    """Always the same."""
    del at
    return 1.0


@dataclass(frozen=True, slots=True)
class Scene:
    """What is sent to what server.

    concurrency: of a closed loop, or rate_per_s of an open one. prefill_s: of one prompt token,
    decode_s: of one step, more_s: of each sequence of it. jitter: standard deviation of the
    logarithm of a step's time, which lasts a while: one step is like the one before by memory.
    interrupts: whether a prefill stands alone between decode steps, or rides with one. prefill,
    decode: their paces. stalls: (begin, length) in seconds from the window's begin.
    """

    concurrency: int | None = 8
    rate_per_s: float | None = None
    process: Process = Process.POISSON
    prompt: Length = PROMPT
    output: Length = OUTPUT
    duration_s: float = 30.0
    warmup_s: float = 5.0
    prefill_s: float = 60e-6
    decode_s: float = 0.012
    more_s: float = 0.0002
    jitter: float = 0.05
    memory: float = 0.5
    most: int = 64
    interrupts: bool = True
    prefill: Pace = even
    decode: Pace = even
    stalls: tuple[tuple[float, float], ...] = ()
    seed: int = 0


@dataclass(slots=True)
class _Request:
    number: int
    intended_s: float
    prompt: int
    output: int
    events_s: list[float] = field(default_factory=list)


class _Server:
    """One request after another of a scene, by the time of its steps."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._rng = np.random.default_rng(scene.seed)
        self._drift = 0.0
        self._now = 0.0
        self._due: list[tuple[float, int]] = []
        self._number = 0
        self.done: list[_Request] = []
        self._known: dict[int, _Request] = {}
        self._end_s = scene.warmup_s + scene.duration_s

    def run(self) -> list[_Request]:
        """Until the last answer of what was sent before the end."""
        scene = self._scene
        if scene.concurrency is not None:
            for _ in range(scene.concurrency):
                self._send(0.0)
        else:
            self._schedule()
        running: list[_Request] = []
        while self._due or running:
            if not running and self._due and self._due[0][0] > self._now:
                self._now = self._due[0][0]
            joined = self._waiting(scene.most - len(running))
            if joined:
                cost = scene.prefill_s * sum(r.prompt for r in joined)
                cost *= scene.prefill(self._at)
                if not scene.interrupts and running:
                    cost += self._decode_s(len(running))
                self._pass(cost)
                for one in joined:
                    one.events_s.append(self._now)
                if not scene.interrupts:
                    for one in running:
                        one.events_s.append(self._now)
                running += joined
            else:
                self._pass(self._decode_s(len(running)))
                for one in running:
                    one.events_s.append(self._now)
            for one in running:
                if len(one.events_s) >= one.output:
                    self._ended(one)
            running = [one for one in running if len(one.events_s) < one.output]
        return self.done

    @property
    def _at(self) -> float:
        return (self._now - self._scene.warmup_s) / self._scene.duration_s

    def _decode_s(self, sequences: int) -> float:
        return (self._scene.decode_s + self._scene.more_s * sequences) * self._scene.decode(
            self._at
        )

    def _pass(self, seconds: float) -> None:
        scene = self._scene
        self._drift = scene.memory * self._drift + np.sqrt(1 - scene.memory**2) * float(
            self._rng.normal(0, scene.jitter)
        )
        begun = self._now
        self._now += seconds * float(np.exp(self._drift))
        for begin, length in scene.stalls:
            if begun <= begin + scene.warmup_s < self._now:
                self._now += length

    def _send(self, at_s: float) -> None:
        one = _Request(
            self._number,
            at_s,
            _drawn(self._scene.prompt, self._rng),
            _drawn(self._scene.output, self._rng),
        )
        self._known[one.number] = one
        heapq.heappush(self._due, (at_s, one.number))
        self._number += 1

    def _schedule(self) -> None:
        scene = self._scene
        assert scene.rate_per_s is not None
        at = 0.0
        while True:
            constant = scene.process is Process.CONSTANT
            at += (
                1 / scene.rate_per_s
                if constant
                else float(self._rng.exponential(1 / scene.rate_per_s))
            )
            if at >= self._end_s:
                return
            self._send(at)

    def _waiting(self, room: int) -> list[_Request]:
        found: list[_Request] = []
        tokens = 0
        while self._due and self._due[0][0] <= self._now and len(found) < room and tokens < 4096:
            one = self._known.pop(heapq.heappop(self._due)[1])
            tokens += one.prompt
            found.append(one)
        return found

    def _ended(self, one: _Request) -> None:
        self.done.append(one)
        again = self._now + 0.0003
        if self._scene.concurrency is not None and again < self._end_s:
            self._send(again)


def _drawn(length: Length, rng: np.random.Generator) -> int:
    match length:
        case Fixed(tokens):
            return tokens
        case Uniform(lowest, highest):
            return int(rng.integers(lowest, highest + 1))
        case LogNormal(median, sigma, lowest, highest):
            return int(np.clip(round(median * np.exp(rng.normal(0, sigma))), lowest, highest))


def simulated(scene: Scene) -> tuple[LoadTrial, LoadStage, list[RequestObservation]]:
    """The trial, its stage and its requests, in the order of intended; lag and read error: none."""
    warm, end = scene.warmup_s, scene.warmup_s + scene.duration_s
    seen = []
    for number, one in enumerate(sorted(_Server(scene).run(), key=lambda r: r.intended_s)):
        times = array("q", [round(t * S) for t in one.events_s])
        seen.append(
            RequestObservation(
                stage=0,
                request_index=number,
                worker=0,
                part=LoadPart.WARMUP if one.intended_s < warm else LoadPart.MEASURED,
                conversation=number,
                turn=0,
                intended_ns=round(one.intended_s * S),
                sent_ns=round(one.intended_s * S),
                ended_ns=times[-1],
                event_ns=times,
                event_tokens=array("i", [1] * len(times)),
                events=len(times),
                shared_reads=0,
                prompt_tokens_asked=one.prompt,
                prompt_tokens=one.prompt,
                cached_tokens=None,
                output_tokens_asked=one.output,
                output_tokens=one.output,
                counted_by=TokenSource.SERVER,
                finish_reason="length",
                status=200,
                new_connection=False,
                kernel_stamps=True,
                outcome=RequestOutcome.OK,
                reason="",
            )
        )
    extent = Extent(round(scene.duration_s * S), None, round(warm * S), 0, 0, 0, None)
    workload = replace(CLOSED.workload, prompt=scene.prompt, output=scene.output)
    stage = replace(
        STAGE,
        concurrency=scene.concurrency,
        rate_per_s=scene.rate_per_s,
        ended_ns=max(s.ended_ns for s in seen),
        measured_from_ns=round(warm * S),
        measured_until_ns=round(end * S),
        client=replace(CLIENT, wall_ns=round(end * S)),
    )
    if scene.concurrency is not None:
        trial = replace(
            CLOSED, arrivals=ClosedLoop(scene.concurrency), extent=extent, workload=workload
        )
    else:
        arrivals = OpenLoop(scene.rate_per_s, (), scene.process, 1.0, 0)
        trial = replace(OPEN, arrivals=arrivals, extent=extent, workload=workload)
    return trial, stage, seen


def slow_at_first(scene: Scene) -> Scene:
    """Prefills take three times as long in the first seventh of the window."""
    return replace(scene, prefill=lambda at: 3.0 if at < 0.15 else 1.0)


def slow_in_the_middle(scene: Scene) -> Scene:
    """Every step takes three times as long in a quarter of the window: tokens/s -17 %."""
    pace: Pace = lambda at: 3.0 if 0.35 < at < 0.6 else 1.0  # noqa: E731
    return replace(scene, prefill=pace, decode=pace)


def first_tokens_slower_and_slower(scene: Scene) -> Scene:
    """Prefills take up to twice as long in the end."""
    return replace(scene, prefill=lambda at: 1 + max(0.0, at))


def standing_still(scene: Scene) -> Scene:
    """Three times for a twentieth of the window."""
    length = 0.05 * scene.duration_s
    return replace(scene, stalls=tuple((at * scene.duration_s, length) for at in (0.2, 0.5, 0.8)))


def clean(seed: int) -> Scene:
    """A server that nothing disturbs, of any speed, under any load that it keeps up with, for at
    least twelve median E2E or so."""
    drawn = random.Random(seed)
    prompt, output = drawn.choice(_LENGTHS)
    scene = Scene(
        prompt=prompt,
        output=output,
        prefill_s=drawn.choice((20e-6, 60e-6, 100e-6)),
        decode_s=drawn.choice((0.008, 0.015, 0.03)),
        jitter=drawn.choice((0.01, 0.03, 0.06)),
        memory=drawn.choice((0.0, 0.5)),
        interrupts=drawn.random() < 0.5,
        seed=seed,
    )
    if drawn.random() < 0.6:
        concurrency = drawn.choice((1, 2, 4, 8, 16, 32))
        lengths = drawn.uniform(12, 40)
        return replace(
            scene, concurrency=concurrency, duration_s=lengths * _answer_s(scene, concurrency)
        )
    process = drawn.choice((Process.POISSON, Process.CONSTANT))
    rate = drawn.uniform(0.1, 0.6) * 8 / _answer_s(scene, 8)
    duration_s = drawn.choice((30, 100, 200)) / rate
    return replace(scene, concurrency=None, rate_per_s=rate, process=process, duration_s=duration_s)


def _answer_s(scene: Scene, concurrency: int) -> float:
    """About the median E2E of so many at once."""
    prompt, output = _middle(scene.prompt), _middle(scene.output)
    prefill_s = concurrency * prompt * scene.prefill_s
    return prefill_s + output * (scene.decode_s + scene.more_s * concurrency)


def _middle(length: Length) -> float:
    match length:
        case Fixed(tokens):
            return tokens
        case Uniform(lowest, highest):
            return (lowest + highest) / 2
        case LogNormal(median):
            return median

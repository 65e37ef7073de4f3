"""`tgi-bench sweep` of one load against one scripted server, and what its verdict is.

In processes of their own, so that several may go on at once; these are forked from one that has
imported what a sweep needs, for that takes longer than the sweep.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.distortions.script import MODEL, Script
from tests.distortions.server import serving
from tgi_bench.analysis.rules import Check
from tgi_bench.analysis.run import Run
from tgi_bench.cli.run_view import load
from tgi_bench.kinds.load.figures import LoadSummary, StageSummary
from tgi_bench.kinds.load.metrics import figure_of

_CORE = min(os.sched_getaffinity(0))
TOGETHER = 6
"""Loads at once: each is idle most of its time."""
LOAD: dict[str, object] = {
    "concurrency": 4,
    "duration": "3s",
    "warmup": "0s",
    "cooldown": "0s",
    "workload": {"prompt_tokens": 32, "output_tokens": 16},
}
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(
    [f"tgi_bench.{name}" for name in ("sweep", "cli.sweep_command", "cli.run_view", "drive.load")]
)


@dataclass(frozen=True, slots=True)
class Scene:
    """A load and the server that it goes to.

    load: keys beside LOAD's, or in their place (None: without that key). server: keys of the
    experiment's section beside its address. alone: nothing else may run meanwhile.
    starved: other programs take the core that the client has. crowded: they take all cores.
    """

    name: str
    script: Script
    load: tuple[tuple[str, object], ...] = ()
    server: tuple[tuple[str, object], ...] = ()
    model: str = MODEL
    alone: bool = False
    starved: bool = False
    crowded: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    """What came of a scene."""

    scene: Scene
    code: int
    said: str
    run: Run

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(check for check in self.run.verdict.checks if not check.passed)

    @property
    def stage(self) -> StageSummary:
        (one,) = self.run.of(LoadSummary)
        return one.stages[-1]

    def value_ms(self, figure: str) -> float | None:
        """As "ttft_p50"; None where undefined."""
        found = figure_of(self.stage, figure)
        return None if found is None else found.value / 1e6


def judged(scenes: Sequence[Scene], folder: Path) -> list[Judged]:
    """Each in a folder of its own below that one; all at once, TOGETHER at most."""
    with ThreadPoolExecutor(TOGETHER) as pool:
        ended = list(pool.map(lambda scene: _swept(scene, folder / scene.name), scenes))
    # Summaries take a core: after the last load.
    return [_judged(scene, folder, *how) for scene, how in zip(scenes, ended, strict=True)]


def _judged(scene: Scene, folder: Path, code: int, said: str) -> Judged:
    runs = list((folder / scene.name / "results").glob("*/*"))
    assert code in (0, 3, 4), f"{scene.name}: exit code {code}: {said}"
    assert len(runs) == 1, f"{scene.name}: {said}"
    return Judged(scene, code, said, load(runs[0]))


def groups(scenes: Sequence[Scene]) -> Iterator[Sequence[Scene]]:
    """Scenes that may go on at once."""
    others = [scene for scene in scenes if not scene.alone]
    yield from (others[place : place + TOGETHER] for place in range(0, len(others), TOGETHER))
    yield from ([scene] for scene in scenes if scene.alone)


def _swept(scene: Scene, folder: Path) -> tuple[int, str]:
    folder.mkdir(parents=True)
    load_keys = {**LOAD, **dict(scene.load)}
    with _server(scene) as url:
        tree = {
            "experiment": "distortion",
            "model": scene.model,
            "server": {"launcher": "attach", "url": url, **dict(scene.server)},
            "load": {key: value for key, value in load_keys.items() if value is not None},
        }
        file = folder / "experiment.yaml"
        file.write_text(yaml.safe_dump(tree), encoding="utf-8")
        log = folder / "said.txt"
        words = ["sweep", str(file), "--results", str(folder / "results")]
        process = _PROCESSES.Process(target=_command, args=(words, log, scene.starved))
        with _hogs(scene):
            process.start()
            process.join()
    return process.exitcode or 0, log.read_text(encoding="utf-8")


@contextmanager
def _server(scene: Scene) -> Iterator[str]:
    with serving(scene.script) as url:
        yield url


@contextmanager
def _hogs(scene: Scene) -> Iterator[None]:
    """Programs that are busy meanwhile; on the core that a starved client has, and no other."""
    pinned = f"os.sched_setaffinity(0, {{{_CORE}}})" if scene.starved else ""
    count = 3 if scene.starved else 4 * len(os.sched_getaffinity(0)) if scene.crowded else 0
    program = f"import os; {pinned}\nwhile True: pass"
    hogs = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(count)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def _command(words: list[str], log: Path, starved: bool) -> None:
    """The command line, less the measurement of the client's own error: that takes seconds, has
    tests of its own, and is not checked then."""
    from tgi_bench.cli import main as command_line
    from tgi_bench.cli import sweep_command

    if starved:
        os.sched_setaffinity(0, {_CORE})
        os.nice(5)
    with log.open("w") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    sweep_command._measure_floor = lambda *_: True
    sys.argv = ["tgi-bench", *words]
    command_line.main()

"""Sweeps and loads that are killed with SIGKILL at drawn moments, again and again.

    python -m tests.sweep.kills --kills 500 --seed 0

After each kill the run opens, no trial that had ended is lost or other than it was, and no process
is left; --resume ends it, with every trial once, and no socket is left. What is not so is printed,
with the seed, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.sweep import experiments, loads
from tests.sweep.processes import PROGRAM, Tool
from tests.sweep.real_servers import SERVE
from tgi_bench.errors import TgiBenchError
from tgi_bench.launch.log import listening_on
from tgi_bench.load_observation import LoadStage, RequestObservation
from tgi_bench.observation import StepObservation
from tgi_bench.record.recovery import JOURNALS
from tgi_bench.record.runs import REPORT_NAME
from tgi_bench.record.store import RunStore

_ENDED = (0, 3)
_MOST_KILLS_OF_A_RUN = 6
_LIMIT_S = 120.0
_SHARES = (6, 1, 2)
"""Of the subjects: a load takes some seconds, for it measures the client's own error too."""
_FEW_SENT: dict[str, object] = {"requests": 6, "warmup": 0, "cooldown": 0}
_FEW: dict[str, object] = {"concurrency": 2, **_FEW_SENT}

Ended = dict[str, tuple[object, ...]]
"""What is recorded of each trial that has an end."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is killed. words: of the command, without --results; name: of its experiment."""

    name: str
    words: tuple[str, ...]


@dataclass(slots=True)
class Tally:
    """What was done and found. found: how often a run was seen in which state."""

    kills: int = 0
    runs: int = 0
    found: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """For the screen."""
        yield f"{self.kills} kills of {self.runs} runs"
        for name, count in sorted(self.found.items()):
            yield f"  {count:>5} {name}"
        yield f"{len(self.wrong)} wrong"
        yield from (f"  {line}" for line in self.wrong)


def killed(kills: int, seed: int, say: Callable[[str], None] = lambda _line: None) -> Tally:
    """Kills that many times, of as many runs as it takes."""
    draw, tally = Random(seed), Tally()
    # A short path: a socket's has room for 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="tbk"))
    try:
        with _server(folder) as url:
            subjects = _subjects(folder, url)
            lasts = {subject.name: _duration(folder, subject) for subject in subjects}
            while tally.kills < kills:
                (subject,) = draw.choices(subjects, _SHARES)
                most = min(kills - tally.kills, draw.randint(1, _MOST_KILLS_OF_A_RUN))
                run = _KilledRun(Tool(folder / f"r{tally.runs}"), subject, draw, tally)
                run.killed(most, lasts[subject.name])
                tally.runs += 1
                say(f"{tally.kills}/{kills} kills, {len(tally.wrong)} wrong")
    finally:
        shutil.rmtree(folder)
    return tally


def _subjects(folder: Path, url: str) -> tuple[Subject, ...]:
    batches: dict[str, object] = {
        "sequence_length": [16],
        "batch_size": [1, 2],
        "runs": 3,
        "decode_length": 3,
    }
    server: dict[str, object] = {"variable": {"num_shard": [1]}}
    small = experiments.write(folder, batches=batches, server=server)
    over_http = loads.write(folder, {"name": "a", **_FEW}, {"name": "b", "rate": 50, **_FEW_SENT})
    options = ("-c", "1,2", "--requests", "6", "--warmup", "0")
    lengths = ("--prompt-tokens", "8", "--output-tokens", "4")
    return (
        Subject("small", ("sweep", str(small))),
        Subject("loads", ("sweep", str(over_http))),
        Subject("load", ("load", url, *options, *lengths)),
    )


class _KilledRun:
    """One run in a folder of its own, which is removed where nothing was wrong."""

    def __init__(self, tool: Tool, subject: Subject, draw: Random, tally: Tally) -> None:
        self._tool, self._subject, self._draw, self._tally = tool, subject, draw, tally
        self._before: Ended = {}
        (tool.folder / "tmp").mkdir(parents=True)

    def killed(self, times: int, lasts_s: float) -> None:
        for _ in range(times):
            if self._kill_once(lasts_s):
                self._tally.kills += 1
                self._check_killed()
        self._check_ended(self._to_the_end())
        shutil.rmtree(self._tool.folder)

    def _kill_once(self, lasts_s: float) -> bool:
        """Whether it lived when it was killed."""
        with self._started() as process:
            self._wait_for_moment(process, lasts_s)
            process.send_signal(signal.SIGKILL)
            process.wait(_LIMIT_S)
        return process.returncode == -signal.SIGKILL

    def _wait_for_moment(self, process: subprocess.Popen[str], lasts_s: float) -> None:
        """A time, a line of its output, or a journal beside its run.db."""
        assert process.stdout is not None
        match self._draw.choice(("time", "time", "time", "line", "line", "journal")):
            case "time":
                time.sleep(self._draw.uniform(0, lasts_s))
            case "line":
                for _ in range(self._draw.randint(1, 8)):
                    process.stdout.readline()
                time.sleep(self._draw.uniform(0, 0.05))
            case _:
                self._wait_for_journal(process, self._draw.uniform(0, lasts_s))

    def _wait_for_journal(self, process: subprocess.Popen[str], after_s: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(after_s)
        while process.poll() is None:
            run_dir = self._run_dir()
            if run_dir is not None and (run_dir / "run.db-journal").exists():
                return
            time.sleep(0.0002)

    @contextmanager
    def _started(self) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            [*PROGRAM, *self._words()],
            env=self._tool.environ({"TMPDIR": str(self._tool.folder / "tmp")}),
            cwd=self._tool.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def _words(self) -> tuple[str, ...]:
        resume = ("--resume",) if self._run_dir() is not None else ()
        return (*self._subject.words, "--results", str(self._tool.results), *resume)

    def _run_dir(self) -> Path | None:
        """Of its one run.db."""
        found = list((self._tool.results / self._subject.name).glob("*/run.db"))
        return found[0].parent if found else None

    def _check_killed(self) -> None:
        if left := self._tool.left():
            self._wrong(f"processes outlived the kill: {left}")
        run_dir = self._run_dir()
        if run_dir is None:
            self._tally.found["before its run.db"] += 1
            return
        for ending in JOURNALS:
            self._tally.found[f"with a run.db{ending}"] += _has(run_dir / f"run.db{ending}")
        self._check_kept(run_dir, "after a kill")

    def _check_kept(self, run_dir: Path, when: str) -> None:
        try:
            now = _ended(run_dir)
        except TgiBenchError as error:
            self._wrong(f"does not open {when}: {error}")
            return
        if {trial_id: now.get(trial_id) for trial_id in self._before} != self._before:
            self._wrong(f"a trial that had ended is lost or other than it was, {when}")
        self._tally.found["trials that had ended, each compared"] += len(self._before)
        self._before = now

    def _to_the_end(self) -> str | None:
        """What it printed; None: there was nothing left to resume."""
        run_dir = self._run_dir()
        whole = run_dir is not None and (run_dir / REPORT_NAME).exists()
        with self._started() as process:
            output, _ = process.communicate(timeout=_LIMIT_S)
        if whole and process.returncode == 2 and "nothing to resume" in output:
            self._tally.found["killed after its report"] += 1
            return None
        if process.returncode not in _ENDED:
            self._wrong(f"--resume ended with {process.returncode}: {output}")
        return output

    def _check_ended(self, output: str | None) -> None:
        run_dir = self._run_dir()
        if run_dir is None:
            self._wrong(f"no run was made: {output}")
            return
        self._check_kept(run_dir, "after --resume")
        with RunStore.open(run_dir, writable=False) as store:
            plan, finished = store.header().plan, store.finished()
        planned = [t.trial_id for t in plan.trials] + [t.trial_id for t in plan.load_trials]
        if list(self._before) != planned or not finished:
            self._wrong(f"{list(self._before)} ended of {planned}, finished: {finished}")
        if not (run_dir / REPORT_NAME).exists():
            self._wrong("no report was written")
        if left := self._tool.left():
            self._wrong(f"processes are left: {left}")
        if left_files := list((self._tool.folder / "tmp").iterdir()):
            self._wrong(f"sockets or folders are left: {left_files}")

    def _wrong(self, what: str) -> None:
        self._tally.wrong.append(f"run {self._tally.runs}, kill {self._tally.kills}: {what}")


def _ended(run_dir: Path) -> Ended:
    with RunStore.open(run_dir, writable=False) as store:
        return {
            trial_id: (
                end,
                tuple(store.seen(trial_id, StepObservation)),
                tuple(store.seen(trial_id, LoadStage)),
                tuple(store.seen(trial_id, RequestObservation)),
            )
            for trial_id, end in store.ends().items()
        }


def _has(file: Path) -> bool:
    return file.exists() and file.stat().st_size > 0


def _duration(folder: Path, subject: Subject) -> float:
    """Of one run that nobody kills."""
    tool = Tool(folder / f"whole-{subject.name}")
    tool.folder.mkdir()
    began = time.monotonic()
    done = tool.run(*subject.words, "--results", tool.results)
    assert done.returncode in _ENDED, done.stdout + done.stderr
    return time.monotonic() - began


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    """The URL of an embedded server that outlives all kills."""
    log = folder / "server.log"
    words = ["--model-id", "bigscience/bloomz-1b1", "--port", "0"]
    words += ["--shard-uds-path", f"{folder}/s"]
    with log.open("wb") as stream, subprocess.Popen([*SERVE, *words], stdout=stream) as process:
        try:
            while (address := listening_on(log.read_text().splitlines())) is None:
                assert process.poll() is None, log.read_text()
                time.sleep(0.05)
            yield f"http://{address}"
        finally:
            process.terminate()


def main() -> int:
    """As the module says."""
    parser = argparse.ArgumentParser(prog="python -m tests.sweep.kills")
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    tally = killed(asked.kills, asked.seed, lambda line: print(line, file=sys.stderr))
    print(f"seed {asked.seed}", *tally.lines(), sep="\n")
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

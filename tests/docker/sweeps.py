"""Real sweeps in processes of their own, and what they leave in results and on the engine."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import docker
from docker.errors import APIError
from docker.models.containers import Container

from tgi_bench.launch.docker_engine import RUN_LABEL

FINE = (0, 3)
"""Exit codes of a sweep whose trials all ended well; 3 is its verdict on a busy machine."""


@dataclass(slots=True)
class Sweeps:
    """Of one test. temporary: where socket folders go, with a path short enough for sockets."""

    client: docker.DockerClient
    image: str
    folder: Path
    temporary: Path
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def results(self) -> Path:
        """Where runs are written."""
        return self.folder / "results"

    def experiment(self, name: str = "e", server: str = "{}", runs: int = 2) -> Path:
        """An experiment file. server: further keys of `server` as a YAML mapping."""
        path = self.folder / f"{name}.yaml"
        keys = {"launcher": "docker", "image": self.image, "embedded": {"accelerator": "H100-SXM"}}
        batches = {
            "sequence_length": [20],
            "decode_length": 4,
            "batch_size": [1, 2, 4],
            "runs": runs,
            "warmups": 1,
        }
        keys |= json.loads(server)
        # JSON is YAML.
        text = {"experiment": name, "model": "bigscience/bloomz-1b1"}
        path.write_text(json.dumps({**text, "server": keys, "batches": batches}))
        return path

    def start(
        self, experiment: Path, *words: str, environ: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """`tgi-bench sweep` of it, under way; its output is read by `finish`."""
        command = [sys.executable, "-m", "tgi_bench.cli.main", "sweep", str(experiment)]
        process = subprocess.Popen(
            [*command, "--results", str(self.results), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TMPDIR": str(self.temporary), **(environ or {})},
        )
        self.running.append(process)
        return process

    def finish(self, process: subprocess.Popen[str], timeout_s: float = 90) -> tuple[int, str]:
        """Exit code and output."""
        output, _ = process.communicate(timeout=timeout_s)
        return process.returncode, output

    def run(
        self, experiment: Path, *words: str, environ: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        """A whole sweep."""
        return self.finish(self.start(experiment, *words, environ=environ))

    def run_as(self, user: int, group: int, experiment: Path) -> tuple[int, str]:
        """A whole sweep of another user, who is in the group that may use the engine."""
        # It may read everything, for the interpreter may lie in root's home, but write nothing.
        readable = "+dac_read_search"
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", f"--groups={group}"]
        become += [f"--inh-caps={readable}", f"--ambient-caps={readable}", sys.executable]
        command = [*become, "-m", "tgi_bench.cli.main", "sweep", str(experiment)]
        done = subprocess.run(
            [*command, "--results", str(self.results)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TMPDIR": str(self.temporary), "HOME": str(self.temporary)},
            timeout=90,
            check=False,
        )
        return done.returncode, done.stdout

    def clean(self) -> str:
        """What `tgi-bench clean` says."""
        command = [sys.executable, "-m", "tgi_bench.cli.main", "clean"]
        environ = {**os.environ, "TMPDIR": str(self.temporary)}
        return subprocess.run(
            command, env=environ, check=True, capture_output=True, text=True, timeout=60
        ).stdout

    def run_dirs(self) -> list[Path]:
        """The runs, oldest first."""
        return sorted(path.parent for path in self.results.glob("*/*/run.db"))

    def containers(self) -> list[str]:
        """The names of all containers of this test's runs, running or not."""
        return [str(found.name) for found in self.live(everything=True)]

    def live(self, everything: bool = False) -> list[Container]:
        """This test's running containers, or all of them."""
        runs = {run.name for run in self.run_dirs()}
        found = self.client.containers.list(
            all=everything, filters={"label": RUN_LABEL}, ignore_removed=True
        )
        return [c for c in found if c.labels[RUN_LABEL] in runs]

    def end(self) -> None:
        """What a failed test left."""
        for process in self.running:
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        for name in self.containers():
            with suppress(APIError):
                self.client.api.remove_container(name, force=True)
        shutil.rmtree(self.temporary, ignore_errors=True)


def rows(run_dir: Path, query: str) -> list[tuple[object, ...]]:
    """Of a run's file, which may be written meanwhile."""
    uri = f"file:{run_dir / 'run.db'}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as database:
        return database.execute(query).fetchall()


def outcomes(run_dir: Path) -> dict[str, tuple[str, str]]:
    """Outcome and reason of each trial that has its end."""
    found = rows(
        run_dir, "SELECT trial_id, outcome, reason FROM attempts WHERE outcome IS NOT NULL"
    )
    assert len({str(row[0]) for row in found}) == len(found), "a trial has two ends"
    return {str(trial).partition("/")[2]: (str(o), str(r)) for trial, o, r in found}


def wait_for(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    """Returns when it holds; fails where it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def steps_written(sweeps: Sweeps) -> int:
    """How many steps the newest run's file holds."""
    runs = sweeps.run_dirs()
    try:
        return int(str(rows(runs[-1], "SELECT count(*) FROM steps")[0][0])) if runs else 0
    except sqlite3.Error:
        return 0  # it is being made

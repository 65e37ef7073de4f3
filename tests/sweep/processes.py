"""tgi-bench as its own process, and what of it is left in /proc.

Every process of a tool, and every server that it starts, is of a domain of its own, so tests that
run side by side neither see nor end each other's.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from tgi_bench.launch.left_behind import DOMAIN_MARK

ROOT = Path(__file__).parent.parent.parent
LIMIT_S = 240.0
PROGRAM = (sys.executable, "-m", "tgi_bench.cli.main")


@dataclass(frozen=True, slots=True)
class Tool:
    """The command line in one folder. results: where its sweeps are kept."""

    folder: Path
    domain: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    @property
    def results(self) -> Path:
        return self.folder / "results"

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """To its end."""
        return subprocess.run(
            [*PROGRAM, *map(str, arguments)],
            env=self.environ(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def sweep(self, experiment: Path, *options: str) -> subprocess.CompletedProcess[str]:
        return self.run("sweep", experiment, "--results", self.results, *options)

    @contextmanager
    def started(self, experiment: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
        """A sweep that is under way; killed where it still lives at the end."""
        argv = ["sweep", experiment, "--results", self.results, *options]
        with subprocess.Popen(
            [*PROGRAM, *map(str, argv)],
            env=self.environ(),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def living(self) -> dict[int, str]:
        """Id and command line of each process of the domain that is no zombie."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                environ = (entry / "environ").read_bytes()
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue  # ended in between, or another user's
            if f"{DOMAIN_MARK}={self.domain}".encode() in environ.split(b"\0") and command:
                found[int(entry.name)] = command.replace(b"\0", b" ").decode()
        return found

    def left(self, within_s: float = 10.0) -> dict[int, str]:
        """What still lives when the time is over; {} as soon as nothing does."""
        deadline = time.monotonic() + within_s
        while (living := self.living()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return living

    def environ(self, more: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
        """Of the tool's processes."""
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        return {
            **os.environ,
            "PYTHONPATH": path,
            DOMAIN_MARK: self.domain,
            "COLUMNS": "100",
            **more,
        }


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """Output up to the line that holds `text`; fails where it ends before."""
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if text in line:
            return "".join(seen)
    raise AssertionError(f"ended before {text!r}:\n{''.join(seen)}")


def rest_of(process: subprocess.Popen[str]) -> str:
    """Output to the end, once the process has ended."""
    output, _ = process.communicate(timeout=LIMIT_S)
    return output


def kill(process: subprocess.Popen[str]) -> None:
    """kill -9, and reaped."""
    process.send_signal(signal.SIGKILL)
    process.wait(LIMIT_S)

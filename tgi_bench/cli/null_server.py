"""The null server as a child process: started, told to stop, its log read."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tgi_bench.errors import InputError, LaunchError
from tgi_bench.launch.owned_folder import NULL_SERVER, owned_folder
from tgi_bench.server.null.loop import HOST
from tgi_bench.server.null.timing import ServedLog, StreamPace, decode

_END_S = 30.0
"""After it a null server that was told to stop is killed."""


@dataclass(frozen=True, slots=True)
class NullServerProcess:
    """A null server that serves."""

    url: str
    pid: int
    _process: subprocess.Popen[bytes]
    _log: Path

    def stop(self) -> ServedLog:
        """End it; what it served. Raises LaunchError where it died or wrote no log."""
        self._process.terminate()
        try:
            _, said = self._process.communicate(timeout=_END_S)
        except subprocess.TimeoutExpired:
            raise LaunchError(f"the null server did not end within {_END_S:g} s") from None
        if self._process.returncode != 0:
            raise _died(self._process.returncode, said)
        return decode(self._log.read_bytes())


@contextmanager
def null_server(pace: StreamPace) -> Iterator[NullServerProcess]:
    """Start one on a free port; it ends when the context is left, or when this process dies."""
    if sys.platform != "linux":
        raise InputError("the null server needs Linux: it is built on epoll")
    with owned_folder(Path(tempfile.gettempdir()), NULL_SERVER) as folder:
        log = folder / "null_server.log"
        process = subprocess.Popen(
            _command(pace, log),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,  # a terminal's signals are for the sweep alone
        )
        try:
            yield NullServerProcess(f"http://{HOST}:{_port(process)}", process.pid, process, log)
        finally:
            process.kill()
            process.communicate()


def _command(pace: StreamPace, log: Path) -> list[str]:
    numbers = {
        "--port": 0,
        "--interval-ns": pace.interval_ns,
        "--first-ns": pace.first_ns,
        "--spread-ns": pace.spread_ns,
    }
    words = [word for name, value in numbers.items() for word in (name, str(value))]
    module = [sys.executable, "-m", "tgi_bench.server.null"]
    return [*module, *words, "--log", str(log), "--until-stdin-ends"]


def _port(process: subprocess.Popen[bytes]) -> int:
    if process.stdout is None:
        raise ValueError("the null server's output is not read")
    line = process.stdout.readline().strip()
    if not line.isdigit():
        process.kill()
        _, said = process.communicate()
        raise _died(process.returncode, said)
    return int(line)


def _died(code: int, said: bytes) -> LaunchError:
    lines = tuple(said.decode(errors="replace").splitlines()[-20:])
    return LaunchError(f"the null server ended with {code}", lines)

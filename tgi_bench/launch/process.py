"""One server as a process group of its own: started, waited for, watched, ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from tgi_bench.errors import LaunchError
from tgi_bench.launch import follow_parent
from tgi_bench.launch.log import LogFile, fatal_cause
from tgi_bench.launch.owner import marks

LOG_LINES_SHOWN = 50
_POLL_S = 0.05
_HEALTH_TIMEOUT_S = 1.0
_TERM_WAIT_S = 5.0
_START_LINE = "# tgi-bench: start "


@dataclass(frozen=True, slots=True)
class Command:
    """What to start. environ: its whole environment, to which the owner's marks are added.

    log_path: stdout and stderr are appended to it, after a line that numbers the start.
    """

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    log_path: Path
    run_id: str


class ServerProcess:
    """A started server. Leave its context, or call `stop`, to end it and all that it started.

    Start it from a thread that lives as long as the server: the kernel counts the end of the
    thread that started it as the end of the parent, and tells the server to end.
    """

    def __init__(self, command: Command) -> None:
        self.started_ns = time.monotonic_ns()
        begin = _number_start(command.log_path)
        self.log = LogFile(command.log_path, begin)
        self._process = _popen(command)
        self._stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Of the program, which leads a process group of this id."""
        return self._process.pid

    def alive(self) -> bool:
        """Whether the program runs. What it started may outlive it until `stop`."""
        return not self._stopped and self._ended() is None

    def wait_until_ready(
        self, find_url: Callable[[Sequence[str]], str | None], timeout_s: float
    ) -> str:
        """Its URL, once /health there answers 200.

        find_url: given the log's new lines, the URL where they say it.
        Raises LaunchError where it ends before, or is not ready in time.
        """
        deadline = time.monotonic() + timeout_s
        url: str | None = None
        with httpx.Client(timeout=_HEALTH_TIMEOUT_S, trust_env=False) as client:
            while True:
                # Asked before its log is read: what it wrote before its end is then in there.
                alive = self.alive()
                url = find_url(self.log.read_on()) or url
                if not alive:
                    raise self._failed(self.death_cause() or "it ended")
                if url is not None and _healthy(client, url):
                    return url
                if time.monotonic() >= deadline:
                    raise self._failed(f"it was not ready within {timeout_s:g} s")
                time.sleep(_POLL_S)

    def death_cause(self) -> str | None:
        """Why it ended, in one sentence, from its log and its exit; None while it runs."""
        status = self._ended()
        if status is None:
            return None
        cause = fatal_cause(self.log.lines())
        return f"{cause} ({status})" if cause else f"it ended: {status}"

    def stop(self) -> None:
        """Ends the group: SIGTERM, up to 5 s, SIGKILL. Does nothing the second time."""
        if self._stopped:
            return
        # The program is reaped last: until then its id, and the group's, is no one else's.
        self._signal_group(signal.SIGTERM)
        deadline = time.monotonic() + _TERM_WAIT_S
        while self._ended() is None and time.monotonic() < deadline:
            time.sleep(_POLL_S / 5)
        self._signal_group(signal.SIGKILL)
        self._process.wait()
        self._stopped = True

    def _failed(self, cause: str) -> LaunchError:
        return LaunchError(cause, self.log.tail(LOG_LINES_SHOWN))

    def _ended(self) -> str | None:
        """How it ended, without reaping it; None while it runs."""
        if self._process.returncode is not None:
            return _exit_words(self._process.returncode)
        result = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if result is None:
            return None
        killed = result.si_code != os.CLD_EXITED
        return _exit_words(-result.si_status if killed else result.si_status)

    def _signal_group(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return  # every member has ended


def _popen(command: Command) -> subprocess.Popen[bytes]:
    argv = [
        sys.executable,
        "-I",
        "-S",
        str(Path(follow_parent.__file__)),
        str(os.getpid()),
        *command.argv,
    ]
    with command.log_path.open("ab") as log:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**command.environ, **marks(command.run_id)},
            start_new_session=True,
        )


def _number_start(log_path: Path) -> int:
    """Adds the line that numbers this start; the offset in bytes after it."""
    try:
        log_path.parent.mkdir(parents=True, exist_ok=True)
        earlier = log_path.read_bytes() if log_path.exists() else b""
        number = sum(line.startswith(_START_LINE.encode()) for line in earlier.splitlines()) + 1
        line_end = "" if not earlier or earlier.endswith(b"\n") else "\n"
        with log_path.open("ab") as stream:
            stream.write(f"{line_end}{_START_LINE}{number}\n".encode())
            return stream.tell()
    except OSError as error:
        raise LaunchError(f"{log_path} cannot be written: {error.strerror}") from error


def _healthy(client: httpx.Client, url: str) -> bool:
    try:
        return client.get(f"{url}/health").status_code == httpx.codes.OK
    except (httpx.HTTPError, httpx.InvalidURL):
        return False  # not listening yet, or not answering yet


def _exit_words(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed with {signal.Signals(-code).name}"
    except ValueError:
        return f"killed with signal {-code}"

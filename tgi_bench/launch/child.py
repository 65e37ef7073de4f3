"""A deployment as a process group of its own: started, its output pumped, waited for, ended."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tgi_bench.ask import contact
from tgi_bench.engines.arguments import arguments_of
from tgi_bench.engines.engine import Engine, engine_spec
from tgi_bench.errors import LaunchError, NotRecordedError, not_written
from tgi_bench.launch import follow_parent
from tgi_bench.launch.cause import death_of
from tgi_bench.launch.deployment import Deployment
from tgi_bench.launch.facts import Started, facts_of
from tgi_bench.launch.launcher import Death, Endpoint, LaunchOptions, RunningServer
from tgi_bench.launch.left_behind import marks
from tgi_bench.launch.log import LogFile
from tgi_bench.launch.readiness import FindUrl, ServerProbe, wait_until_ready
from tgi_bench.launch.secrets import RedactedStream, Redactor, handed_on, needed
from tgi_bench.memory_evidence import KillCounter

_CHUNK = 1 << 16


class Pump:
    """Copies what is written to `inlet` to the end of a file, in a thread of its own.

    Close `inlet` once the server has it. Raises OSError where the file cannot be opened. Where it
    cannot be written later, what comes is dropped: a server must not stand still for it.

    failure: why it could not be written, in one sentence; empty where it could.
    """

    def __init__(self, path: Path, redactor: Redactor) -> None:
        self._stream = RedactedStream(redactor)
        self._path = path
        self._file = path.open("ab", buffering=0)
        self.failure = ""
        self._outlet, self.inlet = os.pipe()
        self._stop_outlet, self._stop_inlet = os.pipe()
        self._inlet_open = True
        self._thread = threading.Thread(target=self._copy, name="log", daemon=True)
        self._thread.start()

    def close_inlet(self) -> None:
        """Our end of the pipe: only the server's own keep it open after that."""
        if self._inlet_open:
            self._inlet_open = False
            os.close(self.inlet)

    def drained(self, timeout_s: float) -> bool:
        """Whether everything is in the file, because every writer has ended; waits for it."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def stop(self, timeout_s: float) -> None:
        """Ends the copy, waiting that long for writers to end. Once is enough."""
        self.close_inlet()
        if not self.drained(timeout_s):
            os.write(self._stop_inlet, b"x")
            self._thread.join()

    def _copy(self) -> None:
        try:
            while True:
                readable, _, _ = select.select([self._outlet, self._stop_outlet], [], [])
                data = os.read(self._outlet, _CHUNK) if self._outlet in readable else b""
                if not data:
                    return
                self._write(self._stream.feed(data))
        finally:
            self._write(self._stream.end())
            self._file.close()
            for descriptor in (self._outlet, self._stop_outlet):
                os.close(descriptor)

    def _write(self, data: bytes) -> None:
        if self.failure:
            return
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._file.write(rest) or 0 :]
        except OSError as error:
            self.failure = f"{self._path} cannot be written: {error.strerror}"


_POLL_S = 0.01
_TERM_WAIT_S = 30.0
"""text-generation-launcher took 5.5 s when idle: its router drains first, then its shards."""
_TERM_WAIT_UNREADY_S = 5.0
_LOG_WAIT_S = 0.5
"""What ended has left its last words in a pipe; a child of it may hold the pipe open."""
_START_LINE = "# tgi-bench: start "


@dataclass(frozen=True, slots=True)
class Command:
    """What to start. environ: its whole environment, to which the owner's marks are added.

    log_path: stdout and stderr are appended to it, after a line that numbers the start.
    redactor: takes the values of secrets out of it.
    """

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    log_path: Path
    run_id: str
    redactor: Redactor


class ServerProcess:
    """A started server. Leave its context, or call `stop`, to end it and all that it started.

    Start it from a thread that lives as long as the server: the kernel counts the end of the
    thread that started it as the end of the parent, and tells the server to end.
    """

    def __init__(self, command: Command) -> None:
        self.started_ns = time.monotonic_ns()
        begin = number_start(command.log_path)
        self.log = LogFile(command.log_path, begin)
        self._pump = _pump(command)
        # It starts in this process's cgroup.
        self._kills = KillCounter.of()
        self._kills_before = self._kills.read()
        try:
            self._process = _popen(command, self._pump)
        except BaseException:
            if self._pump is not None:
                self._pump.stop(0)
            raise
        self._stopped = False
        self._ready = False

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

    def became_ready(self) -> None:
        """It is ready, and stays in the cgroup that it is in by now: its command may have changed
        that."""
        self._ready = True
        own = KillCounter.of(self.pid)
        if own != self._kills:
            self._kills, self._kills_before = own, own.read()

    def alive(self) -> bool:
        """Whether the program runs. What it started may outlive it until `stop`.

        False too where its log cannot be written any more, by which it is known.
        """
        if self._log_failure():
            return False
        if not self._stopped and self._ended() is None:
            return True
        if self._pump is not None:
            self._pump.drained(_LOG_WAIT_S)
        return False

    def death(self, since: int = 0, device_type: str | None = None) -> Death | None:
        """As RunningServer has it, from its log, its exit and its cgroup."""
        if failure := self._log_failure():
            return Death(failure)
        # Asked before its log is read: what it wrote before its end is then in there.
        ended = None if self.alive() else self._ended()
        kills = self._kills.read() - self._kills_before
        return death_of(self.log.lines()[since:], ended, kills, device_type)

    def stop(self, term_wait_s: float | None = None) -> None:
        """Ends the group: SIGTERM, up to 30 s (5 s if never ready), SIGKILL. Does nothing twice.
        An interrupt meanwhile ends it at once.

        term_wait_s: instead, of a server that has failed already.
        """
        if self._stopped:
            return
        wait_s = _TERM_WAIT_S if self._ready else _TERM_WAIT_UNREADY_S
        # The program is reaped last: until then its id, and the group's, is no one else's.
        self._signal_group(signal.SIGTERM)
        deadline = time.monotonic() + (wait_s if term_wait_s is None else term_wait_s)
        try:
            while self._ended() is None and time.monotonic() < deadline:
                time.sleep(_POLL_S)
        finally:
            self._signal_group(signal.SIGKILL)
            self._process.wait()
            self._stopped = True
            if self._pump is not None:
                self._pump.stop(_LOG_WAIT_S)

    def _log_failure(self) -> str:
        """Why its log is written no more; empty while it is."""
        return "" if self._pump is None else self._pump.failure

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


def _pump(command: Command) -> Pump | None:
    """What redacts the output; None where there is nothing to redact."""
    return Pump(command.log_path, command.redactor) if command.redactor.longest else None


def _popen(command: Command, pump: Pump | None) -> subprocess.Popen[bytes]:
    argv = [
        sys.executable,
        "-I",
        "-S",
        str(Path(follow_parent.__file__)),
        str(os.getpid()),
        *command.argv,
    ]
    with command.log_path.open("ab") as log:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log if pump is None else pump.inlet,
            stderr=subprocess.STDOUT,
            env={**command.environ, **marks(command.run_id)},
            start_new_session=True,
        )
    if pump is not None:
        pump.close_inlet()
    return process


def number_start(log_path: Path) -> int:
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
        failed = not_written(f"{log_path} cannot be written", error)
        if isinstance(failed, NotRecordedError):
            raise failed from error
        raise LaunchError(str(failed)) from error


def _exit_words(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed (signal {-code})"


_FAILED_TERM_WAIT_S = 0.5
"""A server that did not become ready has nothing left to do in good order."""


@dataclass(frozen=True, slots=True)
class Program:
    """What is started. master_socket: of shard_rank 0, which is there once it is ready.

    find_url: given new lines of its log, its URL.
    """

    argv: tuple[str, ...]
    find_url: FindUrl
    master_socket: Path | None
    no_socket_reason: str = ""


@dataclass(frozen=True, slots=True)
class ReadyProcess:
    """A ready server that is a process group of ours."""

    endpoint: Endpoint
    process: ServerProcess

    def alive(self) -> bool:
        """Whether it runs."""
        return self.process.alive()

    def death(self, since: int = 0) -> Death | None:
        """As RunningServer has it."""
        return self.process.death(since, self.endpoint.facts.device_type)

    def log_length(self) -> int:
        """Lines of its log so far."""
        return self.process.log.length()

    def log_tail(self, count: int) -> tuple[str, ...]:
        """The last lines of its log, oldest first."""
        return self.process.log.tail(count)


@contextmanager
def running(
    deployment: Deployment, options: LaunchOptions, program: Program
) -> Iterator[RunningServer]:
    """Starts the program, waits until it is ready, and ends it when the context is left.

    Raises LaunchError where it does not become ready.
    """
    environ = environ_for(deployment)
    redactor = Redactor.of(deployment, os.environ)
    log_path = options.log_path(deployment.deployment_id)
    command = Command(program.argv, environ, log_path, options.run_id, redactor)
    probe = ServerProbe.of(deployment, program.find_url, environ)
    with ServerProcess(command) as process:
        try:
            url = wait_until_ready(process, probe, deployment.timeouts, options.progress)
        except LaunchError as error:
            process.stop(_FAILED_TERM_WAIT_S)
            raise LaunchError(redactor.text(str(error)), error.log_tail) from None
        process.became_ready()
        started = Started(
            engine=deployment.engine,
            command=program.argv,
            lines=process.log.lines(),
            contact=contact(url, probe.headers),
            ready_ns=time.monotonic_ns() - process.started_ns,
        )
        facts = facts_of(started, redactor)
        yield ReadyProcess(
            Endpoint(url, program.master_socket, facts, log_path, program.no_socket_reason),
            process,
        )


def environ_for(deployment: Deployment) -> dict[str, str]:
    """What a server needs of this process's environment, and what the experiment names.

    The plan alone says what is deployed: a MAX_TOTAL_TOKENS of the user's shell would be in effect
    without being requested, so what is an argument of the server is none of it.
    """
    prefix = engine_spec(deployment.engine).argument_variables
    names: set[str | None] = set()
    if deployment.engine is Engine.TGI:
        names = {spec.env for spec in arguments_of(deployment.tgi_version)}
    kept = {
        name: value
        for name, value in needed(os.environ).items()
        if name not in names and not (prefix and name.startswith(prefix))
    }
    return {**kept, **handed_on(deployment, os.environ)}

"""One container: made, watched, its log followed, ended; known to the engine by its name."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
from docker.errors import NotFound

from tgi_bench.errors import LaunchError
from tgi_bench.launch.cause import death_of
from tgi_bench.launch.docker_engine import ENGINE_ERRORS, engine, sentence
from tgi_bench.launch.launcher import Death
from tgi_bench.launch.log import LogFile
from tgi_bench.launch.secrets import RedactedStream, Redactor
from tgi_bench.observation import Outcome


class LogFollower:
    """Follows the log of one started container until it ends, in a thread of its own."""

    def __init__(self, container: str, path: Path, redactor: Redactor) -> None:
        self._container, self._path, self._redactor = container, path, redactor
        self._thread = threading.Thread(target=self._run, name="container-log", daemon=True)
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Waits until the whole log of an ended container is written."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        clean = RedactedStream(self._redactor)
        with self._path.open("ab", buffering=0) as file:
            try:
                # A client of its own: its connection is used by this thread alone.
                with engine() as client:
                    stream = client.api.logs(self._container, stream=True, follow=True)
                    for data in stream:
                        file.write(clean.feed(data))
            except (*ENGINE_ERRORS, LaunchError, OSError, ValueError) as error:
                text = self._redactor.text(sentence(error))
                file.write(f"# tgi-bench: its log ends here: {text}\n".encode())
            file.write(clean.end())


_GRACE_S = 30
"""From SIGTERM to SIGKILL; text-generation-launcher took 5.5 s when idle."""
_GRACE_UNREADY_S = 1
"""A server that did not become ready has nothing left to do in good order."""
_LOG_ENDS_S = 2.0
_REMOVED_S = 20.0
_NO_GPU_RUNTIME = "could not select device driver"
_RUNNING = ("running", "paused", "restarting")


@dataclass(frozen=True, slots=True)
class ContainerState:
    """What the engine says of a container. exit_code: None while it runs.

    running: or paused, which then says so.
    """

    running: bool
    exit_code: int | None
    out_of_memory: bool
    error: str
    memory_bytes: int
    paused: bool = False


class Container:
    """A container that was made under this name, or may have been: `remove` settles it.

    log: what it wrote since this start, redacted. ready: whether its server was ready once.
    """

    def __init__(self, client: docker.DockerClient, name: str, log: LogFile) -> None:
        self._client = client
        self.name = name
        self.log = log
        self.ready = False
        self._follower: LogFollower | None = None
        self._end: ContainerState | None = None

    def create(self, image: str, options: dict[str, Any]) -> None:
        """Raises LaunchError where the engine refuses.

        An interrupt waits for the engine's answer: what it made is then known to be there.
        """

        def make() -> None:
            self._client.containers.create(image, name=self.name, **options)

        _uninterrupted(make)

    def start(self, follower: Callable[[], LogFollower]) -> None:
        """Starts it and follows its log. Raises LaunchError where the engine cannot."""
        _uninterrupted(lambda: self._client.api.start(self.name))
        self._follower = follower()

    def alive(self) -> bool:
        """Whether it runs, and is not paused."""
        state = self.state()
        return state.running and not state.paused

    def state(self) -> ContainerState:
        """What the engine says of it; of one that has ended, once and for all."""
        if self._end is not None:
            return self._end
        try:
            found = _state(self._client.api.inspect_container(self.name))
        except NotFound:
            found = ContainerState(False, None, False, "somebody removed its container", 0)
        except ENGINE_ERRORS as error:
            return ContainerState(
                False, None, False, f"the engine does not answer: {sentence(error)}", 0
            )
        if not found.running:
            self._end = found
        return found

    def death(self, since: int = 0, device_type: str | None = None) -> Death | None:
        """As RunningServer has it, from the engine and its log."""
        state = self.state()
        if state.paused:
            return Death(f"its container is paused (`docker unpause {self.name}` wakes it)")
        ended = None if state.running else _end_words(state)
        if ended is not None and self._follower is not None:
            self._follower.join(_LOG_ENDS_S)
        death = death_of(self.log.lines()[since:], ended, 0, device_type)
        # One that goes on although a process of it was killed is not dead of it.
        if state.out_of_memory and death is not None:
            limit = f" (its limit is {state.memory_bytes / 2**20:.0f} MiB)"
            return Death(
                "the container ran out of memory of the host"
                f"{limit if state.memory_bytes else ''}: {ended or death.cause}",
                Outcome.HOST_OUT_OF_MEMORY,
            )
        return death

    def run(self, command: Sequence[str], user: str = "") -> str | None:
        """What a command inside it prints; None where it fails or there is no such command."""
        try:
            made = self._client.api.exec_create(self.name, list(command), stderr=False, user=user)
            output: object = self._client.api.exec_start(made["Id"])
            code = self._client.api.exec_inspect(made["Id"])["ExitCode"]
        except ENGINE_ERRORS:
            return None
        if code != 0 or not isinstance(output, bytes):
            return None
        return output.decode("utf-8", "replace")

    def entry_point(self) -> tuple[str, ...]:
        """The words before the arguments, of its image or of an option."""
        words = (self._inspect().get("Config") or {}).get("Entrypoint") or ()
        return tuple(str(word) for word in words)

    def published(self, port: int) -> int | None:
        """The port of the engine's machine that leads to that port of it; None if none does."""
        ports = (self._inspect().get("NetworkSettings") or {}).get("Ports") or {}
        for binding in ports.get(f"{port}/tcp") or ():
            return int(binding["HostPort"])
        return None

    def _inspect(self) -> dict[str, Any]:
        """The engine's description; {} where it has none any more."""
        try:
            found: dict[str, Any] = self._client.api.inspect_container(self.name)
        except ENGINE_ERRORS:
            return {}
        return found

    def remove(self) -> None:
        """SIGTERM, 30 s (1 s if never ready), SIGKILL, away with it and its anonymous volumes.

        An interrupt meanwhile ends it at once. Raises LaunchError where the engine does not manage.
        """
        try:
            grace_s = _GRACE_S if self.ready else _GRACE_UNREADY_S
            self._client.api.stop(self.name, timeout=grace_s)
            if self._follower is not None:
                self._follower.join(_LOG_ENDS_S)
            self._client.api.remove_container(self.name, v=True, force=True)
        except NotFound:
            return  # it was never made, or is gone
        except ENGINE_ERRORS as error:
            self._remove_by_force(error)
        except KeyboardInterrupt as error:
            with suppress(LaunchError):  # it has its labels: `tgi-bench clean` finds it
                self._remove_by_force(error)
            raise

    def _remove_by_force(self, first: BaseException) -> None:
        """Where stopping failed: a removal is under way elsewhere, or the engine has trouble."""
        deadline = time.monotonic() + _REMOVED_S
        error = first
        while time.monotonic() < deadline:
            try:
                self._client.api.remove_container(self.name, v=True, force=True)
            except NotFound:
                return
            except ENGINE_ERRORS as again:
                error = again
                time.sleep(0.2)
            else:
                return
        raise LaunchError(
            f"container {self.name} could not be removed: {sentence(error)}; "
            "`tgi-bench clean` tries again when this sweep has ended"
        )


def _uninterrupted(call: Callable[[], object]) -> None:
    """Runs it to its end in a thread of its own, even where this one is interrupted."""
    failures: list[Exception] = []

    def run() -> None:
        try:
            call()
        except ENGINE_ERRORS as error:
            failures.append(error)
        except (TypeError, ValueError) as error:  # an option that the SDK does not know
            failures.append(error)

    thread = threading.Thread(target=run, name="container-start", daemon=True)
    thread.start()
    try:
        thread.join()
    except KeyboardInterrupt:
        thread.join(_REMOVED_S)
        raise
    if failures:
        raise LaunchError(_refusal(failures[0])) from failures[0]


def _refusal(error: Exception) -> str:
    text = sentence(error)
    if _NO_GPU_RUNTIME in text:
        return (
            "this engine cannot give GPUs to a container: install the NVIDIA Container Toolkit, "
            'or set server.docker.gpus: "0"'
        )
    return f"the engine did not start the container: {text}"


def _state(attributes: dict[str, Any]) -> ContainerState:
    state = attributes["State"]
    running = state.get("Status") in _RUNNING or bool(state.get("Running"))
    created = state.get("Status") == "created"
    return ContainerState(
        running=running,
        exit_code=None if running or created else int(state.get("ExitCode", 0)),
        out_of_memory=bool(state.get("OOMKilled")),
        error=str(state.get("Error") or ""),
        memory_bytes=int((attributes.get("HostConfig") or {}).get("Memory") or 0),
        paused=bool(state.get("Paused")),
    )


def _end_words(state: ContainerState) -> str:
    if state.error:
        return state.error
    code = state.exit_code
    if code is None:
        return "it was never started"
    known = {number.value for number in signal.Signals}
    return f"killed (signal {code - 128})" if code - 128 in known else f"exit code {code}"

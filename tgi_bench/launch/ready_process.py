"""A deployment as a process of this machine: started, waited for, ended."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tgi_bench.ask import contact
from tgi_bench.engines.arguments import arguments_of
from tgi_bench.engines.engine import Engine, engine_spec
from tgi_bench.errors import LaunchError
from tgi_bench.launch.child import Command, ServerProcess
from tgi_bench.launch.deployment import Deployment
from tgi_bench.launch.facts import Started, facts_of
from tgi_bench.launch.launcher import Death, Endpoint, LaunchOptions, RunningServer
from tgi_bench.launch.readiness import FindUrl, ServerProbe, wait_until_ready
from tgi_bench.launch.secrets import Redactor, handed_on
from tgi_bench.launch.server_environ import needed

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

"""The embedded server, started as its own process on this machine."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tgi_bench.launch.endpoint import Endpoint, LaunchOptions, RunningServer
from tgi_bench.launch.log import arguments_in_effect, capacity_tokens, is_padded, listening_on
from tgi_bench.launch.process import Command, ServerProcess
from tgi_bench.launch.questions import CAPACITY_METRIC, capacity_of, version_of
from tgi_bench.launch.sockets import socket_folder
from tgi_bench.observation import ServerFacts
from tgi_bench.plan.launcher_args import arguments_of, command_line
from tgi_bench.plan.plan import ArgumentValue, Deployment

_CAPACITY_LINE = "log line `Setting max batch total tokens to N`"
_HOSTNAME = "127.0.0.1"


@contextmanager
def launch(deployment: Deployment, options: LaunchOptions) -> Iterator[RunningServer]:
    """Starts the server, waits until it is ready, and ends it when the context is left.

    An experiment's `port`, `hostname` and `shard_uds_path` are not passed on: several sweeps
    share this machine, so each server gets a free port and a socket folder of its own.
    Raises LaunchError where it does not become ready.
    """
    with socket_folder() as stem:
        command = Command(
            argv=command_of(deployment, stem),
            environ=environ_for(deployment.tgi_version),
            log_path=options.log_path(deployment.deployment_id),
            run_id=options.run_id,
        )
        with ServerProcess(command) as process:
            url = process.wait_until_ready(_url, deployment.ready_timeout_s)
            ready_ns = time.monotonic_ns() - process.started_ns
            facts = _facts(command, process, url, ready_ns)
            master_socket = stem.with_name(f"{stem.name}-0")
            yield RunningServer(Endpoint(url, master_socket, facts, command.log_path), process)


def command_of(deployment: Deployment, stem: Path) -> tuple[str, ...]:
    """The command line of one deployment; stem: of its sockets, "<stem>-<shard_rank>"."""
    own: dict[str, ArgumentValue] = {
        "hostname": _HOSTNAME,
        "port": 0,
        "shard_uds_path": str(stem),
    }
    known = {spec.name for spec in arguments_of(deployment.tgi_version)}
    arguments = [(a.name, a.value) for a in deployment.arguments if a.name not in own]
    arguments.extend((name, value) for name, value in own.items() if name in known)
    return (
        sys.executable,
        "-m",
        "tgi_bench.cli.main",
        "serve",
        "--tgi-version",
        deployment.tgi_version,
        "--engine",
        deployment.embedded.engine,
        "--accelerator",
        deployment.embedded.accelerator,
        *command_line(deployment.tgi_version, deployment.model, arguments),
    )


def environ_for(tgi_version: str) -> dict[str, str]:
    """This process's environment without the variables that are launcher arguments.

    The plan alone says what is deployed: a MAX_TOTAL_TOKENS of the user's shell would be
    in effect without being requested.
    """
    names = {spec.env for spec in arguments_of(tgi_version)}
    return {name: value for name, value in os.environ.items() if name not in names}


def _url(lines: Sequence[str]) -> str | None:
    address = listening_on(lines)
    return None if address is None else f"http://{address}"


def _facts(command: Command, process: ServerProcess, url: str, ready_ns: int) -> ServerFacts:
    lines = process.log.lines()
    capacity, source = capacity_tokens(lines), _CAPACITY_LINE
    # Of a padded model the metric, too, is the router's budget and no room.
    if capacity is None and not is_padded(lines):
        capacity, source = capacity_of(url), CAPACITY_METRIC
    return ServerFacts(
        command=command.argv,
        arguments=arguments_in_effect(lines),
        version=version_of(url),
        capacity_tokens=capacity,
        capacity_source="" if capacity is None else source,
        simulated=True,
        ready_ns=ready_ns,
    )

"""The launcher `embedded`: the embedded server, started as its own process on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tgi_bench.launch.endpoint import LaunchOptions, RunningServer
from tgi_bench.launch.log import listening_on
from tgi_bench.launch.ready_process import Program, running
from tgi_bench.launch.sockets import socket_folder
from tgi_bench.plan.plan import Deployment, HostOptions, SimulatedOptions
from tgi_bench.plan.server_command import Reach, server_arguments

_HOSTNAME = "127.0.0.1"


@contextmanager
def launch(deployment: Deployment, options: LaunchOptions) -> Iterator[RunningServer]:
    """Starts the server, waits until it is ready, and ends it when the context is left.

    An experiment's `port`, `hostname` and `shard_uds_path` are not passed on: several sweeps
    share this machine, so each server gets a free port and a socket folder of its own.
    Raises LaunchError where it does not become ready.
    """
    with socket_folder() as stem:
        master_socket = stem.with_name(f"{stem.name}-0")
        program = Program(command_of(deployment, stem), _url, master_socket)
        with running(deployment, options, program) as server:
            yield server


def command_of(deployment: Deployment, stem: Path) -> tuple[str, ...]:
    """The command line of one deployment; stem: of its sockets, "<stem>-<shard_rank>"."""
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
        *_simulated(deployment.host),
        *server_arguments(deployment, Reach(_HOSTNAME, 0, str(stem)), in_image=False),
    )


def _simulated(host: HostOptions) -> tuple[str, ...]:
    """The options that are given where they are not the defaults."""
    if not isinstance(host, SimulatedOptions):
        return ()
    words: tuple[str, ...] = ()
    if host.calibration is not None:
        words = ("--calibration", host.calibration)
    if host.visible_devices > 1:
        words += ("--visible-devices", str(host.visible_devices))
    return words


def _url(lines: Sequence[str]) -> str | None:
    address = listening_on(lines)
    return None if address is None else f"http://{address}"

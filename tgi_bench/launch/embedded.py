"""The launcher `embedded`: the embedded server, started as its own process on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tgi_bench.launch.endpoint import LaunchOptions, RunningServer
from tgi_bench.launch.log import listening_on
from tgi_bench.launch.program import free_ports
from tgi_bench.launch.ready_process import Program, running
from tgi_bench.launch.sockets import socket_folder
from tgi_bench.plan.plan import Deployment, HostOptions, SimulatedOptions, TransformersOptions
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
        program = Program(command_of(deployment, stem, free_ports(1)[0]), _url, master_socket)
        with running(deployment, options, program) as server:
            yield server


def command_of(
    deployment: Deployment, stem: Path, master_port: int | None = None
) -> tuple[str, ...]:
    """The command line of one deployment; stem: of its sockets, "<stem>-<shard_rank>".

    master_port: where the ranks of the transformers engine meet.
    """
    port = None if deployment.simulated else master_port
    return (
        sys.executable,
        "-m",
        "tgi_bench.cli.main",
        "serve",
        "--tgi-version",
        deployment.tgi_version,
        "--engine",
        deployment.embedded.engine,
        *_accelerator_words(deployment),
        *_engine_words(deployment.host),
        *server_arguments(deployment, Reach(_HOSTNAME, 0, str(stem), port), in_image=False),
    )


def _accelerator_words(deployment: Deployment) -> tuple[str, ...]:
    """None where the model itself runs: it simulates no accelerator."""
    planned = deployment.planned_accelerator
    return () if planned is None else ("--accelerator", planned)


def _engine_words(host: HostOptions) -> tuple[str, ...]:
    """The engine's own options, where they are not the defaults."""
    words: list[str] = []
    match host:
        case TransformersOptions():
            words += ["--device", host.device]
            if host.random_weights:
                words += ["--random-weights", "--weights-seed", str(host.weights_seed)]
            if host.layer_split:
                words.append("--layer-split")
        case SimulatedOptions():
            if host.calibration is not None:
                words += ["--calibration", host.calibration]
            if host.visible_devices > 1:
                words += ["--visible-devices", str(host.visible_devices)]
        case _:
            pass
    return tuple(words)


def _url(lines: Sequence[str]) -> str | None:
    address = listening_on(lines)
    return None if address is None else f"http://{address}"

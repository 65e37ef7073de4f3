"""A deployment as the Docker SDK's options of a container. Pure, but for the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker.types import DeviceRequest, LogConfig

from tgi_bench.engines.engine import engine_spec
from tgi_bench.errors import LaunchError
from tgi_bench.launch.deployment import Deployment
from tgi_bench.launch.docker import DockerKeys
from tgi_bench.launch.docker_engine import LOCAL
from tgi_bench.launch.gpus import Gpus
from tgi_bench.launch.server_command import Reach, server_arguments

EVERYWHERE = "0.0.0.0"
HOST_NETWORK = "host"
NO_NETWORK = "none"
_OURS = frozenset(("tty", "stdin_open", "restart_policy"))
"""Of the options that a plan lets through, those that hide a server's log or its death."""


@dataclass(frozen=True, slots=True)
class Making:
    """What is known when a container is made.

    stem: of the shards' sockets, in a folder that is mounted under its own path; or None.
    port: that it listens at, in its own network. remote: whether the engine is elsewhere.
    """

    deployment: Deployment
    keys: DockerKeys
    labels: Mapping[str, str]
    environ: Mapping[str, str]
    gpus: Gpus
    stem: Path | None
    port: int
    remote: bool


def command_inside(deployment: Deployment, port: int, stem: Path | None) -> tuple[str, ...]:
    """The words after the image's entry point."""
    reach = Reach(EVERYWHERE, port, None if stem is None else str(stem))
    program = engine_spec(deployment.engine).image_program
    return (*program, *server_arguments(deployment, reach, in_image=True))


def create_options(making: Making) -> dict[str, Any]:
    """Of `containers.create`, by the SDK's own names. Raises LaunchError for one of ours."""
    asked = making.keys
    options = _further(asked)
    options |= {
        "command": list(command_inside(making.deployment, making.port, making.stem)),
        "labels": dict(making.labels),
        "environment": dict(making.environ),
        "volumes": [*asked.volumes, *_socket_volume(making.stem)],
    }
    # `docker logs` must have something to follow, whatever the engine's default is.
    options.setdefault("log_config", LogConfig(type=LogConfig.types.JSON))
    if asked.shm_size is not None:
        options["shm_size"] = asked.shm_size
    if making.gpus.count:
        options["device_requests"] = [_device_request(making.gpus)]
    if asked.network == HOST_NETWORK:
        options["network_mode"] = HOST_NETWORK
    else:
        # Another machine's 127.0.0.1 cannot be reached from here.
        where = None if making.remote else (LOCAL, None)
        options["ports"] = {f"{making.port}/tcp": where}
        if asked.network is not None:
            options["network"] = asked.network
    return options


def _further(asked: DockerKeys) -> dict[str, Any]:
    options: dict[str, Any] = dict(asked.options)
    if ours := next((name for name in options if name in _OURS), None):
        raise LaunchError(
            f"server.docker.options.{ours} would hide the server's log or its end: leave it out"
        )
    if "log_config" in options:
        options["log_config"] = LogConfig(**options["log_config"])
    return options


def _socket_volume(stem: Path | None) -> tuple[str, ...]:
    return () if stem is None else (f"{stem.parent}:{stem.parent}",)


def _device_request(gpus: Gpus) -> DeviceRequest:
    if gpus.ids:
        return DeviceRequest(device_ids=list(gpus.ids), capabilities=[["gpu"]])
    return DeviceRequest(count=gpus.count, capabilities=[["gpu"]])

"""A deployment as a container: its image, GPUs, options and sockets; waited for until it is ready.

Both sides see the shards' sockets under one path, because a shard names the others' sockets by the
paths that it sees itself.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
from docker.types import DeviceRequest, LogConfig

from tgi_bench.ask import contact
from tgi_bench.engines.engine import Engine, engine_spec
from tgi_bench.errors import LaunchError
from tgi_bench.launch import docker_engine, gpus
from tgi_bench.launch.child import number_start
from tgi_bench.launch.deployment import Deployment, Reach, server_arguments
from tgi_bench.launch.docker import DockerKeys
from tgi_bench.launch.docker_container import Container, LogFollower
from tgi_bench.launch.docker_engine import (
    GPUS_LABEL,
    LOCAL,
    ServerImage,
    container_name,
    is_local,
    labels,
)
from tgi_bench.launch.facts import Started, facts_of
from tgi_bench.launch.gpus import Gpus
from tgi_bench.launch.launcher import Death, Endpoint, LaunchOptions, RunningServer
from tgi_bench.launch.left_behind import socket_folder
from tgi_bench.launch.log import LogFile
from tgi_bench.launch.process import free_ports, no_shards
from tgi_bench.launch.readiness import ServerProbe, wait_until_ready
from tgi_bench.launch.secrets import Redactor, handed_on

_SUB_FOLDER = "c"
_CONNECT_S = 5.0


def why_no_sockets(deployment: Deployment, image: ServerImage) -> str:
    """Why the shards' sockets cannot be reached; empty where they may be."""
    if not engine_spec(deployment.engine).has_shards:
        return no_shards(deployment)
    if not image.has_shards:
        return f"the backend of image {image.name} has no gRPC shards: batches cannot be sent to it"
    if not is_local():
        return "the Docker Engine is on another machine: its shards' sockets cannot be reached"
    return ""


@contextmanager
def shard_stem(wanted: bool) -> Iterator[Path | None]:
    """A stem for sockets ("<stem>-<rank>") in a folder fit to be mounted; None if not wanted.

    Any user of a container may write into it, and nobody of this machine but its owner: the
    folder around it is private.
    """
    if not wanted:
        yield None
        return
    with socket_folder() as private:
        folder = private.parent / _SUB_FOLDER
        folder.mkdir()
        folder.chmod(0o777)
        yield folder / private.name


def reach_sockets(container: Container, stem: Path) -> str:
    """Makes the sockets of a ready server usable; why they are not, or empty."""
    master = stem.with_name(f"{stem.name}-0")
    if not master.is_socket():
        return (
            f"the shards' sockets do not show in {stem.parent}: the Docker Engine and this "
            "process do not share that folder"
        )
    if not _connects(master):
        # A container's root owns them; who connects to a socket must be allowed to write to it.
        container.run(["sh", "-c", f"chmod 0666 '{stem}'-*"], user="0")
    if not _connects(master):
        return f"this user (id {os.getuid()}) may not connect to the shards' socket {master}"
    return ""


def _connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_S)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


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


_ACCELERATOR_VARIABLE = "TGI_BENCH_ACCELERATOR"
_GPU_QUERY = ("index", "name", "memory.total", "driver_version")


@dataclass(frozen=True, slots=True)
class ReadyContainer:
    """A ready server in a container of ours."""

    endpoint: Endpoint
    container: Container

    def alive(self) -> bool:
        """Whether its container runs."""
        return self.container.alive()

    def death(self, since: int = 0) -> Death | None:
        """As RunningServer has it."""
        return self.container.death(since, self.endpoint.facts.device_type)

    def log_length(self) -> int:
        """Lines of its log so far."""
        return self.container.log.length()

    def log_tail(self, count: int) -> tuple[str, ...]:
        """The last lines of its log, oldest first."""
        return self.container.log.tail(count)


@dataclass(frozen=True, slots=True)
class _Start:
    """One start of one deployment. environ: what its container gets."""

    client: docker.DockerClient
    deployment: Deployment
    keys: DockerKeys
    options: LaunchOptions
    image: ServerImage
    environ: dict[str, str]
    redactor: Redactor


@contextmanager
def launch(
    deployment: Deployment, keys: DockerKeys, options: LaunchOptions
) -> Iterator[RunningServer]:
    """Makes a container, waits until its server is ready, and removes it at the end.

    Raises LaunchError where the image cannot be had, GPUs are too few, or it does not become
    ready.
    """
    with docker_engine.engine() as client:
        pull_s = deployment.timeouts.pull_s if options.pull else None
        image = docker_engine.resolve(client, deployment.image or "", pull_s, options.progress)
        environ = handed_on(deployment, os.environ)
        redactor = Redactor.of(deployment, {**os.environ, **environ})
        if image.simulated:
            environ.setdefault(_ACCELERATOR_VARIABLE, deployment.accelerator)
        start = _Start(client, deployment, keys, options, image, environ, redactor)
        why_none = why_no_sockets(deployment, image)
        try:
            with (
                shard_stem(wanted=not why_none) as stem,
                _gpus(start) as held,
                _running(start, stem, held, why_none) as server,
            ):
                yield server
        except LaunchError as error:
            raise LaunchError(redactor.text(str(error)), error.log_tail) from None


@contextmanager
def _gpus(start: _Start) -> Iterator[gpus.Gpus]:
    wanted = start.keys.gpus
    if wanted is None:
        wanted = str(_default_count(start))
    local = docker_engine.is_local()
    if wanted == "0":
        yield gpus.NONE
        return
    host = gpus.host_gpus() if local else ()
    with gpus.held(wanted, host, _taken(start.client), locks=local) as held:
        yield held


def _default_count(start: _Start) -> int:
    """One for each shard, where the image runs on NVIDIA GPUs."""
    cuda_only = start.deployment.engine is Engine.LLAMACPP and "cuda" not in start.image.name
    return 0 if cuda_only or not start.image.uses_nvidia else start.deployment.num_shard


def _taken(client: docker.DockerClient) -> frozenset[str]:
    """The GPUs that labels of running containers name, whoever owns these."""
    try:
        running = client.api.containers(filters={"label": GPUS_LABEL})
    except docker_engine.ENGINE_ERRORS as error:
        raise LaunchError(
            f"the engine did not list containers: {docker_engine.sentence(error)}"
        ) from error
    texts = [str((found.get("Labels") or {}).get(GPUS_LABEL, "")) for found in running]
    return frozenset(name for text in texts for name in text.split(",") if name)


@contextmanager
def _running(
    start: _Start, stem: Path | None, held: gpus.Gpus, why_none: str
) -> Iterator[RunningServer]:
    deployment, options = start.deployment, start.options
    started_ns = time.monotonic_ns()
    making = Making(
        deployment=deployment,
        keys=start.keys,
        labels=labels(options.run_id, deployment.deployment_id, held.label),
        environ=start.environ,
        gpus=held,
        stem=stem,
        port=_port_inside(start),
        remote=not docker_engine.is_local(),
    )
    made = create_options(making)
    log_path = options.log_path(deployment.deployment_id)
    log = LogFile(log_path, number_start(log_path))
    name = container_name(options.run_id, deployment.deployment_id)
    container = Container(start.client, name, log)
    with _removed(container):
        options.progress("making its container")
        container.create(start.image.name, made)
        container.start(lambda: LogFollower(name, log_path, start.redactor))
        probe = ServerProbe.of(
            deployment,
            _FindUrl(container, making.port, start.keys.network == HOST_NETWORK),
            start.environ,
        )
        url = wait_until_ready(container, probe, deployment.timeouts, options.progress)
        container.ready = True
        started = Started(
            engine=deployment.engine,
            command=(*container.entry_point(), *made["command"]),
            lines=log.lines(),
            contact=contact(url, probe.headers),
            ready_ns=time.monotonic_ns() - started_ns,
            details=_details(start, container, held),
        )
        facts = facts_of(started, start.redactor)
        why_none = why_none if stem is None else reach_sockets(container, stem)
        master = None if stem is None or why_none else stem.with_name(f"{stem.name}-0")
        yield ReadyContainer(Endpoint(url, master, facts, log_path, why_none), container)


@contextmanager
def _removed(container: Container) -> Iterator[None]:
    """Removes it at the end; what ended the context comes before a failure to remove."""
    try:
        yield
    except BaseException:
        with suppress(LaunchError):  # it has its labels: `tgi-bench clean` finds it
            container.remove()
        raise
    container.remove()


def _port_inside(start: _Start) -> int:
    """The engine's own port; on the host's network, where others listen too, a free one."""
    network = start.keys.network
    if network == NO_NETWORK:
        raise LaunchError("server.docker.network: `none` leaves no way to reach its server")
    if network == HOST_NETWORK and docker_engine.is_local():
        return free_ports(1)[0]
    return engine_spec(start.deployment.engine).container_port


@dataclass(slots=True)
class _FindUrl:
    """Where a started container is reached; asked until the engine has given it a port."""

    container: Container
    port: int
    on_host: bool
    found: str | None = None

    def __call__(self, _lines: Sequence[str]) -> str | None:
        if self.found is None:
            host = docker_engine.address() or docker_engine.LOCAL
            port = self.port if self.on_host else self.container.published(self.port)
            self.found = None if port is None else f"http://{host}:{port}"
        return self.found


def _details(start: _Start, container: Container, held: gpus.Gpus) -> tuple[tuple[str, str], ...]:
    """What ran, for the record: image, engine, GPUs, driver, CUDA."""
    details = [
        ("Image", start.image.name),
        ("Image digest", start.image.digest),
        *docker_engine.facts(start.client),
    ]
    if held.count:
        query = f"--query-gpu={','.join(_GPU_QUERY)}"
        rows = container.run(["nvidia-smi", query, "--format=csv,noheader"])
        details.append(("GPUs", "; ".join((rows or "").splitlines()) or "nvidia-smi did not say"))
    if start.image.cuda is not None:
        details.append(("CUDA of the image", start.image.cuda))
    return tuple(details)

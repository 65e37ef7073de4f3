"""The launcher `docker`: a container for each deployment, on the engine of the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue

from tgi_bench.devices.take import ELSEWHERE, Take, Whose, listed_gpus
from tgi_bench.errors import Problem
from tgi_bench.launch.launcher import Launcher, LaunchOptions, RunningServer, ServerAsked
from tgi_bench.sections.section import SIZE_PATTERN, Section, Word, refused, texts
from tgi_bench.words import shown

if TYPE_CHECKING:
    from tgi_bench.launch.deployment import Deployment

ALL_GPUS = "all"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_VOLUME = re.compile(r"(?:/[^:]*|[A-Za-z0-9][A-Za-z0-9_.-]*):/[^:]*(?::(?:ro|rw)(?:,[zZ])?)?")
_GPUS = re.compile(r"all|\d{1,4}|[\w-]{1,80},|[\w-]{1,80}(?:,[\w-]{1,80})+", re.ASCII)
_MOST_GPUS = 1024

_OWN_OPTIONS = {
    "environment": "server.env",
    "volumes": "server.docker.volumes",
    "mounts": "server.docker.volumes",
    "network": "server.docker.network",
    "network_mode": "server.docker.network",
    "shm_size": "server.docker.shm_size",
    "device_requests": "server.docker.gpus",
    "image": "server.image",
    "command": "server.constant and server.variable",
    **dict.fromkeys(
        ("ports", "name", "labels", "detach", "remove", "auto_remove", "stdout", "stderr"), ""
    ),
}


def gpu_choice(value: object) -> str | None:
    """ "all", "2" for a count, "0,3" for ids. A list of one id is "0,": a count has no comma."""
    if value is None:
        return None
    if isinstance(value, list) and value and not any(isinstance(v, bool | float) for v in value):
        words = [str(v) for v in value]
        if len(set(words)) == len(words) and all(re.fullmatch(r"[\w-]{1,80}", w) for w in words):
            return words[0] + "," if len(words) == 1 else ",".join(words)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_GPUS:
        return str(value)
    if isinstance(value, str) and _GPUS.fullmatch(value.strip()):
        return value.strip()
    raise refused(f"must be `all`, a count, or a list of different ids, not `{shown(value)}`")


def volume_list(value: object) -> list[str]:
    """Volumes as docker's -v takes them."""
    what = "a list of volumes, as in [/data:/data]"
    volumes = [value] if isinstance(value, str) else texts(value, what)
    for volume in volumes:
        if not _VOLUME.fullmatch(volume):
            raise refused(
                f"`{shown(volume)}` is no volume: write an absolute path, or a volume's name, "
                "`:`, and the absolute path inside the container"
            )
    return volumes


def container_options(options: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Options that tgi-bench does not set itself."""
    for name in options:
        if not _NAME.fullmatch(name):
            raise refused(f"`{shown(name)}` is no name of an option, which is in snake_case")
        if name in _OWN_OPTIONS:
            key = _OWN_OPTIONS[name]
            instead = f"use {key}" if key else "leave it out"
            raise refused(f"`{name}` is set by tgi-bench: {instead}")
    return options


class DockerKeys(Section):
    """How the launcher `docker` makes a container."""

    gpus: Annotated[
        str | None,
        BeforeValidator(
            gpu_choice, json_schema_input_type=str | int | list[Annotated[int, Field(ge=0)]] | None
        ),
    ] = None
    """The GPUs of each container: `all`, a count, or a list of ids; one a shard by default."""
    shm_size: Annotated[str, Field(pattern=SIZE_PATTERN)] | None = None
    """Size of /dev/shm, which shards talk through: `1g`; the engine's own by default."""
    volumes: Annotated[
        list[str], BeforeValidator(volume_list, json_schema_input_type=str | list[str])
    ] = Field(default_factory=list)
    """What is mounted: `/data:/data`, or `name:/data` of a volume; `:ro` at the end is allowed."""
    network: Word | None = None
    """The network; by default a port of 127.0.0.1 that the engine chooses."""
    options: Annotated[dict[str, JsonValue], AfterValidator(container_options)] = Field(
        default_factory=dict
    )
    """Further options of a container, by the names that the Docker SDK for Python gives them."""


@dataclass(frozen=True)
class DockerLauncher(Launcher):
    """A container of `server.image`."""

    name = "docker"
    section = "docker"
    Keys: ClassVar[type[Section]] = DockerKeys
    leaves = "containers"

    keys: DockerKeys

    def problems(self, asked: ServerAsked) -> Iterable[Problem]:
        """It needs an image."""
        if asked.image is None:
            message = "is missing: the launcher `docker` needs the container image to run"
            yield Problem("server.image", message)

    def words(self, deployment: Deployment) -> str:
        """Its image and GPUs."""
        return f"{deployment.image}, GPUs: {self.keys.gpus or deployment.num_shard}"

    def devices(self, deployment: Deployment, environ: Mapping[str, str]) -> Take | str:
        """Those of its container, where the engine is of this machine."""
        host = environ.get("DOCKER_HOST", "")
        if host and not host.startswith("unix:"):
            return ELSEWHERE
        gpus, count = self.keys.gpus, deployment.num_shard
        named: tuple[str, ...] | None = None
        if gpus is not None and gpus.isdecimal():
            count = int(gpus)
            named = None if count else ()
        elif gpus is not None and gpus != ALL_GPUS:
            named = listed_gpus(gpus) or ()
            count = len(named)
        return Take(named, count, True, Whose.CONTAINER, (os.getpid(),))

    def asked_device(self, deployment: Deployment) -> str | None:
        """A GPU, unless none is given to the container."""
        return None if self.keys.gpus in ("0", "") else "a GPU"

    def require_startable(self, deployment: Deployment) -> None:
        """An engine must answer, too."""
        from tgi_bench.launch.docker_engine import engine

        super().require_startable(deployment)
        with engine():
            return

    def launch(
        self, deployment: Deployment, options: LaunchOptions
    ) -> AbstractContextManager[RunningServer]:
        """Makes a container, and removes it at the end."""
        from tgi_bench.launch.docker_start import launch

        return launch(deployment, self.keys, options)

    @classmethod
    def end_left(cls) -> Iterable[str]:
        """Removes the containers whose sweeps no longer run."""
        from tgi_bench.launch.docker_engine import end_left_containers

        return tuple(
            f"removed the container {left.name} that the killed sweep of {left.run_id} had left"
            if left.failure is None
            else f"could not remove the container {left.name} of {left.run_id}: {left.failure}"
            for left in end_left_containers()
        )

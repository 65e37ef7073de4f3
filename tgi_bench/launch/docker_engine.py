"""The Docker Engine that DOCKER_HOST names: asked, its images, and the containers that sweeps left.

Labels say whose a container is. A process is named by id and start time in its process namespace,
on its boot of a machine: only from there can anybody tell whether it lives.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.models.images import Image
from docker.utils import parse_repository_tag
from requests.exceptions import RequestException

from tgi_bench.errors import LaunchError
from tgi_bench.launch.launcher import Progress
from tgi_bench.launch.left_behind import ProcessName, domain

LOCAL = "127.0.0.1"
_DEFAULT_HOST = "unix:///var/run/docker.sock"
_CONNECT_S = 10.0
_TIMEOUT_S = 60
_SENTENCE_CHARACTERS = 300

ENGINE_ERRORS = (DockerException, RequestException)
"""What the SDK raises: its own errors, and those of the connection."""


@contextmanager
def engine() -> Iterator[docker.DockerClient]:
    """A client of the engine. Raises LaunchError where none answers."""
    _require_listener()
    try:
        client = docker.from_env(timeout=_TIMEOUT_S, use_ssh_client=_host().startswith("ssh://"))
    except ENGINE_ERRORS as error:
        raise LaunchError(f"no Docker Engine answers at {_shown()}: {sentence(error)}") from error
    try:
        _require_answer(client)
        yield client
    finally:
        client.close()


def address() -> str | None:
    """The engine's host as this machine reaches its published ports; None for this machine."""
    url = _host()
    if not url or url.startswith("unix://"):
        return None
    return urlsplit(url if "://" in url else f"tcp://{url}").hostname


def is_local() -> bool:
    """Whether the engine shares this machine's files."""
    return address() is None


def sentence(error: BaseException) -> str:
    """What an error of the engine says, on one line."""
    text = error.explanation if isinstance(error, APIError) else None
    line = " ".join(str(text or error).split()).removeprefix("Error while fetching server ")
    return line[:_SENTENCE_CHARACTERS]


def facts(client: docker.DockerClient) -> tuple[tuple[str, str], ...]:
    """What runs the containers, for the record."""
    info = client.info()
    return tuple(
        (name, text)
        for name, text in (
            ("container engine", f"Docker {info.get('ServerVersion', '')}".rstrip()),
            ("container runtime", str(info.get("DefaultRuntime", ""))),
            ("container host", str(info.get("OperatingSystem", ""))),
            ("container host's kernel", str(info.get("KernelVersion", ""))),
            ("container storage driver", str(info.get("Driver", ""))),
        )
        if text
    )


def _require_listener() -> None:
    """The SDK leaves its connection open where nobody answers, so it is tried before."""
    url = _host() or _DEFAULT_HOST
    parts = urlsplit(url if "://" in url else f"tcp://{url}")
    try:
        if parts.scheme == "unix":
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(_CONNECT_S)
                probe.connect(parts.netloc + parts.path)
        elif parts.scheme in ("tcp", "http", "https") and parts.hostname and parts.port:
            socket.create_connection((parts.hostname, parts.port), _CONNECT_S).close()
    except (OSError, ValueError) as error:
        raise LaunchError(f"no Docker Engine answers at {_shown()}: {error}") from error


def _require_answer(client: docker.DockerClient) -> None:
    try:
        client.ping()
    except ENGINE_ERRORS as error:
        raise LaunchError(f"no Docker Engine answers at {_shown()}: {sentence(error)}") from error


def _host() -> str:
    return os.environ.get("DOCKER_HOST", "")


def _shown() -> str:
    return _host() or f"{_DEFAULT_HOST} (set DOCKER_HOST for another)"


SIMULATED_LABEL = "tgi-bench.simulated"
_NO_NVIDIA = re.compile(r"rocm|intel|xpu|gaudi|neuron|cpu", re.IGNORECASE)
_NO_SHARD = re.compile(r"trtllm|llamacpp|neuron", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ServerImage:
    """An image that is on the engine.

    digest: "repository@sha256:..." as a registry knows it; its id where it never was in one.
    simulated: whether it is the embedded server's. cuda: the version that it says it has.
    """

    name: str
    digest: str
    simulated: bool
    cuda: str | None

    @property
    def uses_nvidia(self) -> bool:
        """Whether its server runs on NVIDIA GPUs."""
        return not (self.simulated or _NO_NVIDIA.search(_variant(self.name)))

    @property
    def has_shards(self) -> bool:
        """Whether it opens the shards' gRPC sockets: TGI's other backends have none."""
        return not _NO_SHARD.search(_variant(self.name))


def resolve(
    client: docker.DockerClient, name: str, pull_s: float | None, progress: Progress
) -> ServerImage:
    """The image of that tag or digest.

    pull_s: how long pulling a missing one may take; None: a missing one is refused.
    Raises LaunchError where it cannot be had.
    """
    try:
        return _described(name, client.images.get(name))
    except ImageNotFound:
        pass
    except ENGINE_ERRORS as error:
        raise LaunchError(f"image {name}: {sentence(error)}") from error
    if pull_s is None:
        raise LaunchError(f"image {name} is not on the engine, and --no-pull keeps it from pulling")
    try:
        _pull(client, name, pull_s, progress)
        return _described(name, client.images.get(name))
    except (ImageNotFound, NotFound) as error:
        raise LaunchError(f"image {name} does not exist: {sentence(error)}") from error
    except ENGINE_ERRORS as error:
        raise LaunchError(f"image {name} cannot be pulled: {sentence(error)}") from error


def _described(name: str, image: Image) -> ServerImage:
    attributes = image.attrs
    config = attributes.get("Config") or {}
    repository = parse_repository_tag(name)[0]
    digests = [str(digest) for digest in attributes.get("RepoDigests") or ()]
    # One image may have been pulled by several names.
    same = [digest for digest in digests if digest.partition("@")[0].endswith(repository)]
    variables = dict(str(v).partition("=")[::2] for v in config.get("Env") or ())
    return ServerImage(
        name=name,
        digest=(same or digests or [f"{image.id} (never in a registry)"])[0],
        simulated=image.labels.get(SIMULATED_LABEL) == "true",
        cuda=variables.get("CUDA_VERSION"),
    )


def _variant(name: str) -> str:
    """The part of an image's name that tells what it runs on: its last word and its tag."""
    return name.partition("@")[0].rpartition("/")[2]


@dataclass(slots=True)
class _Layers:
    """Bytes of each layer: (loaded, all of it)."""

    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)

    def read(self, event: Mapping[str, object]) -> None:
        """One line of the engine's answer."""
        match event:
            case {"status": str(status), "id": str(layer)}:
                self._layer(status, layer, event.get("progressDetail"))
            case _:
                return

    def _layer(self, status: str, layer: str, detail: object) -> None:
        if status.startswith("Pulling from"):
            return
        self.seen.add(layer)
        if status in ("Pull complete", "Already exists"):
            self.done.add(layer)
        match detail:
            case {"current": int(current), "total": int(total)} if status == "Downloading":
                self.sizes[layer] = (current, total)
            case _ if layer in self.sizes and status == "Download complete":
                self.sizes[layer] = (self.sizes[layer][1],) * 2

    def words(self) -> str:
        """For the screen."""
        loaded, total = (sum(size[i] for size in self.sizes.values()) for i in (0, 1))
        text = f"{len(self.done)} of {len(self.seen)} layers"
        return f"{text}, {loaded / 1e9:.1f} of {total / 1e9:.1f} GB" if total else text


def _pull(client: docker.DockerClient, name: str, pull_s: float, progress: Progress) -> None:
    """Raises LaunchError where it takes too long or the registry says no."""
    repository, tag = parse_repository_tag(name)
    progress(f"pulling {name}")
    deadline = time.monotonic() + pull_s
    events = client.api.pull(repository, tag=tag or "latest", stream=True, decode=True)
    layers = _Layers()
    for event in _dicts(events):
        if "error" in event:
            raise LaunchError(f"image {name} cannot be pulled: {event['error']}")
        layers.read(event)
        if layers.seen:
            progress(f"pulling {name}: {layers.words()}")
        if time.monotonic() >= deadline:
            raise LaunchError(
                f"image {name} was not pulled within {pull_s:g} s (server.timeouts.pull_s); "
                f"pulled so far: {layers.words()}"
            )


def _dicts(events: object) -> Iterable[dict[str, object]]:
    if isinstance(events, Iterable):
        yield from (event for event in events if isinstance(event, dict))


RUN_LABEL = "tgi-bench.run"
OWNER_LABEL = "tgi-bench.owner"
BOOT_LABEL = "tgi-bench.boot"
NAMESPACE_LABEL = "tgi-bench.pid-namespace"
HOST_LABEL = "tgi-bench.host"
DOMAIN_LABEL = "tgi-bench.domain"
DEPLOYMENT_LABEL = "tgi-bench.deployment"
GPUS_LABEL = "tgi-bench.gpus"
_NAME_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process id means something."""

    boot: str
    namespace: str

    @classmethod
    def here(cls) -> Place:
        """Of this process."""
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return cls(boot, os.readlink("/proc/self/ns/pid"))


def labels(run_id: str, deployment_id: str, gpus: tuple[str, ...]) -> dict[str, str]:
    """What this process writes on a container of a run."""
    place = Place.here()
    return {
        RUN_LABEL: run_id,
        OWNER_LABEL: str(ProcessName.own()),
        BOOT_LABEL: place.boot,
        NAMESPACE_LABEL: place.namespace,
        HOST_LABEL: socket.gethostname(),
        DOMAIN_LABEL: domain(),
        DEPLOYMENT_LABEL: deployment_id,
        GPUS_LABEL: ",".join(gpus),
    }


def container_name(run_id: str, deployment_id: str) -> str:
    """A name that no other container has, of the characters that the engine allows."""
    readable = re.sub(r"[^A-Za-z0-9_.-]", ".", f"tgi-bench-{run_id}-{deployment_id}")
    return f"{readable[:_NAME_CHARACTERS]}-{secrets.token_hex(4)}"


def owner_is_gone(marks: Mapping[str, str]) -> bool:
    """Whether a container's owner ended; False where it cannot be told, or not by this domain."""
    if marks.get(DOMAIN_LABEL, "") != domain():
        return False
    here = Place.here()
    owner = ProcessName.parse(marks.get(OWNER_LABEL, ""))
    placed = (marks.get(BOOT_LABEL), marks.get(NAMESPACE_LABEL))
    return owner is not None and placed == (here.boot, here.namespace) and not owner.lives()


_GRACE_S = 2


@dataclass(frozen=True, slots=True)
class LeftContainer:
    """One container whose owner was gone. failure: why it is still there; None: it is not."""

    name: str
    run_id: str
    failure: str | None = None


def end_left_containers() -> tuple[LeftContainer, ...]:
    """Removes the containers of sweeps that no longer run; their socket folders go with orphans.

    Those of a living sweep are left alone, and so are those of another machine, of an earlier
    boot and of another process namespace: from here nobody can tell whether their owner lives.
    Raises LaunchError where no engine answers.
    """
    with engine() as client:
        left = []
        try:
            # Ids first: a container may go while the list is read.
            for found in client.api.containers(all=True, filters={"label": RUN_LABEL}):
                marks = found.get("Labels") or {}
                if not owner_is_gone(marks):
                    continue
                name = str((found.get("Names") or [found["Id"]])[0]).lstrip("/")
                failure = None
                try:
                    client.api.stop(found["Id"], timeout=_GRACE_S)
                    client.api.remove_container(found["Id"], force=True, v=True)
                except NotFound:
                    continue  # another sweep removed it
                except ENGINE_ERRORS as error:
                    failure = sentence(error)
                left.append(LeftContainer(name, str(marks[RUN_LABEL]), failure))
        except ENGINE_ERRORS as error:
            raise LaunchError(f"the engine did not list containers: {sentence(error)}") from error
        return tuple(left)

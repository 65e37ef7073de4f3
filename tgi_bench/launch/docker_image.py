"""The image of a deployment: found on the engine, or pulled with progress."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import docker
from docker.errors import ImageNotFound, NotFound
from docker.models.images import Image
from docker.utils import parse_repository_tag

from tgi_bench.errors import LaunchError
from tgi_bench.launch.docker_engine import ENGINE_ERRORS, sentence
from tgi_bench.launch.launcher import Progress

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

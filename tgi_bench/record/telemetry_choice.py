"""Which devices of this machine a deployment or a process of ours computes on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from tgi_bench.plan.plan import (
    AttachOptions,
    Deployment,
    DockerOptions,
    TransformersOptions,
)
from tgi_bench.record.telemetry_take import Take, Whose

SIMULATED = "the server simulates: no device computes"
ELSEWHERE = "the server is another machine's"
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})
_ALL = "all"
_ALL_GPUS = 1 << 10
"""More than a machine has."""


def choice_of(deployment: Deployment, environ: Mapping[str, str]) -> Take | str:
    """The devices of a deployment as far as its plan tells; str: why none is sampled.

    Of these the sampler takes the GPUs on which the server's processes are seen to compute.
    """
    match deployment.host:
        case AttachOptions(url=url, master_socket=path):
            # A unix socket is of this machine, wherever its router may be.
            if path is None and urlsplit(url or "").hostname not in _HERE:
                return ELSEWHERE
            return Take(None, 0, True, Whose.UNKNOWN, (os.getpid(),))
        case DockerOptions(gpus=gpus):
            if _is_elsewhere(environ.get("DOCKER_HOST", "")):
                return ELSEWHERE
            return _of_container(gpus, deployment.num_shard)
        case TransformersOptions(device="cpu"):
            return own_devices(1, environ, cpu_only=True)
        case TransformersOptions(layer_split=True):
            return own_devices(_ALL_GPUS, environ)
    return SIMULATED if deployment.simulated else own_devices(deployment.num_shard, environ)


def own_devices(count: int, environ: Mapping[str, str], cpu_only: bool = False) -> Take:
    """Those of processes that descend from this one: `count` GPUs of those it may use, and RAPL.

    The first ones, where no process is seen to compute on any when the devices are chosen.

    environ: CUDA_VISIBLE_DEVICES says which it may use.
    """
    gpus = () if cpu_only else _visible(environ.get("CUDA_VISIBLE_DEVICES"))
    return Take(gpus, count, True, Whose.CHILDREN, (os.getpid(),))


def _of_container(gpus: str | None, num_shard: int) -> Take:
    """gpus: as in DockerOptions."""
    named: tuple[str, ...] | None = None
    count = num_shard
    if gpus is not None and gpus.isdecimal():
        count = int(gpus)
        named = None if count else ()
    elif gpus is not None and gpus != _ALL:
        named = _visible(gpus) or ()
        count = len(named)
    return Take(named, count, True, Whose.CONTAINER, (os.getpid(),))


def _visible(text: str | None) -> tuple[str, ...] | None:
    """CUDA's list of devices: numbers or UUIDs up to the first that is none; None: all."""
    if text is None:
        return None
    names: list[str] = []
    for name in (part.strip() for part in text.split(",")):
        if not (name.isdecimal() or name.startswith(("GPU-", "MIG-"))):
            break
        names.append(name)
    return tuple(names)


def _is_elsewhere(docker_host: str) -> bool:
    return bool(docker_host) and not docker_host.startswith("unix:")

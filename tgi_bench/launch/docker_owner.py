"""Whose a container is: labels by which a later sweep finds what was left.

A process is named by id and start time in its process namespace, on its boot of a machine:
only from there can anybody tell whether it lives.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tgi_bench.launch.owner import ProcessName, domain

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

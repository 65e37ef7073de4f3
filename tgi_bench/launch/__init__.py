"""The launchers: each stands in a file of its own, which owns its keys, checks and words."""

from __future__ import annotations

from tgi_bench.launch.attach import AttachLauncher
from tgi_bench.launch.docker import DockerLauncher
from tgi_bench.launch.embedded import EmbeddedLauncher
from tgi_bench.launch.launcher import Launcher
from tgi_bench.launch.process import ProcessLauncher

LAUNCHERS: tuple[type[Launcher], ...] = (
    DockerLauncher,
    ProcessLauncher,
    EmbeddedLauncher,
    AttachLauncher,
)


def launcher_named(name: str) -> type[Launcher]:
    """The launcher of that name. Raises ValueError where there is none."""
    for launcher in LAUNCHERS:
        if launcher.name == name:
            return launcher
    raise ValueError(f"{name} is no launcher")

"""Deployments of every launcher and engine."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from tgi_bench.launch.attach import AttachKeys, AttachLauncher
from tgi_bench.launch.docker import DockerKeys, DockerLauncher
from tgi_bench.launch.embedded import EmbeddedKeys, EmbeddedLauncher
from tgi_bench.launch.launcher import Launcher, LaunchOptions, RunningServer
from tgi_bench.launch.process import ProcessKeys, ProcessLauncher
from tgi_bench.plan.plan import (
    ArgumentValue,
    Deployment,
    Engine,
    LauncherArgument,
    Timeouts,
)

TIMEOUTS = Timeouts(pull_s=30.0, download_s=30.0, load_s=30.0, probe_s=30.0)
MODEL = "bigscience/bloomz-1b1"


def docker(**keys: object) -> DockerLauncher:
    return DockerLauncher(DockerKeys.model_validate(keys))


def program(*command: str) -> ProcessLauncher:
    return ProcessLauncher(ProcessKeys(command=list(command)))


def attach(url: str | None = None, sockets: str | None = None, **keys: object) -> AttachLauncher:
    return AttachLauncher(AttachKeys.model_validate({"url": url, "sockets": sockets, **keys}))


def embedded(**keys: object) -> EmbeddedLauncher:
    return EmbeddedLauncher(EmbeddedKeys.model_validate(keys))


def transformers(device: str = "auto", **keys: object) -> EmbeddedLauncher:
    return embedded(engine="transformers", device=device, **keys)


def deployment(
    launcher: Launcher | None = None,
    *,
    engine: Engine = Engine.TGI,
    version: str = "0.9.4",
    env: tuple[str, ...] = (),
    timeouts: Timeouts = TIMEOUTS,
    model: str = MODEL,
    **arguments: ArgumentValue,
) -> Deployment:
    """launcher: `process` by default."""
    return Deployment(
        deployment_id="default",
        launcher=launcher or program(),
        model=model,
        image=None,
        tgi_version=version,
        version_assumed=False,
        arguments=tuple(LauncherArgument(n, v, False) for n, v in arguments.items()),
        accelerator="A100-40GB-SXM",
        engine=engine,
        env=env,
        timeouts=timeouts,
    )


def process(*command: str, **rest: object) -> Deployment:
    """One of the launcher `process`, started with a command."""
    return deployment(program(*command), **rest)  # type: ignore[arg-type]


def launch(asked: Deployment, options: LaunchOptions) -> AbstractContextManager[RunningServer]:
    return asked.launcher.launch(asked, options)


def require_startable(asked: Deployment) -> None:
    asked.launcher.require_startable(asked)


def command_of(asked: Deployment, stem: Path, master_port: int | None = None) -> tuple[str, ...]:
    """Of the launcher `embedded`."""
    assert isinstance(asked.launcher, EmbeddedLauncher)
    return asked.launcher.command(asked, stem, master_port)

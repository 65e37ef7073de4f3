"""Deployments of every launcher and engine."""

from __future__ import annotations

from tgi_bench.plan.plan import (
    ArgumentValue,
    Deployment,
    EmbeddedOptions,
    Engine,
    HostOptions,
    LauncherArgument,
    LauncherKind,
    ProcessOptions,
    Timeouts,
)

TIMEOUTS = Timeouts(pull_s=30.0, download_s=30.0, load_s=30.0, probe_s=30.0)
MODEL = "bigscience/bloomz-1b1"


def deployment(
    launcher: LauncherKind = LauncherKind.PROCESS,
    *,
    host: HostOptions = None,
    engine: Engine = Engine.TGI,
    version: str = "0.9.4",
    env: tuple[str, ...] = (),
    timeouts: Timeouts = TIMEOUTS,
    model: str = MODEL,
    **arguments: ArgumentValue,
) -> Deployment:
    return Deployment(
        deployment_id="default",
        launcher=launcher,
        model=model,
        image=None,
        tgi_version=version,
        version_assumed=False,
        arguments=tuple(LauncherArgument(n, v, False) for n, v in arguments.items()),
        embedded=EmbeddedOptions("simulated", "A100-40GB-SXM"),
        engine=engine,
        env=env,
        timeouts=timeouts,
        host=host,
    )


def process(*command: str, **rest: object) -> Deployment:
    """One of the launcher `process`, started with a command."""
    return deployment(host=ProcessOptions(command), **rest)  # type: ignore[arg-type]

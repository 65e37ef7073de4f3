"""Which launcher starts a deployment."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager

from tgi_bench.launch import attach, embedded, program
from tgi_bench.launch.endpoint import LaunchOptions, RunningServer
from tgi_bench.launch.secrets import require_set
from tgi_bench.plan.plan import Deployment, LauncherKind


def require_startable(deployment: Deployment) -> None:
    """Raise InputError where something that the launcher needs is known to be missing."""
    match deployment.launcher:
        case LauncherKind.PROCESS:
            program.require_startable(deployment)
        case LauncherKind.DOCKER:
            from tgi_bench.launch.docker import require_startable as require_docker

            require_docker(deployment)
        case LauncherKind.ATTACH:
            require_set(deployment, os.environ)
        case LauncherKind.EMBEDDED:
            return


def launch(deployment: Deployment, options: LaunchOptions) -> AbstractContextManager[RunningServer]:
    """A context in which the deployment's server runs.

    Entering it raises LaunchError where the server does not become ready.
    """
    match deployment.launcher:
        case LauncherKind.EMBEDDED:
            return embedded.launch(deployment, options)
        case LauncherKind.PROCESS:
            return program.launch(deployment, options)
        case LauncherKind.ATTACH:
            return attach.launch(deployment, options)
        case LauncherKind.DOCKER:
            # Its SDK is imported only where it is used.
            from tgi_bench.launch.docker import launch as launch_docker

            return launch_docker(deployment, options)

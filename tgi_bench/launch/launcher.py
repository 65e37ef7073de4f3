"""Which launcher starts a deployment.

Each is imported where it is used: `attach` waits for none of what the others need.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager

from tgi_bench.launch.endpoint import LaunchOptions, RunningServer
from tgi_bench.launch.secrets import require_set
from tgi_bench.plan.plan import Deployment, LauncherKind


def require_startable(deployment: Deployment) -> None:
    """Raise InputError where something that the launcher needs is known to be missing."""
    match deployment.launcher:
        case LauncherKind.PROCESS:
            from tgi_bench.launch.program import require_startable as require_program

            require_program(deployment)
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
            from tgi_bench.launch.embedded import launch as launch_embedded

            return launch_embedded(deployment, options)
        case LauncherKind.PROCESS:
            from tgi_bench.launch.program import launch as launch_program

            return launch_program(deployment, options)
        case LauncherKind.ATTACH:
            from tgi_bench.launch.attach import launch as attach

            return attach(deployment, options)
        case LauncherKind.DOCKER:
            from tgi_bench.launch.docker import launch as launch_docker

            return launch_docker(deployment, options)

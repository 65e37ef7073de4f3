"""Which launcher starts a deployment."""

from __future__ import annotations

from contextlib import AbstractContextManager

from tgi_bench.errors import InputError
from tgi_bench.launch import embedded
from tgi_bench.launch.endpoint import LaunchOptions, RunningServer
from tgi_bench.plan.plan import Deployment, LauncherKind


def require_startable(deployment: Deployment) -> None:
    """Raise InputError where this version has no such launcher."""
    match deployment.launcher:
        case LauncherKind.EMBEDDED:
            return
        case LauncherKind.DOCKER | LauncherKind.PROCESS | LauncherKind.ATTACH:
            raise InputError(
                f"server.launcher `{deployment.launcher}` cannot be started by this version; "
                "use --launcher embedded"
            )


def launch(deployment: Deployment, options: LaunchOptions) -> AbstractContextManager[RunningServer]:
    """A context in which the deployment's server runs.

    Raises InputError as `require_startable`; entering it raises LaunchError where the server
    does not become ready.
    """
    require_startable(deployment)
    return embedded.launch(deployment, options)

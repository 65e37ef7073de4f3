"""What a launcher is: its keys, its checks and words, and a server that it started."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from tgi_bench.devices.take import Take, own_devices
from tgi_bench.engines.engine import Engine
from tgi_bench.errors import Problem
from tgi_bench.observation import Outcome, ServerFacts
from tgi_bench.sections.section import Section

if TYPE_CHECKING:
    from tgi_bench.launch.deployment import Deployment

ASSUMED_ACCELERATOR = "A100-40GB-SXM"
"""What an experiment that names no accelerator is estimated for."""

Progress = Callable[[str], None]
"""Is told what a server that is not ready yet is doing: "downloading 2 of 5"."""


def silent(_text: str) -> None:
    """The progress that nobody watches."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """url: of its router, without a path.

    master_socket: of shard_rank 0, which names the others; None where batches cannot be sent,
    and then no_socket_reason says why.
    log_path: the whole log of the deployment, in the run's folder; None where it has none.
    """

    url: str
    master_socket: Path | None
    facts: ServerFacts
    log_path: Path | None
    no_socket_reason: str = ""


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """Of one run, for all of its servers. run_dir: logs go to <run_dir>/launch/.

    pull: whether an image that is missing may be pulled.
    """

    run_dir: Path
    run_id: str
    pull: bool = True
    progress: Progress = silent

    def log_path(self, deployment_id: str) -> Path:
        """Where the servers of one deployment log, one start after the other."""
        return self.run_dir / "launch" / f"{deployment_id}.log"


@dataclass(frozen=True, slots=True)
class Death:
    """That a server ended, or is about to. cause: in one sentence.

    outcome: OUT_OF_MEMORY or HOST_OUT_OF_MEMORY where there is evidence of it, else SERVER_DIED.
    """

    cause: str
    outcome: Outcome = Outcome.SERVER_DIED


class RunningServer(Protocol):
    """A ready server inside its context."""

    @property
    def endpoint(self) -> Endpoint:
        """Where it is reached."""

    def alive(self) -> bool:
        """Whether it runs."""

    def death(self, since: int = 0) -> Death | None:
        """Why it ended, or is about to; None while it runs and its log says nothing of it.

        since: lines of its log to leave out, for what was survived earlier is no cause.
        """

    def log_length(self) -> int:
        """Lines of its log so far; 0 where it has none that is ours."""

    def log_tail(self, count: int) -> tuple[str, ...]:
        """The last lines of its log, oldest first."""


@dataclass(frozen=True, slots=True)
class ServerAsked:
    """What else an experiment says of its servers, for a launcher's checks.

    version: TGI's, which version_key or, where nothing says it, nobody named. deployments: how
    many there are. loads: whether requests are sent over HTTP.
    """

    engine: Engine
    image: str | None
    version: str
    version_key: str
    deployments: int
    loads: bool


@dataclass(frozen=True)
class Launcher(ABC):
    """How a deployment's server comes to be: a subclass in a file of its own, with its keys.

    name: `server.launcher`. section: the key of `server` that its keys stand below; "" where they
    stand in `server` itself. Keys: what they are.
    started_by_us: False of a server that runs already and is left as it was found.
    said_by_server: whether the experiment leaves it to the server to say what it is.
    on_this_machine: whether the devices of the run's environment are those that it computes on.
    leaves: what of it a killed sweep may leave, beside processes of this machine.
    """

    name: ClassVar[str]
    section: ClassVar[str] = ""
    Keys: ClassVar[type[Section]]
    started_by_us: ClassVar[bool] = True
    said_by_server: ClassVar[bool] = False
    on_this_machine: ClassVar[bool] = False
    leaves: ClassVar[str] = ""

    keys: Section

    @abstractmethod
    def launch(
        self, deployment: Deployment, options: LaunchOptions
    ) -> AbstractContextManager[RunningServer]:
        """A context in which the deployment's server runs.

        Entering it raises LaunchError where the server does not become ready.
        """

    @abstractmethod
    def words(self, deployment: Deployment) -> str:
        """What it starts, for `plan`: an image, a command, an address."""

    def problems(self, asked: ServerAsked) -> Iterable[Problem]:
        """Why the experiment's servers cannot be launched so."""
        del asked
        return ()

    def require_startable(self, deployment: Deployment) -> None:
        """Raise InputError or LaunchError where something that it needs is known to be missing."""
        from tgi_bench.launch.secrets import require_set

        require_set(deployment, os.environ)

    def notes(self) -> Iterable[str]:
        """Lines for the user of what is done otherwise than it was asked for."""
        return ()

    @classmethod
    def end_left(cls) -> Iterable[str]:
        """Ends what `leaves` says that killed sweeps left: a line for each.

        Raises LaunchError where it could not be looked for.
        """
        return ()

    def devices(self, deployment: Deployment, environ: Mapping[str, str]) -> Take | str:
        """The devices that telemetry samples, as far as the plan tells; str: why none is.

        Of these the sampler takes the GPUs on which the server's processes are seen to compute.
        """
        return own_devices(deployment.num_shard, environ)

    def asked_device(self, deployment: Deployment) -> str | None:
        """ "cpu", "cuda" or "a GPU" where the experiment asks for it; None where it does not."""
        planned = deployment.accelerator
        return None if planned in ("", ASSUMED_ACCELERATOR) else f"a GPU ({planned})"

    @property
    def where(self) -> str:
        """Of a server that ran already, which it is: "server at http://h:80"."""
        return ""

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Of every question and request; `$NAME` in a value is that environment variable's."""
        return ()

    @property
    def verify_tls(self) -> bool:
        """Whether an https server's certificate must be valid: only somebody else's need not."""
        return True

    @property
    def simulates(self) -> bool:
        """Whether an estimate stands in for hardware."""
        return False

    @property
    def own_device(self) -> str | None:
        """Where it runs the model itself by transformers: "auto", "cpu" or "cuda"; else None."""
        return None

    @property
    def visible_devices(self) -> int | None:
        """GPUs over which one rank lays the layers of a padded model; None: not known."""
        return 1

    @property
    def calibration(self) -> str | None:
        """The calibration that a server which simulates computes with: its name, or a path."""
        return None

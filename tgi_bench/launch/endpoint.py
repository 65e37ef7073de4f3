"""A server that is ready: where it is reached and what it said of itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tgi_bench.observation import Outcome, ServerFacts

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

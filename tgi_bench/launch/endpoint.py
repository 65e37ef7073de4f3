"""A server that is ready: where it is reached and what it said of itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tgi_bench.launch.process import ServerProcess
from tgi_bench.observation import ServerFacts


@dataclass(frozen=True, slots=True)
class Endpoint:
    """url: of its router, without a path. master_socket: of shard_rank 0, which names the others.

    log_path: the whole log of the deployment, in the run's folder.
    """

    url: str
    master_socket: Path
    facts: ServerFacts
    log_path: Path


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """Of one run, for all of its servers. run_dir: logs go to <run_dir>/launch/."""

    run_dir: Path
    run_id: str

    def log_path(self, deployment_id: str) -> Path:
        """Where the servers of one deployment log, one start after the other."""
        return self.run_dir / "launch" / f"{deployment_id}.log"


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A ready server inside its context."""

    endpoint: Endpoint
    process: ServerProcess

    def alive(self) -> bool:
        """Whether it runs."""
        return self.process.alive()

    def death_cause(self) -> str | None:
        """Why it ended, in one sentence; None while it runs."""
        return self.process.death_cause()

    def log_tail(self, count: int) -> tuple[str, ...]:
        """The last lines of its log, oldest first."""
        return self.process.log.tail(count)

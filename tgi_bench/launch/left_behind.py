"""All that sweeps which no longer run have left: processes, containers, temporary folders."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tgi_bench.errors import LaunchError
from tgi_bench.launch.orphans import Orphan, end_orphans
from tgi_bench.launch.owned_folder import remove_left_of_null_servers
from tgi_bench.launch.sockets import remove_left_folders


@dataclass(frozen=True, slots=True)
class Left:
    """What was found and ended. containers: a sentence for each. folders: of sockets.

    not_asked: why no containers were looked for; empty where they were, or need not be.
    """

    processes: tuple[Orphan, ...]
    containers: tuple[str, ...]
    folders: tuple[Path, ...]
    not_asked: str = ""
    null_server_folders: tuple[Path, ...] = ()

    def sentences(self) -> tuple[str, ...]:
        """What was done, a line each; () where nothing was left."""
        runs = Counter(orphan.run_id for orphan in self.processes)
        ended = (
            f"ended {count} {'process' if count == 1 else 'processes'} that the killed sweep of "
            f"{run_id} had left"
            for run_id, count in runs.items()
        )
        removed = (f"removed the socket folder {folder}" for folder in self.folders)
        others = (f"removed the null server's folder {one}" for one in self.null_server_folders)
        return (*ended, *self.containers, *removed, *others)


def end_left(containers: bool) -> Left:
    """Ends what has no living owner any more, and nothing else.

    containers: whether the Docker Engine is asked too.
    """
    processes = end_orphans()
    found: tuple[str, ...] = ()
    not_asked = ""
    if containers:
        try:
            found = _containers()
        except LaunchError as error:
            not_asked = str(error)
    # Last: what has ended holds no socket any more.
    folders = remove_left_folders()
    return Left(processes, found, folders, not_asked, remove_left_of_null_servers())


def _containers() -> tuple[str, ...]:
    """A sentence for each container that was found. Raises LaunchError without an engine."""
    from tgi_bench.launch.docker_clean import end_left_containers

    return tuple(
        f"removed the container {left.name} that the killed sweep of {left.run_id} had left"
        if left.failure is None
        else f"could not remove the container {left.name} of {left.run_id}: {left.failure}"
        for left in end_left_containers()
    )

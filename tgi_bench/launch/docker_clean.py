"""Containers that outlived the sweep that made them, found by their labels and removed."""

from __future__ import annotations

from dataclasses import dataclass

from docker.errors import NotFound

from tgi_bench.errors import LaunchError
from tgi_bench.launch.docker_engine import ENGINE_ERRORS, engine, sentence
from tgi_bench.launch.docker_owner import RUN_LABEL, owner_is_gone

_GRACE_S = 2


@dataclass(frozen=True, slots=True)
class LeftContainer:
    """One container whose owner was gone. failure: why it is still there; None: it is not."""

    name: str
    run_id: str
    failure: str | None = None


def end_left_containers() -> tuple[LeftContainer, ...]:
    """Removes the containers of sweeps that no longer run; their socket folders go with orphans.

    Those of a living sweep are left alone, and so are those of another machine, of an earlier
    boot and of another process namespace: from here nobody can tell whether their owner lives.
    Raises LaunchError where no engine answers.
    """
    with engine() as client:
        left = []
        try:
            # Ids first: a container may go while the list is read.
            for found in client.api.containers(all=True, filters={"label": RUN_LABEL}):
                marks = found.get("Labels") or {}
                if not owner_is_gone(marks):
                    continue
                name = str((found.get("Names") or [found["Id"]])[0]).lstrip("/")
                failure = None
                try:
                    client.api.stop(found["Id"], timeout=_GRACE_S)
                    client.api.remove_container(found["Id"], force=True, v=True)
                except NotFound:
                    continue  # another sweep removed it
                except ENGINE_ERRORS as error:
                    failure = sentence(error)
                left.append(LeftContainer(name, str(marks[RUN_LABEL]), failure))
        except ENGINE_ERRORS as error:
            raise LaunchError(f"the engine did not list containers: {sentence(error)}") from error
        return tuple(left)

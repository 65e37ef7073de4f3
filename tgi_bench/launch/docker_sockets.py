"""The shards' sockets of a container, in a folder that both sides see under one path.

One path, because a shard names the others' sockets by the paths that it sees itself.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tgi_bench.engines.engine import engine_spec
from tgi_bench.launch.deployment import Deployment
from tgi_bench.launch.docker_container import Container
from tgi_bench.launch.docker_engine import is_local
from tgi_bench.launch.docker_image import ServerImage
from tgi_bench.launch.process import no_shards
from tgi_bench.launch.sockets import socket_folder

_SUB_FOLDER = "c"
_CONNECT_S = 5.0


def why_no_sockets(deployment: Deployment, image: ServerImage) -> str:
    """Why the shards' sockets cannot be reached; empty where they may be."""
    if not engine_spec(deployment.engine).has_shards:
        return no_shards(deployment)
    if not image.has_shards:
        return f"the backend of image {image.name} has no gRPC shards: batches cannot be sent to it"
    if not is_local():
        return "the Docker Engine is on another machine: its shards' sockets cannot be reached"
    return ""


@contextmanager
def shard_stem(wanted: bool) -> Iterator[Path | None]:
    """A stem for sockets ("<stem>-<rank>") in a folder fit to be mounted; None if not wanted.

    Any user of a container may write into it, and nobody of this machine but its owner: the
    folder around it is private.
    """
    if not wanted:
        yield None
        return
    with socket_folder() as private:
        folder = private.parent / _SUB_FOLDER
        folder.mkdir()
        folder.chmod(0o777)
        yield folder / private.name


def reach_sockets(container: Container, stem: Path) -> str:
    """Makes the sockets of a ready server usable; why they are not, or empty."""
    master = stem.with_name(f"{stem.name}-0")
    if not master.is_socket():
        return (
            f"the shards' sockets do not show in {stem.parent}: the Docker Engine and this "
            "process do not share that folder"
        )
    if not _connects(master):
        # A container's root owns them; who connects to a socket must be allowed to write to it.
        container.run(["sh", "-c", f"chmod 0666 '{stem}'-*"], user="0")
    if not _connects(master):
        return f"this user (id {os.getuid()}) may not connect to the shards' socket {master}"
    return ""


def _connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_S)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True

"""The unix sockets of a deployment: usable paths, no leftovers, none of another server."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterable

from tgi_bench.errors import InputError

LONGEST_PATH_BYTES = 107
"""Linux: sun_path has 108 bytes, the last is the terminator."""


def check_length(paths: Iterable[str]) -> None:
    """InputError for a path that no unix socket can have."""
    for path in paths:
        size = len(os.fsencode(path))
        if size > LONGEST_PATH_BYTES:
            raise InputError(
                f"the socket path {path} has {size} bytes; a unix socket's path has at most "
                f"{LONGEST_PATH_BYTES}: choose a shorter shard_uds_path"
            )
        if not os.path.isabs(path):
            raise InputError(f"the socket path {path} is relative: give an absolute shard_uds_path")


def remove_stale(paths: Iterable[str]) -> None:
    """Remove sockets that nobody listens on.

    InputError where a server listens, where the path is no socket, or its folder is missing.
    """
    for path in paths:
        if not os.path.isdir(os.path.dirname(path)):
            raise InputError(f"the folder of the socket {path} does not exist")
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            continue
        if not stat.S_ISSOCK(mode):
            raise InputError(f"{path} exists and is no socket: choose another shard_uds_path")
        if _listened_on(path):
            raise InputError(
                f"another server listens on {path}: end it or choose another shard_uds_path"
            )
        remove(path)


def remove(path: str) -> None:
    """Remove a socket, there or not."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _listened_on(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
    return True

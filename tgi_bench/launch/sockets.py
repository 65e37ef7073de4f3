"""A private folder for the unix sockets of one server, with a short path.

Its owner holds a lock on the folder: the kernel frees it when the owner ends, so a later
sweep knows which folders were left behind, in whatever process namespace they were made.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tgi_bench.errors import LaunchError

_PREFIX = "tgi-bench-s"
_NEW_PREFIX = "tgi-bench-new-"
_STEM = "shard"
_MOST_BYTES = 107
"""Of a unix socket's path; the kernel's field has 108 with the ending zero."""
_LONGEST_RANK = "-99"


@contextmanager
def socket_folder() -> Iterator[Path]:
    """A stem for sockets ("<stem>-<rank>") in a new folder of mode 700, removed at the end."""
    parent = _parents()[0]
    try:
        new = Path(tempfile.mkdtemp(prefix=_NEW_PREFIX, dir=parent))
        lock = os.open(new, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise LaunchError(f"no folder for sockets in {parent}: {error.strerror}") from error
    folder = parent / new.name.replace(_NEW_PREFIX, _PREFIX, 1)
    try:
        # Locked first, named second: under this name no folder is ever seen unlocked.
        fcntl.flock(lock, fcntl.LOCK_EX)
        new.rename(folder)
        yield folder / _STEM
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_left_folders() -> tuple[Path, ...]:
    """Removes the socket folders of this user whose owners no longer live; says which."""
    return tuple(
        folder
        for parent in _parents()
        for folder in sorted(parent.glob(f"{_PREFIX}*"))
        if _remove_if_left(folder)
    )


def _parents() -> tuple[Path, ...]:
    """The folders for temporary files whose path leaves room for a socket's name."""
    found = dict.fromkeys((Path(tempfile.gettempdir()), Path("/tmp")))
    longest = f"/{_PREFIX}{'x' * 8}/{_STEM}{_LONGEST_RANK}"
    return tuple(p for p in found if len(os.fsencode(p)) + len(longest) <= _MOST_BYTES)


def _remove_if_left(folder: Path) -> bool:
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False  # gone in between, or another user's, or no folder
    try:
        if os.fstat(lock).st_uid != os.getuid():
            return False
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()
    finally:
        os.close(lock)

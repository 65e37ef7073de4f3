"""Temporary folders that say by themselves whether their owner lives.

Its owner holds a lock on the folder: the kernel frees it when the owner ends, so a later run
knows which folders were left behind, in whatever process namespace they were made.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tgi_bench.launch.owner import domain

NULL_SERVER = "tgi-bench.null-server."
"""Prefix of the folders that null servers log into."""
ENDING_CHARACTERS = 8
"""What `tempfile` puts after a prefix."""
_NEW = "tgi-bench.new."
_ENDING = rf"[a-z0-9_]{{{ENDING_CHARACTERS}}}"


@contextmanager
def owned_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A new folder of mode 700 below parent, removed at the end. Raises OSError."""
    new = Path(tempfile.mkdtemp(prefix=_NEW, dir=parent))
    folder = parent / new.name.replace(_NEW, of_domain(prefix), 1)
    lock = os.open(new, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Locked first, named second: under this name no folder is ever seen unlocked.
        fcntl.flock(lock, fcntl.LOCK_EX)
        new.rename(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_left(parents: Iterable[Path], prefix: str) -> tuple[Path, ...]:
    """Removes this user's folders of that prefix and this domain whose owners no longer live.

    Says which. Only names as `owned_folder` makes them: what somebody else called alike is not
    touched.
    """
    prefix = of_domain(prefix)
    name = re.compile(re.escape(prefix) + _ENDING, re.ASCII)
    return tuple(
        folder
        for parent in parents
        for folder in sorted(parent.glob(f"{prefix}*"))
        if name.fullmatch(folder.name) and _remove_if_left(folder)
    )


def of_domain(prefix: str) -> str:
    """The prefix with this domain's name: `_ENDING` has no dot, so it is no other's ending."""
    return f"{prefix}{named}." if (named := domain()) else prefix


def remove_left_of_null_servers() -> tuple[Path, ...]:
    """`remove_left` of the folders that null servers log into."""
    return remove_left((Path(tempfile.gettempdir()),), NULL_SERVER)


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

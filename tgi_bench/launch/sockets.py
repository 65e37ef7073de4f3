"""A private folder for the unix sockets of one server, with a short path."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tgi_bench.errors import LaunchError
from tgi_bench.launch.owned_folder import (
    ENDING_CHARACTERS,
    of_domain,
    owned_folder,
    remove_left,
)

_PREFIX = "tgi-bench.sockets."
_STEM = "shard"
_MOST_BYTES = 107
"""Of a unix socket's path; the kernel's field has 108 with the ending zero."""
_LONGEST_RANK = "-99"


@contextmanager
def socket_folder() -> Iterator[Path]:
    """A stem for sockets ("<stem>-<rank>") in a new folder of mode 700, removed at the end."""
    parent = _parents()[0]
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(owned_folder(parent, _PREFIX))
        except OSError as error:
            raise LaunchError(f"no folder for sockets in {parent}: {error.strerror}") from error
        yield folder / _STEM


def remove_left_folders() -> tuple[Path, ...]:
    """Removes the socket folders of this user whose owners no longer live; says which."""
    return remove_left(_parents(), _PREFIX)


def _parents() -> tuple[Path, ...]:
    """The folders for temporary files whose path leaves room for a socket's name."""
    found = dict.fromkeys((Path(tempfile.gettempdir()), Path("/tmp")))
    longest = f"/{of_domain(_PREFIX)}{'x' * ENDING_CHARACTERS}/{_STEM}{_LONGEST_RANK}"
    return tuple(p for p in found if len(os.fsencode(p)) + len(longest) <= _MOST_BYTES)

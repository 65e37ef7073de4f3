"""Reading a run.db that a killed sweep left half written: its journal is played back first.

SQLite recovers by writing, which a read-only open may not do, nor anybody in a folder that
cannot be written: there a copy is recovered and read.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from tgi_bench.errors import RunFileError

JOURNALS = ("-journal", "-wal")
"""What SQLite lays beside a file. Its -shm is an index of -wal, and made again."""

_WANTS_RECOVERY = (
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_IOERR,  # a full disk has no room for the index of a log
    sqlite3.SQLITE_FULL,
)
_PRIMARY = 0xFF
_MOST_COPIED_BYTES = 4 << 30

Connect = Callable[[Path, str], sqlite3.Connection]


def readable(file: Path, connect: Connect) -> sqlite3.Connection:
    """A connection that reads the file as it was last whole. connect: opens a file in a mode.

    Raises RunFileError where it can be recovered nowhere, sqlite3.DatabaseError where the file
    cannot be read at all.
    """
    try:
        return _read(connect(file, "ro"))
    except sqlite3.OperationalError as error:
        if not _wants_recovery(error):
            raise
    try:
        with closing(_read(connect(file, "rw"))):
            return _read(connect(file, "ro"))
    except sqlite3.OperationalError as error:
        if not _wants_recovery(error):
            raise
    return _recovered_copy(file, connect)


def unsettled(file: Path) -> bool:
    """Whether a journal lies beside it: what the file itself holds is not the whole."""
    return any(_size(journal) for journal in _journals(file))


def _recovered_copy(file: Path, connect: Connect) -> sqlite3.Connection:
    """A read-only connection to a copy, whose files are gone already."""
    parts = (file, *_journals(file))
    total = sum(map(_size, parts))
    if total > _MOST_COPIED_BYTES:
        raise RunFileError(
            f"{file}: was left half written in a folder that cannot be written, and its "
            f"{total / (1 << 30):.1f} GiB are too many to recover in a copy: move the run's "
            "folder to where it can be written"
        )
    try:
        with tempfile.TemporaryDirectory(prefix="tgi-bench-recovered-") as folder:
            for part in parts:
                if _size(part):
                    shutil.copyfile(part, Path(folder) / part.name)
            connection = _read(connect(Path(folder) / file.name, "rw"))
            # One plain file, which can be read on when its name is gone.
            connection.execute("PRAGMA journal_mode = DELETE").fetchone()
            connection.execute("PRAGMA query_only = ON")
            return connection
    except OSError as error:
        raise RunFileError(
            f"{file}: was left half written, and a copy to recover it in cannot be made in "
            f"{tempfile.gettempdir()}: {error.strerror}; name another folder with TMPDIR"
        ) from error


def _read(connection: sqlite3.Connection) -> sqlite3.Connection:
    """The connection after its first read, which is what recovers; closed where that fails."""
    try:
        connection.execute("PRAGMA schema_version").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _wants_recovery(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & _PRIMARY in _WANTS_RECOVERY


def _journals(file: Path) -> tuple[Path, ...]:
    return tuple(file.with_name(file.name + ending) for ending in JOURNALS)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0

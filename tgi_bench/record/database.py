"""A run.db as SQLite: created whole or not at all, checked when opened, errors in one sentence."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from tgi_bench.errors import (
    NotRecordedError,
    ResultsError,
    RunFileError,
    not_written,
)
from tgi_bench.inert import on_one_line
from tgi_bench.record import formats
from tgi_bench.record.formats import APPLICATION_ID, FORMAT_VERSION
from tgi_bench.record.recovery import readable, unsettled
from tgi_bench.record.soundness import unsound, without_owner

FILE_NAME = "run.db"
_MAGIC = b"SQLite format 3\0"
_BUSY_TIMEOUT_S = 10.0
_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_PRIMARY = 0xFF
"""An error's code without what is added to it."""
_MOST_PATH_BYTES = 4095


def create_database(path: Path, fill: Callable[[sqlite3.Connection], None]) -> None:
    """A new file of this format with what `fill` writes; it appears under its name complete.

    Raises ResultsError where the file exists or its folder cannot be written, NotRecordedError
    where it has no room.
    """
    unfinished = path.with_name(path.name + ".new")
    try:
        unfinished.unlink(missing_ok=True)
        connection = _connect(unfinished, "rwc")
        try:
            with transaction(connection):
                for statement in formats.new():
                    connection.execute(statement)
                _mark(connection)
                fill(connection)
        finally:
            connection.close()
        # A link fails where the name is taken; a rename would overwrite it.
        os.link(unfinished, path)
        unfinished.unlink()
    except FileExistsError:
        unfinished.unlink()
        raise ResultsError(f"{path} exists already and is not overwritten") from None
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise not_written(f"{path} cannot be written", error) from error
    except (sqlite3.OperationalError, sqlite3.IntegrityError) as error:
        unfinished.unlink(missing_ok=True)
        kind = NotRecordedError if error.sqlite_errorcode & _PRIMARY in _NO_ROOM else ResultsError
        raise kind(f"{path} cannot be written: {error}") from error


def open_database(path: Path, writable: bool, fresh: bool = False) -> sqlite3.Connection:
    """A checked connection; a file of an older format is upgraded first.

    path: the run's folder or its run.db. fresh: it was made here just now, and is not checked. A
    reader may open a run that is being written; it leaves
    an older file as it is and reads an upgraded copy. What a killed sweep left half written is
    recovered. Raises RunFileError.
    """
    file = locate(path)
    with _refusing(file):
        connection = _connect(file, "rw") if writable else readable(file, _connect)
    try:
        with _refusing(file):
            version = FORMAT_VERSION if fresh else _check(connection, file)
        if version < FORMAT_VERSION and not writable:
            return _upgraded_copy(connection, file, version)
        if version < FORMAT_VERSION:
            connection.close()
            _upgrade(file, version)
            return open_database(file, writable)
        if writable:
            with _refusing(file):
                connection.execute("PRAGMA journal_mode = WAL").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def close_database(connection: sqlite3.Connection, writable: bool) -> None:
    """Closes it; a writer leaves one plain file, which a reader can open in a read-only folder."""
    try:
        if writable:
            # An interrupt may fall between the lines of `transaction`.
            _roll_back(connection)
            connection.execute("PRAGMA busy_timeout = 0").fetchone()
            connection.execute("PRAGMA journal_mode = DELETE").fetchone()
    except sqlite3.OperationalError as error:
        # Somebody reads it at this moment: the file stays in WAL mode, which is as whole.
        if "locked" not in str(error):
            raise NotRecordedError(f"the run could not be closed: {error}") from error
    finally:
        connection.close()


def _upgrade(file: Path, version: int) -> None:
    with _refusing(file):
        connection = _connect(file, "rw")
        try:
            _bring_here(connection, file, version)
        finally:
            connection.close()


def _upgraded_copy(connection: sqlite3.Connection, file: Path, version: int) -> sqlite3.Connection:
    """The older file in this format and read-only; closes the connection to the file.

    A copy that is small lies in memory, another in a file that is gone with the connection.
    """
    copy = sqlite3.connect("", isolation_level=None)
    try:
        copy.execute("PRAGMA journal_mode = OFF")  # one that fails is thrown away
        with _refusing(file):
            connection.backup(copy)
            _bring_here(copy, file, version)
            copy.execute("PRAGMA query_only = ON")
    except BaseException:
        copy.close()
        raise
    connection.close()
    return copy


def _bring_here(connection: sqlite3.Connection, file: Path, version: int) -> None:
    """From an older format to this one and looked at, in one transaction."""
    with transaction(connection):
        _require(file, without_owner(connection))
        formats.upgrade(connection, version)
        _mark(connection)
        _require(file, unsound(connection))


def locate(path: Path) -> Path:
    """The run.db that a user's path means. Raises RunFileError where there is none."""
    if len(os.fsencode(path)) > _MOST_PATH_BYTES:
        raise RunFileError("a path to a run has at most 4095 bytes")
    try:
        file = path / FILE_NAME if path.is_dir() else path
        if not file.exists():
            wanted = f"no {FILE_NAME} in the folder" if path.is_dir() else "no such file or folder"
            raise RunFileError(f"{path}: {wanted}; a run is a folder with a {FILE_NAME}")
        if not file.is_file():
            raise RunFileError(f"{file}: not a file; a run is a folder with a {FILE_NAME}")
        with file.open("rb") as stream:
            head = stream.read(len(_MAGIC))
    except (OSError, ValueError) as error:
        raise RunFileError(f"{path}: cannot be read: {_why(error)}") from error
    if not head:
        raise RunFileError(f"{file}: is empty; it was cut off before anything was written")
    if head != _MAGIC:
        raise RunFileError(f"{file}: not a run of tgi-bench (not an SQLite file)")
    return file


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All that is written inside or nothing of it."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("COMMIT")
    except BaseException:
        _roll_back(connection)
        raise


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def damaged(file: Path, error: Exception) -> RunFileError:
    """What to say where a value that was read is not what this format holds."""
    return RunFileError(f"{file}: is damaged: {on_one_line(str(error))}")


def _connect(file: Path, mode: str) -> sqlite3.Connection:
    uri = f"file:{quote(os.fsencode(file.absolute()))}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
    # A reply that was written survives kill -9 in WAL mode without a flush of its own.
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _check(connection: sqlite3.Connection, file: Path) -> int:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application != APPLICATION_ID:
        raise RunFileError(f"{file}: an SQLite file, but not a run of tgi-bench")
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > FORMAT_VERSION:
        raise RunFileError(
            f"{file}: written in format {version} by a newer tgi-bench; this one reads up to "
            f"format {FORMAT_VERSION}: install the newer version"
        )
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    page_bytes = connection.execute("PRAGMA page_size").fetchone()[0]
    if found == "ok" and file.stat().st_size % page_bytes and not unsettled(file):
        found = "its last page is cut off"
    if found != "ok":
        raise RunFileError(f"{file}: is truncated or damaged: {on_one_line(str(found))}")
    if version == FORMAT_VERSION:
        _require(file, unsound(connection))
    return version


def _require(file: Path, wrong: str) -> None:
    if wrong:
        raise RunFileError(f"{file}: is damaged: {wrong}")


def _mark(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")


@contextmanager
def _refusing(file: Path) -> Iterator[None]:
    try:
        yield
    # UnicodeDecodeError: what SQLite says of a file quotes it.
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise RunFileError(
            f"{file}: is truncated, damaged or unreadable: {on_one_line(str(error))}"
        ) from error


def _why(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)

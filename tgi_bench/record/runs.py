"""The results folder: <results>/<experiment>/<run_id>/, one folder for each run, one lock each."""

from __future__ import annotations

import fcntl
import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from tgi_bench.errors import NotRecordedError, ResultsError, RunFileError
from tgi_bench.record.database import FILE_NAME
from tgi_bench.record.store import RunStore

LOCK_NAME = "lock"
REPORT_NAME = "report.md"
"""Written last of a run's reports: where it is missing, they are."""

_MOST_IN_ONE_SECOND = 99
_ROOM_PROBE = ".room"
_ROOM_BYTES = 1 << 14
_RUN_ID = re.compile(r"(\d{8}T\d{6}Z)-([0-9a-f]{6})(?:-([1-9]\d?))?")


def new_run_dir(results: Path, experiment: str, digest: str, at: datetime | None = None) -> Path:
    """Makes the folder of a new run; its name is the run id.

    The id is the time in UTC to the second, the first 6 digits of the plan's digest, and
    "-2", "-3", ... where that is taken: "20261121T102233Z-0a1b2c". at: the time; now if None.
    Raises ResultsError where the folder cannot be made or the experiment is no folder name.
    """
    if experiment in ("", ".", "..") or "/" in experiment or "\0" in experiment:
        raise ResultsError(f"experiment `{experiment}` is no folder name below {results}")
    stem = f"{(at or datetime.now(UTC)).astimezone(UTC):%Y%m%dT%H%M%SZ}-{digest[:6]}"
    parent = results / experiment
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for number in range(1, _MOST_IN_ONE_SECOND + 1):
            run_dir = parent / (stem if number == 1 else f"{stem}-{number}")
            try:
                run_dir.mkdir()
            except FileExistsError:
                continue
            return run_dir
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ResultsError(
            f"{parent} cannot be written: {why}; name another results folder with --results"
        ) from error
    raise ResultsError(f"{parent / stem} and its next {_MOST_IN_ONE_SECOND - 1} names are taken")


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What there is of a plan to go on with.

    run_dir: its newest run that has no end, or no report; None where there is none.
    holder: the process id of the living sweep that writes this run; None where none does.
    empty: newer folders of the plan that hold no run.db.
    unreadable: a sentence for each newer run that cannot be read.
    """

    run_dir: Path | None
    holder: str | None
    empty: tuple[Path, ...]
    unreadable: tuple[str, ...] = ()


def newest_unfinished(results: Path, experiment: str, digest: str) -> Unfinished:
    """The newest run of that plan that is not through, whether it is being written or not.

    Raises ResultsError where the folder of the runs cannot be read.
    """
    parent = results / experiment
    empty: list[Path] = []
    unreadable: list[str] = []
    try:
        for run_dir in sorted(_runs_of(parent, digest), key=_age, reverse=True):
            if not (run_dir / FILE_NAME).exists():
                empty.append(run_dir)
                continue
            try:
                through = _through(run_dir, digest)
            except RunFileError as error:
                unreadable.append(str(error))
                continue
            if not through:
                holder = RunLock.holder(run_dir)
                return Unfinished(run_dir, holder, tuple(empty), tuple(unreadable))
    except OSError as error:
        raise ResultsError(
            f"{error.filename or parent}: cannot be read: {error.strerror}"
        ) from error
    return Unfinished(None, None, tuple(empty), tuple(unreadable))


def _through(run_dir: Path, digest: str) -> bool:
    """Whether nothing is left to do of the plan there. Raises RunFileError."""
    with RunStore.open(run_dir, writable=False) as store:
        if store.header().plan.digest != digest:
            return True
        return store.finished() and (run_dir / REPORT_NAME).exists()


def require_room(run_dir: Path) -> None:
    """Raise NotRecordedError where nothing more can be written: what failed may have failed so."""
    probe = run_dir / _ROOM_PROBE
    try:
        try:
            probe.write_bytes(b"x" * _ROOM_BYTES)
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        raise NotRecordedError(f"{run_dir} cannot be written: {error.strerror}") from error


class RunLock:
    """The right to write one run, held by one living sweep.

    The kernel frees it when its holder ends, however it ends; a clean end removes the file.
    """

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / LOCK_NAME
        self._descriptor: int | None = None

    @staticmethod
    def holder(run_dir: Path) -> str | None:
        """The process id of the one that holds it, "unknown" where it does not say; or None."""
        try:
            descriptor = os.open(run_dir / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            return None if _flock(descriptor) else _named(descriptor)
        finally:
            os.close(descriptor)

    def __enter__(self) -> Self:
        """Raises ResultsError where another sweep holds it or the folder cannot be written."""
        while self._descriptor is None:
            self._descriptor = self._taken()
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, f"{os.getpid()}\n".encode())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._descriptor is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = None

    def _taken(self) -> int | None:
        """The locked file; None where its last holder removed it in between: try again."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ResultsError(f"{self._path} cannot be written: {error.strerror}") from error
        if not _flock(descriptor):
            holder = _named(descriptor)
            os.close(descriptor)
            raise ResultsError(
                f"{self._path.parent} is being written by another sweep (process {holder})"
            )
        # A lock on a file that is no longer under this name excludes nobody.
        try:
            if os.path.samestat(os.stat(self._path), os.fstat(descriptor)):
                return descriptor
        except FileNotFoundError:
            pass  # removed by its last holder: as if it were another file
        os.close(descriptor)
        return None


def _named(descriptor: int) -> str:
    """The process id that the holder of a lock wrote into it."""
    return os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"


def _flock(descriptor: int) -> bool:
    """Whether the lock was free, and is ours now."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _runs_of(parent: Path, digest: str) -> list[Path]:
    runs: list[Path] = []
    if not parent.is_dir():
        return runs
    for entry in parent.iterdir():
        match = _RUN_ID.fullmatch(entry.name)
        if match and match[2] == digest[:6] and entry.is_dir():
            runs.append(entry)
    return runs


def _age(run_dir: Path) -> tuple[str, int]:
    match = _RUN_ID.fullmatch(run_dir.name)
    return (match[1], int(match[3] or 1)) if match else ("", 0)

"""run.db: what one run planned, did and saw. See `formats` and `tables` for its tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from tgi_bench.codec import from_json, to_json
from tgi_bench.devices.observation import Gauges, Telemetry
from tgi_bench.errors import NotRecordedError, ResultsError
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.plan.plan import Plan
from tgi_bench.record import plan_rows
from tgi_bench.record.database import (
    FILE_NAME,
    close_database,
    create_database,
    damaged,
    locate,
    open_database,
    transaction,
)
from tgi_bench.record.tables import rows_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunHeader:
    """What is known of a run before it starts.

    experiment_json: the experiment after overrides.
    origin: "measured" (which includes simulated: each start says so itself) or "imported".
    environment: name and value, in the order to be shown.
    created_utc: ISO 8601 to the second, "2026-11-21T10:22:33Z".
    """

    run_id: str
    experiment_json: str
    plan: Plan
    origin: str
    environment: tuple[tuple[str, str], ...]
    created_utc: str

    @property
    def experiment(self) -> str:
        """The experiment's name."""
        return self.plan.experiment


class RunStore:
    """One open run.db. Use it as a context manager, in the thread that opened it.

    Trials of every kind are begun, added to, ended and read alike. Reads raise RunFileError where
    the file is damaged, writes ResultsError where they cannot be made, and KeyError where the plan
    has no such trial, deployment or model.
    """

    def __init__(self, connection: sqlite3.Connection, file: Path, writable: bool) -> None:
        self._connection = connection
        self._file = file
        self._writable = writable

    @classmethod
    def create(cls, run_dir: Path, header: RunHeader) -> Self:
        """A new run.db in an existing folder, open for writing. Raises ResultsError."""
        file = run_dir / FILE_NAME
        create_database(file, lambda connection: _insert_header(connection, header))
        return cls(open_database(file, writable=True, fresh=True), file, writable=True)

    @classmethod
    def open(cls, path: Path, writable: bool) -> Self:
        """The run of a folder or of a run.db. Raises RunFileError."""
        return cls(open_database(path, writable), locate(path), writable)

    def close(self) -> None:
        """Closes the file; once is enough, twice does no harm."""
        connection, writable = self._connection, self._writable
        self._writable = False
        close_database(connection, writable)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Reading

    def header(self) -> RunHeader:
        """What `create` was given, with an equal plan."""
        with self._reading() as connection:
            row = connection.execute(
                "SELECT run_id, experiment_json, origin, created_utc FROM run"
            ).fetchone()
            if row is None:
                raise ValueError("it has no run")
            environment = connection.execute(
                "SELECT name, value FROM environment ORDER BY position"
            )
            return RunHeader(
                run_id=row[0],
                experiment_json=row[1],
                plan=plan_rows.select_plan(connection),
                origin=row[2],
                environment=tuple((name, value) for name, value in environment),
                created_utc=row[3],
            )

    def ends(self) -> dict[str, TrialEnd]:
        """How each trial ended, in the plan's order; a trial without an end is not in it."""
        with self._reading() as connection:
            rows = connection.execute(
                "SELECT a.trial_id, a.outcome, a.reason FROM last_attempts AS a "
                "JOIN trials AS t USING (trial_id) WHERE a.outcome IS NOT NULL ORDER BY t.position"
            )
            return {trial_id: TrialEnd(Outcome(outcome), why) for trial_id, outcome, why in rows}

    def seen(self, trial_id: str, kind: type[T]) -> Iterator[T]:
        """What the trial's last attempt has of one class, by its key; none where it has none.

        Read as it is taken: take it before anything else is written or the store is closed.
        Requests of a stage that was cut off are there, without a LoadStage.
        """
        with self._reading() as connection:
            last = connection.execute(
                "SELECT attempt_id FROM last_attempts WHERE trial_id = ?", (trial_id,)
            ).fetchone()
            if last is not None:
                yield from rows_of(kind).select(connection, last)

    def telemetry(self, trial_id: str) -> Telemetry | None:
        """What was sampled around the trial's last attempt that has any; None: nothing was."""
        with self._reading() as connection:
            last = connection.execute(
                "SELECT attempt_id FROM telemetry JOIN attempts USING (attempt_id) "
                "WHERE trial_id = ? ORDER BY attempt DESC LIMIT 1",
                (trial_id,),
            ).fetchone()
            return None if last is None else next(rows_of(Telemetry).select(connection, last))

    def of_run(self, kind: type[T]) -> tuple[T, ...]:
        """What the run has of a class beside its trials: ClientFloor, PublishedEntry."""
        with self._reading() as connection:
            return tuple(rows_of(kind).select(connection, ()))

    def facts(self, host_id: str, kind: type[T]) -> T | None:
        """What the last start of the deployment or model came to that became ready; or None."""
        with self._reading() as connection:
            row = connection.execute(
                "SELECT facts FROM starts WHERE host_id = ? AND failure IS NULL "
                "ORDER BY start_id DESC LIMIT 1",
                (host_id,),
            ).fetchone()
            return None if row is None else from_json(kind, row[0])

    def failure(self, host_id: str) -> str:
        """Why its last start failed; empty where it did not, or there was none."""
        with self._reading() as connection:
            row = connection.execute(
                "SELECT failure FROM starts WHERE host_id = ? ORDER BY start_id DESC LIMIT 1",
                (host_id,),
            ).fetchone()
            return "" if row is None or row[0] is None else str(row[0])

    def finished(self) -> bool:
        """Whether `finish` was called: the sweep came to its end."""
        with self._reading() as connection:
            return bool(connection.execute("SELECT finished FROM run").fetchone()[0])

    # Writing

    def begin(self, trial_id: str) -> int:
        """Begins the trial's next attempt, and returns its id; earlier attempts are kept.

        Raises ResultsError where the trial has an end already.
        """
        with self._writing() as connection:
            return _begin(connection, trial_id)

    def add(self, attempt: int, seen: Iterable[object]) -> None:
        """Writes what was seen, whatever it is: all of it survives a kill -9, or nothing."""
        with self._writing() as connection:
            for kind, values in groupby(seen, type):
                rows: Any = rows_of(kind)
                rows.insert(connection, (attempt,), values)

    def add_end_gauges(self, attempt: int, gauges: Gauges) -> None:
        """Adds to the attempt's telemetry what the server said just after it, once."""
        with self._writing() as connection:
            changed = connection.execute(
                "UPDATE telemetry SET ended = ? WHERE attempt_id = ?",
                (to_json(gauges, Gauges), attempt),
            )
            if not changed.rowcount:
                raise KeyError(f"attempt {attempt}")

    def end(self, attempt: int, end: TrialEnd) -> None:
        """Ends an attempt, and with it the trial. Raises ResultsError where it has an end."""
        with self._writing() as connection:
            _end(connection, attempt, end)

    def end_unstarted(self, trial_id: str, end: TrialEnd) -> None:
        """Ends a trial of which nothing will be sent: an attempt of its own without records."""
        with self._writing() as connection:
            _end(connection, _begin(connection, trial_id), end)

    def add_to_run(self, seen: Iterable[object]) -> None:
        """Writes what belongs to no trial, after what is there: see `of_run`."""
        with self._writing() as connection:
            for kind, values in groupby(seen, type):
                rows: Any = rows_of(kind)
                rows.insert(connection, (), values)

    def started(self, host_id: str, facts: object) -> None:
        """A server of this deployment became ready, or this model was loaded."""
        with self._writing() as connection:
            _require_host(connection, host_id)
            connection.execute(
                "INSERT INTO starts (host_id, facts) VALUES (?, ?)", (host_id, to_json(facts))
            )

    def failed(self, host_id: str, reason: str) -> None:
        """A server of this deployment did not become ready, or this model was not loaded."""
        with self._writing() as connection:
            _require_host(connection, host_id)
            connection.execute(
                "INSERT INTO starts (host_id, failure) VALUES (?, ?)", (host_id, reason)
            )

    def add_environment(self, facts: Sequence[tuple[str, str]]) -> None:
        """Adds to what the run was made with; a name that is there gets "; " and the value."""
        with self._writing() as connection:
            for name, value in facts:
                changed = connection.execute(
                    "UPDATE environment SET value = value || '; ' || ? WHERE name = ?",
                    (value, name),
                )
                if not changed.rowcount:
                    connection.execute(
                        "INSERT INTO environment (name, value) VALUES (?, ?)", (name, value)
                    )

    def finish(self) -> None:
        """The sweep came to its end: there is nothing to resume."""
        with self._writing() as connection:
            connection.execute("UPDATE run SET finished = 1")

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        # DatabaseError: the file; the others: a value that is not of this format.
        try:
            yield self._connection
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            raise damaged(self._file, error) from error

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        try:
            with transaction(self._connection):
                yield self._connection
        except sqlite3.OperationalError as error:
            raise NotRecordedError(f"the run could not be recorded: {error}") from error
        except sqlite3.IntegrityError as error:
            raise ResultsError(f"the run could not be recorded: {error}") from error


def _begin(connection: sqlite3.Connection, trial_id: str) -> int:
    _require(connection, "SELECT 1 FROM trials WHERE trial_id = ?", trial_id)
    last, outcome = connection.execute(
        "SELECT attempt, outcome FROM last_attempts WHERE trial_id = ?", (trial_id,)
    ).fetchone() or (0, None)
    if outcome is not None:
        raise ResultsError(f"trial {trial_id} has ended already ({outcome})")
    begun = connection.execute(
        "INSERT INTO attempts (trial_id, attempt) VALUES (?, ?)", (trial_id, last + 1)
    )
    return int(begun.lastrowid or 0)


def _end(connection: sqlite3.Connection, attempt: int, end: TrialEnd) -> None:
    _require(connection, "SELECT 1 FROM attempts WHERE attempt_id = ?", attempt)
    changed = connection.execute(
        "UPDATE attempts SET outcome = ?, reason = ? WHERE attempt_id = ? AND outcome IS NULL",
        (end.outcome.value, end.reason, attempt),
    )
    if changed.rowcount != 1:
        raise ResultsError(f"attempt {attempt} has ended already")


def _require_host(connection: sqlite3.Connection, host_id: str) -> None:
    hosts = "SELECT host_id FROM trials UNION SELECT deployment_id FROM deployments"
    _require(connection, f"SELECT 1 WHERE ? IN ({hosts})", host_id)


def _require(connection: sqlite3.Connection, question: str, key: str | int) -> None:
    """Raises KeyError where there is no such row."""
    if connection.execute(question, (key,)).fetchone() is None:
        raise KeyError(key)


def _insert_header(connection: sqlite3.Connection, header: RunHeader) -> None:
    connection.execute(
        "INSERT INTO run (run_id, experiment, model, experiment_json, digest, origin, created_utc) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            header.run_id,
            header.plan.experiment,
            header.plan.model,
            header.experiment_json,
            header.plan.digest,
            header.origin,
            header.created_utc,
        ),
    )
    connection.executemany(
        "INSERT INTO environment (name, value) VALUES (?, ?)", header.environment
    )
    plan_rows.insert_plan(connection, header.plan)

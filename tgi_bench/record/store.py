"""run.db: what one run planned, did and saw. See `schema` for the tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tgi_bench.devices.observation import Gauges, Telemetry
from tgi_bench.errors import NotRecordedError, ResultsError
from tgi_bench.load_observation import ClientFloor, LoadStage, RequestObservation
from tgi_bench.observation import (
    PublishedEntry,
    PublishedFigures,
    ServerFacts,
    StepObservation,
    TrialEnd,
)
from tgi_bench.plan.plan import Plan
from tgi_bench.record import (
    attempt_rows,
    load_rows,
    observation_rows,
    plan_rows,
    published_rows,
    telemetry_rows,
)
from tgi_bench.record.attempt_rows import BATCHES, LOADS, TASKS
from tgi_bench.record.database import (
    FILE_NAME,
    close_database,
    create_database,
    damaged,
    locate,
    open_database,
    transaction,
)
from tgi_bench.record.task_store import TaskStore


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

    Reads raise RunFileError where the file is damaged, writes ResultsError where they
    cannot be made, and KeyError where the plan has no such trial or deployment.
    """

    def __init__(self, connection: sqlite3.Connection, file: Path, writable: bool) -> None:
        self._connection = connection
        self._file = file
        self._writable = writable
        self.tasks = TaskStore(self._reading, self._writing)

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
        """How each trial ended, batches before loads before tasks, each in the plan's order.

        A trial without an end is not in it.
        """
        with self._reading() as connection:
            return {
                **attempt_rows.ends(connection, BATCHES),
                **attempt_rows.ends(connection, LOADS),
                **attempt_rows.ends(connection, TASKS),
            }

    def observations(self, trial_id: str) -> tuple[StepObservation, ...]:
        """The steps of the trial's last attempt, by run and step; () where it has none."""
        with self._reading() as connection:
            attempt_id = attempt_rows.last(connection, BATCHES, trial_id)
            return (
                () if attempt_id is None else observation_rows.select_steps(connection, attempt_id)
            )

    def load_stages(self, trial_id: str) -> tuple[LoadStage, ...]:
        """The stages of the load's last attempt that ended, by index; () where none did."""
        with self._reading() as connection:
            attempt_id = attempt_rows.last(connection, LOADS, trial_id)
            return () if attempt_id is None else load_rows.select_stages(connection, attempt_id)

    def requests(self, trial_id: str) -> Iterator[RequestObservation]:
        """The requests of the load's last attempt, by stage and index, read as they are taken.

        Those of a stage that was cut off are among them, and have no LoadStage. Take them before
        anything else is written or the store is closed.
        """
        with self._reading() as connection:
            attempt_id = attempt_rows.last(connection, LOADS, trial_id)
            if attempt_id is not None:
                yield from load_rows.select_requests(connection, attempt_id)

    def telemetry(self, trial_id: str) -> Telemetry | None:
        """What was sampled around the last attempt at a trial of any kind; None: nothing was."""
        with self._reading() as connection:
            return telemetry_rows.select_telemetry(connection, trial_id)

    def floors(self) -> tuple[ClientFloor, ...]:
        """The load client's own error as measured beside this run; () where it was not."""
        with self._reading() as connection:
            return load_rows.select_floors(connection)

    def published(self, trial_id: str) -> tuple[PublishedFigures, ...]:
        """The rows of an imported report for this trial; () in a measured run."""
        with self._reading() as connection:
            return observation_rows.select_published(connection, trial_id)

    def entries(self) -> tuple[PublishedEntry, ...]:
        """What an imported table that is not of TGI's steps holds; () in any other run."""
        with self._reading() as connection:
            return published_rows.select_entries(connection)

    def facts(self, deployment_id: str) -> ServerFacts | None:
        """What the deployment's last ready server said; None where none became ready."""
        with self._reading() as connection:
            return observation_rows.select_facts(connection, deployment_id)

    def failure(self, deployment_id: str) -> str:
        """Why the deployment's last start failed; empty where it did not, or there was none."""
        with self._reading() as connection:
            row = connection.execute(
                "SELECT failure FROM starts WHERE deployment_id = ? ORDER BY start_id DESC LIMIT 1",
                (deployment_id,),
            ).fetchone()
            return "" if row is None or row[0] is None else str(row[0])

    def finished(self) -> bool:
        """Whether `finish` was called: the sweep came to its end."""
        with self._reading() as connection:
            return bool(connection.execute("SELECT finished FROM run").fetchone()[0])

    # Writing

    def begin_trial(self, trial_id: str) -> int:
        """Begins the trial's next attempt, numbered from 1; earlier attempts are kept.

        Raises ResultsError where the trial has an end already.
        """
        with self._writing() as connection:
            return attempt_rows.begin(connection, BATCHES, trial_id)

    def add(self, trial_id: str, attempt: int, observations: Sequence[StepObservation]) -> None:
        """Writes steps, best those of one run at once: all of them survive a kill -9, or none."""
        with self._writing() as connection:
            attempt_id = attempt_rows.identify(connection, BATCHES, trial_id, attempt)
            observation_rows.insert_steps(connection, attempt_id, observations)

    def end_trial(self, trial_id: str, attempt: int, end: TrialEnd) -> None:
        """Ends an attempt, and with it the trial."""
        with self._writing() as connection:
            attempt_id = attempt_rows.identify(connection, BATCHES, trial_id, attempt)
            attempt_rows.end(connection, BATCHES, attempt_id, end)

    def end_unstarted(self, trial_id: str, end: TrialEnd) -> None:
        """Ends a trial of which nothing will be sent: an attempt of its own without steps."""
        with self._writing() as connection:
            attempt_rows.end_unstarted(connection, BATCHES, trial_id, end)

    def begin_load(self, trial_id: str) -> int:
        """As begin_trial, of a load trial."""
        with self._writing() as connection:
            return attempt_rows.begin(connection, LOADS, trial_id)

    def add_requests(
        self, trial_id: str, attempt: int, observations: Iterable[RequestObservation]
    ) -> None:
        """Writes requests in one transaction: all of them survive a kill -9, or none.

        A stage's requests may come in several calls, before or after its add_stage.
        """
        with self._writing() as connection:
            attempt_id = attempt_rows.identify(connection, LOADS, trial_id, attempt)
            load_rows.insert_requests(connection, attempt_id, observations)

    def add_stage(self, trial_id: str, attempt: int, stage: LoadStage) -> None:
        """Writes a stage once it has ended."""
        with self._writing() as connection:
            attempt_id = attempt_rows.identify(connection, LOADS, trial_id, attempt)
            load_rows.insert_stage(connection, attempt_id, stage)

    def end_load(self, trial_id: str, attempt: int, end: TrialEnd) -> None:
        """As end_trial, of a load trial."""
        with self._writing() as connection:
            attempt_id = attempt_rows.identify(connection, LOADS, trial_id, attempt)
            attempt_rows.end(connection, LOADS, attempt_id, end)

    def end_load_unstarted(self, trial_id: str, end: TrialEnd) -> None:
        """As end_unstarted, of a load trial."""
        with self._writing() as connection:
            attempt_rows.end_unstarted(connection, LOADS, trial_id, end)

    def add_telemetry(self, trial_id: str, attempt: int, seen: Telemetry) -> None:
        """Writes what was sampled around one attempt, once."""
        with self._writing() as connection:
            telemetry_rows.insert_telemetry(connection, trial_id, attempt, seen)

    def add_end_gauges(self, trial_id: str, attempt: int, gauges: Gauges) -> None:
        """Adds to the attempt's telemetry what the server said just after it, once."""
        with self._writing() as connection:
            telemetry_rows.insert_end_gauges(connection, trial_id, attempt, gauges)

    def add_floor(self, floor: ClientFloor) -> None:
        """Writes one measurement of the load client's own error on this machine."""
        with self._writing() as connection:
            load_rows.insert_floor(connection, floor)

    def deployment_started(self, deployment_id: str, facts: ServerFacts) -> None:
        """A server of this deployment became ready."""
        with self._writing() as connection:
            attempt_rows.require(connection, "deployments", "deployment_id", deployment_id)
            observation_rows.insert_facts(connection, deployment_id, facts)

    def deployment_failed(self, deployment_id: str, reason: str) -> None:
        """A server of this deployment did not become ready."""
        with self._writing() as connection:
            attempt_rows.require(connection, "deployments", "deployment_id", deployment_id)
            connection.execute(
                "INSERT INTO starts (deployment_id, failure) VALUES (?, ?)",
                (deployment_id, reason),
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

    def add_published(self, trial_id: str, figures: Sequence[PublishedFigures]) -> None:
        """Writes what a published report says of this trial, once."""
        with self._writing() as connection:
            attempt_rows.require(connection, "trials", "trial_id", trial_id)
            observation_rows.insert_published(connection, trial_id, figures)

    def add_entries(self, entries: Sequence[PublishedEntry]) -> None:
        """Writes what an imported table holds, once."""
        with self._writing() as connection:
            published_rows.insert_entries(connection, entries)

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

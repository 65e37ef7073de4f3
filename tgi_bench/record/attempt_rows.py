"""Attempts at trials: each time that one was begun, and how the last one ended."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from tgi_bench.errors import ResultsError
from tgi_bench.observation import Outcome, TrialEnd


@dataclass(frozen=True, slots=True)
class AttemptTables:
    """Where the trials of one kind and their attempts are kept."""

    trials: str
    attempts: str


BATCHES = AttemptTables("trials", "attempts")
LOADS = AttemptTables("load_trials", "load_attempts")
TASKS = AttemptTables("task_trials", "task_attempts")


def begin(connection: sqlite3.Connection, tables: AttemptTables, trial_id: str) -> int:
    """Begins the trial's next attempt and returns its number, from 1.

    Raises ResultsError where the trial has an end already, KeyError where the plan lacks it.
    """
    require(connection, tables.trials, "trial_id", trial_id)
    last, outcome = connection.execute(
        f"SELECT attempt, outcome FROM last_{tables.attempts} WHERE trial_id = ?", (trial_id,)
    ).fetchone() or (0, None)
    if outcome is not None:
        raise ResultsError(f"trial {trial_id} has ended already ({outcome})")
    connection.execute(
        f"INSERT INTO {tables.attempts} (trial_id, attempt) VALUES (?, ?)", (trial_id, last + 1)
    )
    return int(last) + 1


def end(
    connection: sqlite3.Connection, tables: AttemptTables, attempt_id: int, ended: TrialEnd
) -> None:
    """Ends an attempt. Raises ResultsError where it has an end already."""
    changed = connection.execute(
        f"UPDATE {tables.attempts} SET outcome = ?, reason = ? "
        "WHERE attempt_id = ? AND outcome IS NULL",
        (ended.outcome.value, ended.reason, attempt_id),
    )
    if changed.rowcount != 1:
        raise ResultsError(f"attempt {attempt_id} has ended already")


def end_unstarted(
    connection: sqlite3.Connection, tables: AttemptTables, trial_id: str, ended: TrialEnd
) -> None:
    """Ends a trial of which nothing will be sent: an attempt of its own without records."""
    attempt = begin(connection, tables, trial_id)
    end(connection, tables, identify(connection, tables, trial_id, attempt), ended)


def identify(
    connection: sqlite3.Connection, tables: AttemptTables, trial_id: str, attempt: int
) -> int:
    """The row of one attempt; KeyError where there is none."""
    row = connection.execute(
        f"SELECT attempt_id FROM {tables.attempts} WHERE trial_id = ? AND attempt = ?",
        (trial_id, attempt),
    ).fetchone()
    if row is None:
        raise KeyError(f"{trial_id}, attempt {attempt}")
    return int(row[0])


def last(connection: sqlite3.Connection, tables: AttemptTables, trial_id: str) -> int | None:
    """The row of the trial's last attempt; None where it was never begun."""
    row = connection.execute(
        f"SELECT attempt_id FROM last_{tables.attempts} WHERE trial_id = ?", (trial_id,)
    ).fetchone()
    return None if row is None else int(row[0])


def ends(connection: sqlite3.Connection, tables: AttemptTables) -> dict[str, TrialEnd]:
    """How each trial ended, in the plan's order; a trial without an end is not in it."""
    rows = connection.execute(
        f"SELECT a.trial_id, a.outcome, a.reason FROM last_{tables.attempts} AS a "
        f"JOIN {tables.trials} AS t USING (trial_id) WHERE a.outcome IS NOT NULL "
        "ORDER BY t.position"
    )
    return {trial_id: TrialEnd(Outcome(outcome), reason) for trial_id, outcome, reason in rows}


def require(connection: sqlite3.Connection, table: str, column: str, key: str) -> None:
    """Raises KeyError where the table has no such row."""
    if connection.execute(f"SELECT 1 FROM {table} WHERE {column} = ?", (key,)).fetchone() is None:
        raise KeyError(key)

"""What direct mode writes into run.db and reads back: `RunStore.tasks`."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from tgi_bench.observation import TrialEnd
from tgi_bench.record import attempt_rows, task_rows
from tgi_bench.record.attempt_rows import TASKS
from tgi_bench.task_observation import DirectFacts, TaskRun

Access = Callable[[], AbstractContextManager[sqlite3.Connection]]


class TaskStore:
    """Task trials of one open run.db. Raises as RunStore does."""

    def __init__(self, reading: Access, writing: Access) -> None:
        self._reading = reading
        self._writing = writing

    # Reading

    def runs(self, trial_id: str) -> tuple[TaskRun, ...]:
        """The runs of the trial's last attempt, by probe and run; () where it has none."""
        with self._reading() as connection:
            attempt_id = attempt_rows.last(connection, TASKS, trial_id)
            return () if attempt_id is None else task_rows.select_runs(connection, attempt_id)

    def facts(self, model_id: str) -> DirectFacts | None:
        """What the model's last good load came to; None where none did."""
        with self._reading() as connection:
            return task_rows.select_load(connection, model_id)

    def failure(self, model_id: str) -> str:
        """Why the model's last load failed; empty where it did not, or there was none."""
        with self._reading() as connection:
            return task_rows.select_failure(connection, model_id)

    # Writing

    def begin(self, trial_id: str) -> int:
        """Begins the trial's next attempt, numbered from 1; earlier attempts are kept."""
        with self._writing() as connection:
            return attempt_rows.begin(connection, TASKS, trial_id)

    def add(self, trial_id: str, attempt: int, runs: Sequence[TaskRun]) -> None:
        """Writes runs: all of them survive a kill -9, or none."""
        with self._writing() as connection:
            attempt_id = attempt_rows.identify(connection, TASKS, trial_id, attempt)
            task_rows.insert_runs(connection, attempt_id, runs)

    def end(self, trial_id: str, attempt: int, end: TrialEnd) -> None:
        """Ends an attempt, and with it the trial."""
        with self._writing() as connection:
            attempt_id = attempt_rows.identify(connection, TASKS, trial_id, attempt)
            attempt_rows.end(connection, TASKS, attempt_id, end)

    def end_unstarted(self, trial_id: str, end: TrialEnd) -> None:
        """Ends a trial of which nothing will be run: an attempt of its own without runs."""
        with self._writing() as connection:
            attempt_rows.end_unstarted(connection, TASKS, trial_id, end)

    def loaded(self, model_id: str, facts: DirectFacts) -> None:
        """A model was loaded."""
        with self._writing() as connection:
            task_rows.insert_load(connection, model_id, facts)

    def load_failed(self, model_id: str, reason: str) -> None:
        """A model was not loaded."""
        with self._writing() as connection:
            task_rows.insert_failed_load(connection, model_id, reason)

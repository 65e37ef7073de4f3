"""Task trials, loads of models and task runs as rows, and back to equal values."""

from __future__ import annotations

import json
import sqlite3
import sys
from array import array
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from tgi_bench.observation import Outcome
from tgi_bench.plan.task_trial import (
    DirectModel,
    Dtype,
    FindBatch,
    GenerateTask,
    SummarizeTask,
    TaskDevice,
    TaskTrial,
)
from tgi_bench.task_observation import DirectFacts, TaskCall, TaskPart, TaskRun

_RUN_COLUMNS = (
    "batch_size, probe, run_index, warmup, began_ns, ended_ns, peak_bytes, outcome, reason"
)
_CALL_COLUMNS = "part, prompt_tokens, new_tokens, began_ns, step_ends_ns"
_FACT_COLUMNS = (
    "device, devices, memory_bytes, on_cpu, dtype, parameters, weights_bytes, tokenizer, load_ns, "
    "details"
)


def insert_trials(connection: sqlite3.Connection, trials: Sequence[TaskTrial]) -> None:
    """Writes the task trials of a plan."""
    connection.executemany(
        "INSERT INTO task_trials (trial_id, model_id, asked) VALUES (?, ?, ?)",
        [(t.trial_id, t.model.model_id, encode(t)) for t in trials],
    )


def select_trials(connection: sqlite3.Connection) -> tuple[TaskTrial, ...]:
    """The task trials, in the plan's order."""
    rows = connection.execute("SELECT asked FROM task_trials ORDER BY position")
    return tuple(decode(asked) for (asked,) in rows)


def encode(trial: TaskTrial) -> str:
    """One line of JSON; the same trial gives the same text."""
    kind = "generate" if isinstance(trial.task, GenerateTask) else "summarize"
    said = {**asdict(trial), "task": {"kind": kind, **asdict(trial.task)}}
    return json.dumps(said, ensure_ascii=False, separators=(",", ":"))


def decode(text: str) -> TaskTrial:
    """The trial that `encode` was given. Raises ValueError or TypeError where it is none."""
    try:
        said = json.loads(text)
        model = said["model"]
        task = dict(said["task"])
        return TaskTrial(
            **{
                **said,
                "model": DirectModel(
                    **{
                        **model,
                        "dtype": Dtype(model["dtype"]),
                        "device": TaskDevice(model["device"]),
                    }
                ),
                "task": _task(task.pop("kind"), task),
            }
        )
    except (KeyError, AttributeError) as error:
        raise ValueError(f"a task trial is not as it was written: {error!r}") from error


def _task(kind: str, said: dict[str, Any]) -> GenerateTask | SummarizeTask:
    if kind == "summarize":
        return SummarizeTask(**said)
    if kind != "generate":
        raise ValueError(f"a task of kind {kind!r}")
    find = said["find"]
    return GenerateTask(**{**said, "find": None if find is None else FindBatch(**find)})


def insert_runs(connection: sqlite3.Connection, attempt_id: int, runs: Sequence[TaskRun]) -> None:
    """Writes runs of one attempt with their calls."""
    connection.executemany(
        f"INSERT INTO task_runs (attempt_id, {_RUN_COLUMNS}) VALUES ({', '.join('?' * 10)})",
        [
            (
                attempt_id,
                r.batch_size,
                r.probe,
                r.run_index,
                r.warmup,
                r.began_ns,
                r.ended_ns,
                r.peak_bytes,
                r.outcome.value,
                r.reason,
            )
            for r in runs
        ],
    )
    connection.executemany(
        "INSERT INTO task_calls (attempt_id, probe, run_index, call_index, first_step_ns, "
        f"last_step_ns, {_CALL_COLUMNS}) VALUES ({', '.join('?' * 11)})",
        [
            (
                attempt_id,
                r.probe,
                r.run_index,
                index,
                c.step_ends_ns[0] if c.step_ends_ns else None,
                c.step_ends_ns[-1] if c.step_ends_ns else None,
                c.part.value,
                c.prompt_tokens,
                c.new_tokens,
                c.began_ns,
                _blob(c.step_ends_ns),
            )
            for r in runs
            for index, c in enumerate(r.calls)
        ],
    )


def select_runs(connection: sqlite3.Connection, attempt_id: int) -> tuple[TaskRun, ...]:
    """The runs of one attempt, by probe and run, their calls in order."""
    call_rows = connection.execute(
        f"SELECT probe, run_index, {_CALL_COLUMNS} FROM task_calls WHERE attempt_id = ? "
        "ORDER BY probe, run_index, call_index",
        (attempt_id,),
    ).fetchall()
    calls = {
        run: tuple(
            TaskCall(TaskPart(row[2]), row[3], row[4], row[5], _array(row[6])) for row in rows
        )
        for run, rows in groupby(call_rows, key=lambda row: (row[0], row[1]))
    }
    run_rows = connection.execute(
        f"SELECT {_RUN_COLUMNS} FROM task_runs WHERE attempt_id = ? ORDER BY probe, run_index",
        (attempt_id,),
    )
    return tuple(
        TaskRun(
            batch_size=row[0],
            probe=row[1],
            run_index=row[2],
            warmup=bool(row[3]),
            began_ns=row[4],
            ended_ns=row[5],
            peak_bytes=row[6],
            calls=calls.get((row[1], row[2]), ()),
            outcome=Outcome(row[7]),
            reason=row[8],
        )
        for row in run_rows
    )


def insert_load(connection: sqlite3.Connection, model_id: str, facts: DirectFacts) -> None:
    """Writes one load that came to its end."""
    connection.execute(
        f"INSERT INTO direct_loads (model_id, {_FACT_COLUMNS}) VALUES ({', '.join('?' * 11)})",
        (
            model_id,
            facts.device,
            facts.devices,
            facts.memory_bytes,
            facts.on_cpu,
            facts.dtype,
            facts.parameters,
            facts.weights_bytes,
            facts.tokenizer,
            facts.load_ns,
            json.dumps(facts.details, ensure_ascii=False),
        ),
    )


def insert_failed_load(connection: sqlite3.Connection, model_id: str, reason: str) -> None:
    """Writes one load that did not."""
    connection.execute(
        "INSERT INTO direct_loads (model_id, failure) VALUES (?, ?)", (model_id, reason)
    )


def select_load(connection: sqlite3.Connection, model_id: str) -> DirectFacts | None:
    """What the model's last good load came to; None where none did."""
    row = connection.execute(
        f"SELECT {_FACT_COLUMNS} FROM direct_loads WHERE model_id = ? AND failure IS NULL "
        "ORDER BY load_id DESC LIMIT 1",
        (model_id,),
    ).fetchone()
    if row is None:
        return None
    return DirectFacts(
        device=row[0],
        devices=row[1],
        memory_bytes=row[2],
        on_cpu=bool(row[3]),
        dtype=row[4],
        parameters=row[5],
        weights_bytes=row[6],
        tokenizer=row[7],
        load_ns=row[8],
        details=tuple((name, value) for name, value in json.loads(row[9])),
    )


def select_failure(connection: sqlite3.Connection, model_id: str) -> str:
    """Why the model's last load failed; empty where it did not, or there was none."""
    row = connection.execute(
        "SELECT failure FROM direct_loads WHERE model_id = ? ORDER BY load_id DESC LIMIT 1",
        (model_id,),
    ).fetchone()
    return "" if row is None or row[0] is None else str(row[0])


def _blob(values: array[int]) -> bytes:
    """The values little-endian, whatever this machine is."""
    if values.typecode != "q":
        raise TypeError(f"an array of typecode {values.typecode!r} where 'q' is kept")
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()


def _array(blob: bytes) -> array[int]:
    values: array[int] = array("q")
    values.frombytes(blob)
    if sys.byteorder == "big":
        values.byteswap()
    return values

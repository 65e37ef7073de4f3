"""Entries of an imported table as rows, and back to equal values."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from itertools import groupby

from tgi_bench.observation import (
    FigureKind,
    Outcome,
    PublishedEntry,
    PublishedMetric,
    PublishedValue,
    TrialEnd,
)

_ENTRY_COLUMNS = (
    "entry_id, model, accelerator, devices, parallelism, dtype, quantize, batch_size, "
    "prompt_tokens, new_tokens, runs, outcome, reason, doubts"
)


def insert_entries(connection: sqlite3.Connection, entries: Sequence[PublishedEntry]) -> None:
    """Writes the entries after those that are there, each with its figures."""
    connection.executemany(
        f"INSERT INTO published_entries ({_ENTRY_COLUMNS}) VALUES ({', '.join('?' * 14)})",
        [
            (
                e.entry_id,
                e.model,
                e.accelerator,
                e.devices,
                e.parallelism,
                e.dtype,
                e.quantize,
                e.batch_size,
                e.prompt_tokens,
                e.new_tokens,
                e.runs,
                None if e.end is None else e.end.outcome.value,
                None if e.end is None else e.end.reason,
                json.dumps(e.doubts),
            )
            for e in entries
        ],
    )
    connection.executemany(
        "INSERT INTO published_values VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (e.entry_id, place, v.metric.value, v.kind.value, v.value, v.printed, v.reason)
            for e in entries
            for place, v in enumerate(e.values)
        ],
    )


def select_entries(connection: sqlite3.Connection) -> tuple[PublishedEntry, ...]:
    """All entries in the table's order."""
    value_rows = connection.execute(
        "SELECT entry_id, metric, kind, value, printed, reason FROM published_values "
        "ORDER BY entry_id, position"
    ).fetchall()
    values = {
        entry_id: tuple(_value(*row[1:]) for row in rows)
        for entry_id, rows in groupby(value_rows, key=lambda row: str(row[0]))
    }
    entry_rows = connection.execute(
        f"SELECT {_ENTRY_COLUMNS} FROM published_entries ORDER BY position"
    )
    return tuple(
        PublishedEntry(
            entry_id=row[0],
            model=row[1],
            accelerator=row[2],
            devices=row[3],
            parallelism=row[4],
            dtype=row[5],
            quantize=row[6],
            batch_size=row[7],
            prompt_tokens=row[8],
            new_tokens=row[9],
            runs=row[10],
            end=None if row[11] is None else TrialEnd(Outcome(row[11]), row[12]),
            values=values.get(row[0], ()),
            doubts=tuple(json.loads(row[13])),
        )
        for row in entry_rows
    )


def _value(metric: str, kind: str, value: float, printed: str, reason: str) -> PublishedValue:
    """Raises ValueError: what was corrected was printed as a number."""
    if reason:
        float(printed)
    return PublishedValue(PublishedMetric(metric), FigureKind(kind), value, printed, reason)

"""What SQLite's own check does not see: whether the values of a run.db are of its format.

A column of SQLite takes a value of any type, so one flipped bit makes bytes of a text and a batch
of 2^60. Every value that is read later has been looked at here.
"""

from __future__ import annotations

import functools
import sqlite3
from dataclasses import dataclass

from tgi_bench.record import formats

_TYPES = {
    "TEXT": ("text",),
    "INTEGER": ("integer",),
    "REAL": ("real", "integer"),
    "BLOB": ("blob",),
}
_MOST_INTEGER = 2**62
_MOST_REAL = 1e21
"""In whatever unit: beyond it a sum of some values is no number any more."""

_COUNTS = {
    "batch_size": 1,
    "sequence_length": 1,
    "decode_length": 1,
    "runs": 1,
    "warmups": 0,
    "prompt_tokens": 0,
    "new_tokens": 0,
    "output_tokens": 0,
    "devices": 1,
    "workers": 0,
    "attempt": 1,
    "streams": 0,
    "shard_rank": 0,
    "run_index": 0,
    "step_index": 0,
    "stage": 0,
}
"""Columns of whatever table that count something, and the least that they can be."""

_MOST_COUNT = 2**31 - 1
_PUBLISHED = ("published", "published_values")
"""Tables whose figures are above 0, as those of any published table that is read."""
_COUNTS_OF_BATCHES = ("batch_size", "sequence_length", "decode_length", "runs", "warmups")
_MUST = (
    ("requests", "event_ns", "length(event_ns) = 2 * length(event_tokens)"),
    ("requests", "event_tokens", "length(event_tokens) % 4 = 0"),
    ("task_calls", "step_ends_ns", "length(step_ends_ns) % 8 = 0"),
    ("trials", "asked", "json_valid(asked)"),
    ("trials", "trial_id", "trial_id = json_extract(asked, '$.trial_id')"),
    (
        "trials",
        "host_id",
        "host_id = CASE kind WHEN 'direct' THEN json_extract(asked, '$.model.model_id') "
        "ELSE json_extract(asked, '$.deployment_id') END",
    ),
    ("trials", "host_id", "kind = 'direct' OR host_id IN (SELECT deployment_id FROM deployments)"),
    *(
        (
            "trials",
            "asked",
            f"kind <> 'batch' OR json_extract(asked, '$.{name}') "
            f"BETWEEN {_COUNTS[name]} AND {_MOST_COUNT}",
        )
        for name in _COUNTS_OF_BATCHES
    ),
    ("starts", "facts", "(failure IS NULL) = (facts IS NOT NULL)"),
    (
        "starts",
        "host_id",
        "host_id IN (SELECT host_id FROM trials UNION SELECT deployment_id FROM deployments)",
    ),
)
"""What must hold of a column beyond its type."""


@dataclass(frozen=True, slots=True)
class _Column:
    table: str
    name: str
    type: str
    needed: bool

    def unsound(self) -> str:
        """An SQL condition that is true of a value that cannot have been written."""
        types = ", ".join(f"'{name}'" for name in _TYPES[self.type])
        bad = f"typeof({self.name}) NOT IN ({types})"
        if self.name in _COUNTS:
            bad += f" OR {self.name} NOT BETWEEN {_COUNTS[self.name]} AND {_MOST_COUNT}"
        elif self.type == "INTEGER":
            bad += f" OR {self.name} NOT BETWEEN {-_MOST_INTEGER} AND {_MOST_INTEGER}"
        elif self.type == "REAL":
            bad += f" OR {self.name} NOT BETWEEN {-_MOST_REAL} AND {_MOST_REAL}"
            bad += f" OR {self.name} <= 0" if self.table in _PUBLISHED else ""
        return f"({bad})" if self.needed else f"({self.name} IS NOT NULL AND ({bad}))"


def unsound(connection: sqlite3.Connection) -> str:
    """What is wrong with the values of a file of this format, in a few words; "" if nothing is.

    Raises sqlite3.DatabaseError where a table cannot be read.
    """
    for table, columns in _tables().items():
        found = connection.execute(f"PRAGMA table_info({table})")
        if tuple(_Column(table, n, t, bool(k)) for _, n, t, k, _, _ in found) != columns:
            return f"its table {table} is not that of format {formats.FORMAT_VERSION}"
        if not _all_sound(connection, columns):
            wrong = next(c for c in columns if not _all_sound(connection, (c,)))
            return f"a value of {table}.{wrong.name} is not what is kept there"
    for table, name, condition in _MUST:
        if _any(connection, table, f"({condition}) IS NOT TRUE"):
            return f"a value of {table}.{name} is not what is kept there"
    return without_owner(connection)


def without_owner(connection: sqlite3.Connection) -> str:
    """Which row of a file of whatever format belongs to none, in a few words; "" if none does."""
    orphan = connection.execute("PRAGMA foreign_key_check").fetchone()
    return "" if orphan is None else f"a row of {orphan[0]} belongs to none of {orphan[2]}"


def _all_sound(connection: sqlite3.Connection, columns: tuple[_Column, ...]) -> bool:
    return not _any(connection, columns[0].table, " OR ".join(c.unsound() for c in columns))


def _any(connection: sqlite3.Connection, table: str, condition: str) -> bool:
    found = connection.execute(f"SELECT 1 FROM {table} WHERE {condition} LIMIT 1").fetchone()
    return found is not None


@functools.cache
def _tables() -> dict[str, tuple[_Column, ...]]:
    """The tables of a file of this format."""
    connection = sqlite3.connect(":memory:")
    try:
        for statement in formats.new():
            connection.execute(statement)
        names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        return {
            table: tuple(
                _Column(table, name, kind, bool(needed))
                for _, name, kind, needed, _, _ in connection.execute(f"PRAGMA table_info({table})")
            )
            for (table,) in names
        }
    finally:
        connection.close()

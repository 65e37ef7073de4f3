"""A dataclass as rows of a table of run.db, and back to equal values, by what it declares.

Which table a class has, and what tells its rows apart, its declaration says (`table`, `Named`,
`Blob` and `Child` of `tgi_bench.observation`); each other field is a column of the field's name:

    bool, int               INTEGER
    float                   REAL
    str, an enum            TEXT
    array, with Blob        BLOB, little-endian
    a tuple with Child      rows of a table of its own
    anything else           TEXT, as JSON

A field that may be None is a column that may be null.
"""

from __future__ import annotations

import functools
import sqlite3
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from enum import Enum
from itertools import chain, groupby
from operator import attrgetter, itemgetter
from types import NoneType
from typing import Annotated, Any, Generic, TypeVar, cast, get_args, get_origin, get_type_hints

from tgi_bench import load_observation, observation, task_observation
from tgi_bench.codec import from_json, to_json
from tgi_bench.devices import observation as device_observation
from tgi_bench.observation import TABLES, Blob, Child, Kept, Named

T = TypeVar("T")
Value = str | int | float | bytes | None
Above = tuple[Value, ...]

ATTEMPT = "attempt_id"
DECLARED = (observation, load_observation, task_observation, device_observation)
"""Importing them has filled TABLES."""

_ROWS: dict[type, Rows[Any]] = {}
"""Made when they are first needed."""

_SQL_TYPES = {bool: "INTEGER", int: "INTEGER", float: "REAL", str: "TEXT"}


@dataclass(frozen=True, slots=True)
class _Cell:
    """One field as a column.

    path: of its value, for attrgetter. write, read: None where the value is kept as it is.
    ends: columns that repeat the first and the last value of an array, for queries.
    """

    name: str
    sql: str
    path: str
    write: Callable[[Any], Value] | None = None
    read: Callable[[Any], object] | None = None
    ends: tuple[str, ...] = ()


class Rows(Generic[T]):
    """The rows of one class.

    above: columns that name the row that its rows belong to, in the table `of`; () and "" where
    they belong to the run.
    """

    def __init__(self, kind: type[T], kept: Kept | Child, above: tuple[str, ...], of: str) -> None:
        self._kind, self._kept, self._above, self._of = kind, kept, above, of
        # array[int] is a type for checkers alone.
        hints = get_type_hints(kind, localns={"array": list}, include_extras=True)
        declared = [(f.name, *_declared(hints[f.name])) for f in fields(cast(Any, kind))]
        self._cells = [
            _cell(name, hint, mark) for name, hint, mark in declared if not isinstance(mark, Child)
        ]
        names = [cell.name for cell in self._cells]
        self._place = [name for name in kept.key if name not in names]
        self._own = [*self._place, *names]
        self._get = attrgetter(*(cell.path for cell in self._cells))
        before = len(above) + len(self._place)
        self._write = [
            (at, c.write) for at, c in enumerate(self._cells, before) if c.write is not None
        ]
        self._read = [(at, c.read) for at, c in enumerate(self._cells) if c.read is not None]
        self._arrays = [attrgetter(cell.path) for cell in self._cells if cell.ends]
        self._ends = [name for cell in self._cells for name in cell.ends]
        self._key_at = [self._own.index(name) for name in kept.key]
        paths = {cell.name: cell.path for cell in self._cells}
        self._key_of = [attrgetter(paths[k]) if k in paths else None for k in kept.key]
        columns = (*above, *self._own, *self._ends)
        self._into = (
            f"INSERT INTO {kept.name} ({', '.join(columns)}) "
            f"VALUES ({', '.join('?' * len(columns))})"
        )
        self._children: list[tuple[int, Callable[[T], Iterable[Any]], Rows[Any]]] = [
            (
                at,
                attrgetter(name),
                Rows(get_args(hint)[0], mark, (*above, *kept.key), kept.name),
            )
            for at, (name, hint, mark) in enumerate(declared)
            if isinstance(mark, Child)
        ]

    def create(self) -> Iterator[str]:
        """The statements that make its table, and those of its children."""
        kept, belongs = self._kept, (self._of, self._above)
        lines = [f"{name} INTEGER NOT NULL" for name in (*self._above, *self._place)]
        for cell in self._cells:
            lines += [f"{cell.name} {cell.sql}", *(f"{name} INTEGER" for name in cell.ends)]
        lines.append(f"PRIMARY KEY ({', '.join((*self._above, *kept.key))})")
        if kept.unique:
            lines.append(f"UNIQUE ({', '.join((*self._above, *kept.unique))})")
        if isinstance(kept, Child) and kept.of is not None:
            belongs = (kept.of[0], (*self._above, kept.of[1]))
        if self._of:
            columns = ", ".join(belongs[1])
            lines.append(f"FOREIGN KEY ({columns}) REFERENCES {belongs[0]} ({columns})")
        # Rows with arrays are long: in the tree of the keys they would be far apart.
        rest = "" if self._ends else " WITHOUT ROWID"
        yield "CREATE TABLE {} (\n    {}\n){}".format(kept.name, ",\n    ".join(lines), rest)
        for _, _, child in self._children:
            yield from child.create()

    def insert(self, connection: sqlite3.Connection, above: Above, values: Iterable[T]) -> None:
        """Writes the values of one owner, with their children, after those that are there.

        Raises sqlite3.IntegrityError where one of that key is there already, TypeError where an
        array is of another typecode.
        """
        first = 0
        if self._place:
            where = f" WHERE {_all_of(self._above)}" if above else ""
            last = f"SELECT coalesce(max({self._place[0]}), -1) FROM {self._kept.name}{where}"
            first = connection.execute(last, above).fetchone()[0] + 1
        self._insert(connection, ((above, at, value) for at, value in enumerate(values, first)))

    def _insert(
        self, connection: sqlite3.Connection, values: Iterable[tuple[Above, int, T]]
    ) -> None:
        if self._children:
            values = list(values)
        rows = (self._row(above, at, value) for above, at, value in values)
        connection.executemany(self._into, rows)
        for _, of, child in self._children:
            owned = ((self._key(above, at, value), of(value)) for above, at, value in values)
            child._insert(
                connection,
                (
                    (key, place, each)
                    for key, each_of in owned
                    for place, each in enumerate(each_of)
                ),
            )

    def _row(self, above: Above, at: int, value: T) -> list[Value]:
        row = [*above, *((at,) if self._place else ()), *self._get(value)]
        for column, write in self._write:
            row[column] = write(row[column])
        for array_of in self._arrays:
            values = array_of(value)
            row += (values[0], values[-1]) if values else (None, None)
        return row

    def _key(self, above: Above, at: int, value: T) -> Above:
        """What names its row."""
        return (*above, *(at if of is None else of(value) for of in self._key_of))

    def select(self, connection: sqlite3.Connection, above: Above) -> Iterator[T]:
        """The values of one owner by their key, read as they are taken.

        Raises ValueError or TypeError where a row does not hold one.
        """
        return (value for _, value in self._select(connection, above))

    def _select(self, connection: sqlite3.Connection, above: Above) -> Iterator[tuple[Above, T]]:
        """Each with the rest of the columns above it."""
        rest = self._above[len(above) :]
        where = f" WHERE {_all_of(self._above[: len(above)])}" if above else ""
        children = [(at, child._by_owner(connection, above)) for at, _, child in self._children]
        skipped = len(rest) + len(self._place)
        rows = connection.execute(
            f"SELECT {', '.join((*rest, *self._own))} FROM {self._kept.name}{where} "
            f"ORDER BY {', '.join((*rest, *self._kept.key)) or 1}",
            above,
        )
        for row in rows:
            cells = list(row[skipped:])
            for column, read in self._read:
                cells[column] = read(cells[column])
            for at, of in children:
                key = (*row[: len(rest)], *(row[len(rest) + k] for k in self._key_at))
                cells.insert(at, of.get(key, ()))
            yield row[: len(rest)], self._kind(*cells)

    def _by_owner(self, connection: sqlite3.Connection, above: Above) -> dict[Above, tuple[T, ...]]:
        found = groupby(self._select(connection, above), key=itemgetter(0))
        return {owner: tuple(value for _, value in each) for owner, each in found}


def rows_of(kind: type[T]) -> Rows[T]:
    """The rows of a class that has a table."""
    if kind not in _ROWS:
        kept = TABLES[kind]
        of = ((), "") if kept.of_run else ((ATTEMPT,), "attempts")
        _ROWS[kind] = Rows(kind, kept, *of)
    return _ROWS[kind]


def tables() -> tuple[str, ...]:
    """The statements that make the tables of everything that is declared."""
    return tuple(chain.from_iterable(rows_of(kind).create() for kind in TABLES))


def _all_of(columns: Iterable[str]) -> str:
    return " AND ".join(f"{name} = ?" for name in columns)


def _declared(hint: Any) -> tuple[Any, Named | Blob | Child | None]:
    """The type of a field and its mark."""
    if get_origin(hint) is not Annotated:
        return hint, None
    kind, mark, *_ = get_args(hint)
    return kind, mark


def _cell(name: str, hint: Any, mark: Named | Blob | Child | None) -> _Cell:
    column = mark.column if isinstance(mark, Named) else name
    if isinstance(mark, Blob):
        to_blob = functools.partial(_blob, mark.typecode)
        from_blob = functools.partial(_array, mark.typecode)
        return _Cell(column, "BLOB NOT NULL", name, to_blob, from_blob, mark.ends)
    may_be_none = NoneType in get_args(hint)
    kinds = [kind for kind in get_args(hint) if kind is not NoneType] if may_be_none else [hint]
    kind, needed = kinds[0], "" if may_be_none else " NOT NULL"
    if len(kinds) == 1 and kind in _SQL_TYPES:
        sql = _SQL_TYPES[kind] + needed
        if kind is not bool:
            return _Cell(column, sql, name)
        # An int: for a bool sqlite3 looks for an adapter each time.
        if may_be_none:
            return _Cell(column, sql, name, _or_none(int), _or_none(bool))
        return _Cell(column, sql, name, int, bool)
    if len(kinds) == 1 and isinstance(kind, type) and issubclass(kind, Enum):
        if may_be_none:
            return _Cell(column, "TEXT", name, _or_none(attrgetter("value")), _or_none(kind))
        return _Cell(column, "TEXT NOT NULL", f"{name}._value_", None, kind)
    to_text, from_text = functools.partial(_json, hint), functools.partial(from_json, hint)
    return _Cell(column, f"TEXT{needed}", name, _or_none(to_text), _or_none(from_text))


def _json(kind: Any, value: object) -> str:
    return to_json(value, kind)


def _or_none(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else change(value)


def _blob(typecode: str, values: array[int]) -> bytes:
    """The values little-endian, whatever this machine is."""
    if values.typecode != typecode:
        raise TypeError(f"an array of typecode {values.typecode!r} where {typecode!r} is kept")
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()


def _array(typecode: str, blob: bytes) -> array[int]:
    values: array[int] = array(typecode)
    values.frombytes(blob)
    if sys.byteorder == "big":
        values.byteswap()
    return values

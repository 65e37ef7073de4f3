"""Every class that has a table: what is written is read back equal, whatever its values are."""

from __future__ import annotations

import operator
import sqlite3
import sys
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.record import samples
from tgi_bench.devices.observation import Telemetry
from tgi_bench.load_observation import ClientFloor, RequestObservation
from tgi_bench.observation import TABLES, Blob, Child, Kept, Phase, PublishedValue, StepObservation
from tgi_bench.record import formats
from tgi_bench.record.tables import Rows, rows_of

_ATTEMPT = 7
_PLACE = st.integers(0, 2**31 - 1)
_RANGES = {"q": 2**63 - 1, "i": 2**31 - 1}
_ANY_TEXT = st.text(st.characters(), max_size=8)
"""With lone surrogates, which JSON can hold."""


def cell(hint: Any, in_json: bool = False) -> st.SearchStrategy[Any]:
    """Any value of a type; in_json: that goes into a JSON text, which has room for more."""
    if get_origin(hint) is Annotated:
        hint, mark = get_args(hint)
        if isinstance(mark, Blob):
            most = _RANGES[mark.typecode]
            numbers = st.lists(st.integers(-most - 1, most), max_size=4)
            return numbers.map(lambda found: array(mark.typecode, found))
        if isinstance(mark, Child):
            return rows(get_args(hint)[0], mark).map(tuple)
    if get_origin(hint) in (Union, UnionType):
        return st.one_of([cell(each, in_json) for each in get_args(hint)])
    if get_origin(hint) is tuple:
        parts = get_args(hint)
        if parts[-1] is Ellipsis:
            return st.lists(cell(parts[0], True), max_size=3).map(tuple)
        return st.tuples(*(cell(part, True) for part in parts))
    if is_dataclass(hint):
        return values_of(hint, True)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(hint)
    wide = st.integers() if in_json else st.integers(-(2**62), 2**62)
    # No -0.0: SQLite has one zero.
    floats = st.floats(allow_nan=False).map(lambda number: number + 0.0)
    return {
        NoneType: st.none(),
        bool: st.booleans(),
        int: wide,
        float: floats,
        str: _ANY_TEXT if in_json else st.text(max_size=8),
    }[hint]


def values_of(
    kind: Any, in_json: bool = False, key: tuple[str, ...] = ()
) -> st.SearchStrategy[Any]:
    """Any value of a dataclass. key: columns whose values are places."""
    hints = get_type_hints(kind, localns={"array": list}, include_extras=True)
    known = {f.name: cell(hints[f.name], in_json) for f in fields(kind)}
    known |= {f.name: _PLACE for f in fields(kind) if column_of(f.name, hints[f.name]) in key}
    if kind is PublishedValue:
        known["printed"] = st.floats(1e-9, 1e9).map(repr)
    found = st.builds(kind, **known)
    return found.map(of_its_devices) if kind is Telemetry else found


def rows(kind: Any, kept: Kept | Child) -> st.SearchStrategy[list[Any]]:
    """Values of a class with different keys, in their order."""
    hints = get_type_hints(kind, localns={"array": list}, include_extras=True)
    names = {column_of(f.name, hints[f.name]): f.name for f in fields(kind)}
    own = [names[column] for column in kept.key if column in names]
    unique = [names[column] for column in kept.unique]
    by = [operator.attrgetter(*each) for each in (own, unique) if each]
    most = 4 if kept.key else 1
    found = st.lists(values_of(kind, key=kept.key), max_size=most, unique_by=tuple(by) or None)
    return found.map(lambda all_: sorted(all_, key=lambda v: [getattr(v, n) for n in own]))


def column_of(name: str, hint: Any) -> str:
    """Of a field."""
    mark = get_args(hint)[1] if get_origin(hint) is Annotated else None
    return str(getattr(mark, "column", name))


def of_its_devices(seen: Telemetry) -> Telemetry:
    """Samples are of devices that are there."""
    devices = [device.index for device in seen.devices]
    kept = [replace(s, device=devices[s.device % len(devices)]) for s in seen.samples if devices]
    unique = {(sample.at_ns, sample.device): sample for sample in kept}
    return replace(seen, samples=tuple(unique[key] for key in sorted(unique)))


@contextmanager
def database() -> Iterator[sqlite3.Connection]:
    """An empty run with one attempt at one trial."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("PRAGMA foreign_keys = ON")
        for statement in formats.new():
            connection.execute(statement)
        connection.execute("INSERT INTO trials VALUES (1, 't', 'batch', 'h', '{}')")
        connection.execute(f"INSERT INTO attempts VALUES ({_ATTEMPT}, 't', 1, NULL, NULL)")
        yield connection
    finally:
        connection.close()


def above(kind: Any) -> tuple[int, ...]:
    return () if TABLES[kind].of_run else (_ATTEMPT,)


@pytest.mark.parametrize("kind", TABLES, ids=lambda kind: kind.__name__)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_it_is_read_back_equal(kind: Any, data: st.DataObject) -> None:
    written = data.draw(rows(kind, TABLES[kind]))
    with database() as connection:
        table = rows_of(kind)
        half = len(written) // 2
        by_place = not set(TABLES[kind].key) - {"position"}
        for part in (written[:half], written[half:]) if by_place else (written[::-1],):
            table.insert(connection, above(kind), part)
        read = list(table.select(connection, above(kind)))
    assert read == written
    assert repr(read) == repr(written)  # repr tells True from 1 from 1.0


def test_every_class_is_declared_under_a_name_of_its_own() -> None:
    names = [kept.name for kept in TABLES.values()]
    assert len(names) == len(set(names)) == 8
    assert len(formats.new()) > 2 * len(names)


def test_the_readme_names_every_table_and_view() -> None:
    made = [words for statement in formats.new() if (words := statement.split())[0] == "CREATE"]
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    assert [words[2] for words in made if f"`{words[2]}`" not in readme] == []


def test_arrays_are_little_endian_and_their_ends_can_be_queried() -> None:
    tiny = replace(samples.request(0), event_ns=array("q", [1, 2]), event_tokens=array("i", [3, 4]))
    none = samples.request(1, events=0)
    with database() as connection:
        rows_of(RequestObservation).insert(connection, (_ATTEMPT,), [tiny, none])
        columns = "event_ns, event_tokens, first_event_ns, last_event_ns"
        found = connection.execute(f"SELECT {columns} FROM requests").fetchall()
    arrivals, tokens = b"\x01" + bytes(7) + b"\x02" + bytes(7), b"\x03" + bytes(3) + b"\x04"
    assert found == [(arrivals, tokens + bytes(3), 1, 2), (b"", b"", None, None)]


@dataclass(frozen=True, slots=True)
class _Told:
    """What may be none, of the types that no class has so today."""

    said: bool | None
    phase: Phase | None


def test_what_may_be_none() -> None:
    told = [_Told(True, Phase.DECODE), _Told(None, None), _Told(False, Phase.PREFILL)]
    rows = Rows(_Told, Kept("told", ("position",)), (), "")
    with database() as connection:
        for statement in rows.create():
            connection.execute(statement)
        rows.insert(connection, (), told)
        assert repr(list(rows.select(connection, ()))) == repr(told)


def test_arrays_are_little_endian_on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = "little" if sys.byteorder == "big" else "big"
    monkeypatch.setattr("sys.byteorder", wanted)
    with database() as connection:
        rows_of(RequestObservation).insert(connection, (_ATTEMPT,), [samples.request(0)])
        (read,) = rows_of(RequestObservation).select(connection, (_ATTEMPT,))
        ((blob,),) = connection.execute("SELECT event_tokens FROM requests").fetchall()
    assert read == samples.request(0)
    other = samples.request(0).event_tokens[:]
    other.byteswap()
    assert blob == other.tobytes()


def test_an_array_of_another_typecode_is_not_written() -> None:
    wrong = replace(samples.request(0), event_tokens=array("q", [1, 1, 1]))
    with database() as connection, pytest.raises(TypeError, match="typecode 'q' where 'i'"):
        rows_of(RequestObservation).insert(connection, (_ATTEMPT,), [samples.request(1), wrong])


def test_a_value_that_is_there_already_is_not_written() -> None:
    with database() as connection:
        rows_of(StepObservation).insert(connection, (_ATTEMPT,), samples.run_of(0))
        with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
            rows_of(StepObservation).insert(connection, (_ATTEMPT,), samples.run_of(0))
        with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
            rows_of(StepObservation).insert(connection, (8,), samples.run_of(0))


def test_what_is_written_without_a_key_of_its_own_goes_on_where_it_was() -> None:
    with database() as connection:
        for streams in (3, 1, 2):
            floor = replace(samples.floor(), streams=streams)
            rows_of(ClientFloor).insert(connection, (), [floor])
        found = [floor.streams for floor in rows_of(ClientFloor).select(connection, ())]
    assert found == [3, 1, 2]

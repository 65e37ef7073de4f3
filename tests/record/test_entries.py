"""Imported tables in run.db: entries are read back equal, and older formats are upgraded."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.record import samples
from tgi_bench.errors import ResultsError, RunFileError
from tgi_bench.observation import (
    FigureKind,
    Outcome,
    PublishedEntry,
    PublishedMetric,
    PublishedValue,
    TrialEnd,
)
from tgi_bench.record.database import FILE_NAME
from tgi_bench.record.schema import APPLICATION_ID, FORMAT_VERSION, MIGRATIONS, statements
from tgi_bench.record.store import RunStore

_TEXT = st.text(max_size=12)
_SIZE = st.none() | st.integers(1, 2**31 - 1)
_KEYS = st.tuples(st.sampled_from(PublishedMetric), st.sampled_from(FigureKind))


@st.composite
def _values(draw: st.DrawFn) -> tuple[PublishedValue, ...]:
    keys = draw(st.lists(_KEYS, max_size=4, unique=True))
    figure = st.floats(1e-9, 1e12)
    return tuple(
        PublishedValue(metric, kind, draw(figure), repr(draw(figure)), draw(_TEXT))
        for metric, kind in keys
    )


_ENTRY = st.builds(
    PublishedEntry,
    entry_id=st.text(min_size=1, max_size=20),
    model=_TEXT,
    accelerator=_TEXT,
    devices=st.integers(1, 10_000),
    parallelism=_TEXT,
    dtype=st.none() | _TEXT,
    quantize=st.none() | _TEXT,
    batch_size=_SIZE,
    prompt_tokens=_SIZE,
    new_tokens=_SIZE,
    runs=_SIZE,
    end=st.none() | st.builds(TrialEnd, st.sampled_from(Outcome), _TEXT),
    values=_values(),
    doubts=st.lists(_TEXT, max_size=2).map(tuple),
)

ENTRY = PublishedEntry(
    entry_id="fp32-b1",
    model="m",
    accelerator="A100 80GB",
    devices=1,
    parallelism="",
    dtype="float32",
    quantize=None,
    batch_size=1,
    prompt_tokens=7,
    new_tokens=100,
    runs=5,
    end=TrialEnd(Outcome.OK, ""),
    values=(
        PublishedValue(PublishedMetric.GENERATE_S, FigureKind.MEASURED, 2.21, "2.21", ""),
        PublishedValue(PublishedMetric.GENERATE_S, FigureKind.ESTIMATED, 2.0, "2.00", "a guess"),
    ),
    doubts=("which A100?",),
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_ENTRY, max_size=4, unique_by=lambda entry: entry.entry_id))
def test_any_entries_are_read_back_equal_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, entries: list[PublishedEntry]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    with RunStore.create(folder, samples.header()) as store:
        store.add_entries(entries)
        assert store.entries() == tuple(entries)
    with RunStore.open(folder, writable=False) as store:
        assert store.entries() == tuple(entries)


def test_a_figure_by_its_metric_and_kind() -> None:
    assert ENTRY.value(PublishedMetric.GENERATE_S) == 2.21
    assert ENTRY.value(PublishedMetric.GENERATE_S, FigureKind.ESTIMATED) == 2.0
    assert ENTRY.value(PublishedMetric.MEMORY_GIB) is None


def test_entries_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, samples.header()) as store:
        with pytest.raises(ResultsError, match="UNIQUE"):
            store.add_entries([ENTRY, ENTRY])
        assert store.entries() == ()


def _older_file(file: Path, version: int) -> None:
    """An empty run of that format."""
    connection = sqlite3.connect(file)
    for script in MIGRATIONS[:version]:
        for statement in statements(script):
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.commit()
    connection.close()


@pytest.mark.parametrize("version", range(1, FORMAT_VERSION))
def test_older_formats_have_no_entries_and_are_upgraded_by_a_writer(
    tmp_path: Path, version: int
) -> None:
    file = tmp_path / FILE_NAME
    _older_file(file, version)
    before = file.read_bytes()
    with RunStore.open(tmp_path, writable=False) as store:
        assert store.entries() == ()
    assert file.read_bytes() == before
    with RunStore.open(tmp_path, writable=True) as store:
        store.add_entries([ENTRY])
    with RunStore.open(tmp_path, writable=False) as store:
        assert store.entries() == (ENTRY,)
    connection = sqlite3.connect(file)
    assert connection.execute("PRAGMA user_version").fetchone() == (FORMAT_VERSION,)
    connection.close()


@pytest.mark.parametrize(
    "spoil",
    [
        "UPDATE published_values SET metric = 'luck'",
        "UPDATE published_entries SET outcome = 'luck'",
        "UPDATE published_entries SET doubts = '['",
    ],
)
def test_what_this_format_does_not_know_is_said_in_one_sentence(tmp_path: Path, spoil: str) -> None:
    with RunStore.create(tmp_path, samples.header()) as store:
        store.add_entries([ENTRY])
    connection = sqlite3.connect(tmp_path / FILE_NAME)
    connection.execute(spoil)
    connection.commit()
    connection.close()
    with (
        pytest.raises(RunFileError, match="is damaged"),
        RunStore.open(tmp_path, writable=False) as store,
    ):
        store.entries()

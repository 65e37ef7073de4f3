"""A run.db that its writer left half written opens: in its folder, or as a copy."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.record import samples
from tgi_bench.errors import RunFileError
from tgi_bench.observation import StepObservation
from tgi_bench.record import recovery
from tgi_bench.record.store import RunStore

NOBODY = 65534
STEPS = 600

# Pages go to the file before the end of the transaction, as where memory is short.
CUT_OFF = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute(f"PRAGMA journal_mode = {sys.argv[2]}")
connection.execute("PRAGMA cache_size = 2")
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE steps SET reason = ?, ended_ns = 0", ("x" * 200,))
if sys.argv[3] == "after":
    connection.execute("COMMIT")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that another user may enter: pytest's own are private."""
    with tempfile.TemporaryDirectory(prefix="tgi-bench-test-") as name:
        Path(name).chmod(0o755)
        run_dir = Path(name) / "run"
        run_dir.mkdir()
        yield run_dir
        run_dir.chmod(0o755)


def cut_off(run_dir: Path, mode: str, moment: str = "before") -> None:
    """A run of 600 steps whose writer was killed in, or after, a transaction on all of them."""
    trial_id = samples.trial(1).trial_id
    with RunStore.create(run_dir, samples.header()) as store:
        attempt = store.begin(trial_id)
        for index in range(STEPS // 3):
            store.add(attempt, samples.run_of(index))
    file = str(run_dir / "run.db")
    done = subprocess.run([sys.executable, "-c", CUT_OFF, file, mode, moment], check=False)
    assert done.returncode == -signal.SIGKILL


def assert_reads(run_dir: Path, rewritten: bool) -> None:
    """rewritten: whether the transaction had ended."""
    with RunStore.open(run_dir, writable=False) as store:
        steps = tuple(store.seen(samples.trial(1).trial_id, StepObservation))
        assert store.header() == samples.header()
    assert len(steps) == STEPS
    assert {step.ended_ns == 0 for step in steps} == {rewritten}


@contextmanager
def nobody_may_write(run_dir: Path) -> Iterator[None]:
    """The folder and its files for reading only; root, whom that does not bind, is nobody."""
    for file in run_dir.iterdir():
        file.chmod(0o444)
    run_dir.chmod(0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(("mode", "journal"), [("DELETE", "-journal"), ("WAL", "-wal")])
@pytest.mark.parametrize("private", [False, True])
def test_half_written(folder: Path, mode: str, journal: str, moment: str, private: bool) -> None:
    cut_off(folder, mode, moment)
    if moment == "before" or mode == "WAL":
        assert (folder / f"run.db{journal}").stat().st_size > 0
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    rewritten = moment == "after"
    if private:
        with nobody_may_write(folder):
            assert_reads(folder, rewritten)
        assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    assert_reads(folder, rewritten)
    with RunStore.open(folder, writable=True) as store:
        assert store.ends() == {}
    assert_reads(folder, rewritten)
    assert [file.name for file in folder.iterdir()] == ["run.db"]


def test_a_file_in_wal_mode_without_its_companions_in_a_folder_for_reading(folder: Path) -> None:
    """As on a CD: SQLite refuses to make the index that it reads by."""
    cut_off(folder, "WAL")
    for ending in ("-wal", "-shm"):
        (folder / f"run.db{ending}").unlink()
    with nobody_may_write(folder):
        assert_reads(folder, rewritten=False)


def test_a_copy_leaves_nothing_and_has_a_bound(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off(folder, "DELETE")
    copies = Path(tempfile.mkdtemp(prefix="tgi-bench-test-"))
    copies.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(copies))
    try:
        with nobody_may_write(folder), RunStore.open(folder, writable=False) as store:
            assert list(copies.iterdir()) == []
            assert len(tuple(store.seen(samples.trial(1).trial_id, StepObservation))) == STEPS
        monkeypatch.setattr(tempfile, "tempdir", str(copies / "missing"))
        with nobody_may_write(folder), pytest.raises(RunFileError, match="with TMPDIR"):
            RunStore.open(folder, writable=False)
        monkeypatch.setattr(recovery, "_MOST_COPIED_BYTES", 1000)
        with nobody_may_write(folder), pytest.raises(RunFileError, match="too many to recover"):
            RunStore.open(folder, writable=False)
    finally:
        shutil.rmtree(copies)


def test_a_last_page_that_was_cut_off_is_made_good_by_the_journal(folder: Path) -> None:
    """A full disk ends a write in the middle of a page; what the log holds is the whole."""
    cut_off(folder, "WAL", "after")
    with (folder / "run.db").open("ab") as stream:
        stream.write(b"x" * 100)
    assert_reads(folder, rewritten=True)

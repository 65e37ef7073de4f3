"""The results folder: new runs, the newest unfinished one, locks."""

from __future__ import annotations

import dataclasses
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from tests.record import samples
from tgi_bench.errors import NotRecordedError, ResultsError
from tgi_bench.record.runs import (
    REPORT_NAME,
    RunLock,
    Unfinished,
    new_run_dir,
    newest_unfinished,
    require_room,
)
from tgi_bench.record.store import RunStore

AT = datetime(2026, 11, 21, 10, 22, 33, tzinfo=UTC)
OTHER = "0a1b2c" + "e" * 58


def _run(results: Path, minutes: int, digest: str = samples.DIGEST, finished: bool = False) -> Path:
    run_dir = new_run_dir(results, "bloomz", digest, AT + timedelta(minutes=minutes))
    plan = dataclasses.replace(samples.plan(), digest=digest)
    with RunStore.create(run_dir, samples.header(plan)) as store:
        if finished:
            store.finish()
            (run_dir / REPORT_NAME).touch()
    return run_dir


def test_run_ids(tmp_path: Path) -> None:
    names = [new_run_dir(tmp_path / "a" / "b", "x", samples.DIGEST, AT).name for _ in range(3)]
    assert names == [f"20261121T102233Z-0a1b2c{suffix}" for suffix in ("", "-2", "-3")]
    assert (tmp_path / "a" / "b" / "x" / names[2]).is_dir()
    elsewhere = AT.astimezone(timezone(timedelta(hours=9)))
    assert new_run_dir(tmp_path, "x", samples.DIGEST, elsewhere).name == names[0]
    assert new_run_dir(tmp_path, "x", samples.DIGEST).name > names[0][:4]


def test_names_in_one_second_run_out(tmp_path: Path) -> None:
    for _ in range(99):
        new_run_dir(tmp_path, "x", samples.DIGEST, AT)
    with pytest.raises(ResultsError, match="taken"):
        new_run_dir(tmp_path, "x", samples.DIGEST, AT)


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/etc", "a\0b"])
def test_an_experiment_that_would_leave_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ResultsError, match="no folder name"):
        new_run_dir(tmp_path, name, samples.DIGEST, AT)
    assert list(tmp_path.iterdir()) == []


def test_results_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for results in (tmp_path / "file", Path("/proc/nowhere"), tmp_path / ("x" * 300)):
        with pytest.raises(ResultsError, match=r"cannot be written.*--results"):
            new_run_dir(results, "x", samples.DIGEST, AT)


def test_the_newest_unfinished_run_of_a_plan(tmp_path: Path) -> None:
    nothing = Unfinished(None, None, ())
    assert newest_unfinished(tmp_path, "bloomz", samples.DIGEST) == nothing
    oldest = _run(tmp_path, 0)
    _run(tmp_path, 1, finished=True)
    found = newest_unfinished(tmp_path, "bloomz", samples.DIGEST)
    assert found == Unfinished(oldest, None, ())
    newest = _run(tmp_path, 2)
    _run(tmp_path, 3, OTHER)
    (tmp_path / "bloomz" / "notes").mkdir()
    found = newest_unfinished(tmp_path, "bloomz", samples.DIGEST)
    assert found == Unfinished(newest, None, ())
    with RunLock(newest):
        held = newest_unfinished(tmp_path, "bloomz", samples.DIGEST)
        assert held == Unfinished(newest, str(os.getpid()), ())
    assert newest_unfinished(tmp_path, "bloomz", samples.DIGEST) == found
    assert newest_unfinished(tmp_path, "bloomz", "f" * 64) == nothing


def test_folders_of_a_plan_without_a_run_are_named(tmp_path: Path) -> None:
    later = AT + timedelta(minutes=4)
    empty = new_run_dir(tmp_path, "bloomz", samples.DIGEST, later)
    assert newest_unfinished(tmp_path, "bloomz", samples.DIGEST) == Unfinished(None, None, (empty,))
    older = _run(tmp_path, 0)
    new_run_dir(tmp_path, "bloomz", samples.DIGEST, AT - timedelta(minutes=1))
    found = newest_unfinished(tmp_path, "bloomz", samples.DIGEST)
    assert found == Unfinished(older, None, (empty,))


def test_runs_of_one_second_are_ordered_by_number(tmp_path: Path) -> None:
    runs = [_run(tmp_path, 0) for _ in range(11)]
    assert runs[-1].name.endswith("-11")
    assert newest_unfinished(tmp_path, "bloomz", samples.DIGEST).run_dir == runs[-1]


def test_a_run_that_was_cut_off_before_its_report_is_gone_on_with(tmp_path: Path) -> None:
    run_dir = _run(tmp_path, 0, finished=True)
    assert newest_unfinished(tmp_path, "bloomz", samples.DIGEST) == Unfinished(None, None, ())
    (run_dir / REPORT_NAME).unlink()
    assert newest_unfinished(tmp_path, "bloomz", samples.DIGEST).run_dir == run_dir


def test_newer_runs_that_cannot_be_read_are_told_and_passed_over(tmp_path: Path) -> None:
    older = _run(tmp_path, 0)
    cut_off, newer, garbled, other = (_run(tmp_path, minutes) for minutes in range(1, 5))
    (cut_off / "run.db").write_bytes(b"")
    _sql(newer, "PRAGMA user_version = 99")
    _sql(garbled, "UPDATE deployments SET launcher = 'rocket'")
    (other / "run.db").unlink()
    (other / "run.db").mkdir()
    found = newest_unfinished(tmp_path, "bloomz", samples.DIGEST)
    assert (found.run_dir, found.holder, found.empty) == (older, None, ())
    runs = (other, garbled, newer, cut_off)
    says = ("not a file", "is damaged", "install the newer version", "is empty")
    for run_dir, words, sentence in zip(runs, says, found.unreadable, strict=True):
        assert sentence.startswith(str(run_dir))
        assert words in sentence
        assert "\n" not in sentence


def _sql(run_dir: Path, statement: str) -> None:
    connection = sqlite3.connect(run_dir / "run.db")
    connection.execute(statement)
    connection.commit()
    connection.close()


def test_a_lock_excludes_and_leaves_nothing(tmp_path: Path) -> None:
    assert RunLock.holder(tmp_path) is None
    with RunLock(tmp_path):
        assert RunLock.holder(tmp_path) is not None
        with (
            pytest.raises(ResultsError, match=f"another sweep \\(process {os.getpid()}\\)"),
            RunLock(tmp_path),
        ):
            raise AssertionError("two sweeps hold one lock")
        assert RunLock.holder(tmp_path) is not None
    assert RunLock.holder(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_free_after_kill_9(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from tgi_bench.record.runs import RunLock\n"
        "with RunLock(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert RunLock.holder(tmp_path) is not None
        os.kill(holder.pid, signal.SIGKILL)
    assert (tmp_path / "lock").exists()
    assert RunLock.holder(tmp_path) is None
    with RunLock(tmp_path):
        assert RunLock.holder(tmp_path) is not None


def test_a_lock_in_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="cannot be written"), RunLock(tmp_path / "missing"):
        raise AssertionError("locked")


def test_no_room_for_anything_more(tmp_path: Path) -> None:
    require_room(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(NotRecordedError, match="cannot be written: File too large"):
            require_room(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []

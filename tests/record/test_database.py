"""Files that are no run, damaged or of another format are refused in one sentence."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.record import samples
from tgi_bench.errors import ResultsError, RunFileError
from tgi_bench.record import database, schema
from tgi_bench.record.store import RunStore


def _run(folder: Path) -> Path:
    with RunStore.create(folder, samples.header()) as store:
        attempt = store.begin_trial(samples.trial(1).trial_id)
        for index in range(200):
            store.add(samples.trial(1).trial_id, attempt, samples.run_of(index))
    return folder / "run.db"


def _set(folder: Path, pragma: str) -> None:
    connection = sqlite3.connect(_run(folder))
    connection.execute(f"PRAGMA {pragma}")
    connection.close()


def _keep(folder: Path, part: Callable[[bytes], bytes]) -> None:
    file = _run(folder)
    file.write_bytes(part(file.read_bytes()))


def _foreign(folder: Path) -> None:
    connection = sqlite3.connect(folder / "run.db")
    connection.execute("CREATE TABLE notes (text)")
    connection.close()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda d: None, "no run.db in the folder"),
        (lambda d: (d / "run.db").mkdir(), "not a file"),
        (lambda d: (d / "run.db").write_bytes(b""), "is empty"),
        (lambda d: (d / "run.db").write_bytes(b"SQLi"), "not a run of tgi-bench"),
        (lambda d: (d / "run.db").write_bytes(b"# a report\n" * 99), "not a run of tgi-bench"),
        (lambda d: (d / "run.db").write_bytes(b"SQLite format 3\0" + b"x" * 999), "unreadable"),
        (_foreign, "not a run of tgi-bench"),
        (lambda d: _set(d, "user_version = 99"), "format 99 by a newer tgi-bench"),
        (lambda d: _keep(d, lambda b: b[:100]), "truncated"),
        (lambda d: _keep(d, lambda b: b[: len(b) // 2]), "truncated"),
        (lambda d: _keep(d, lambda b: b[:-1]), "truncated"),
        (lambda d: _keep(d, lambda b: b[:8192] + b"\7" * 4096 + b[12288:]), "damaged"),
    ],
)
@pytest.mark.parametrize("writable", [False, True])
def test_refused(tmp_path: Path, spoil: Callable[[Path], None], says: str, writable: bool) -> None:
    spoil(tmp_path)
    with pytest.raises(RunFileError, match=says) as caught:
        RunStore.open(tmp_path, writable)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RunFileError, match="no such file or folder"):
        RunStore.open(tmp_path / "x" / "run.db", writable=False)
    with pytest.raises(RunFileError, match="at most 4095 bytes"):
        RunStore.open(tmp_path / ("x/" * 4096), writable=False)
    with pytest.raises(RunFileError):
        RunStore.open(tmp_path / ("x" * 300), writable=False)
    with pytest.raises(RunFileError):
        RunStore.open(Path("a\0b"), writable=False)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (
            "UPDATE environment SET value = x'ff'",
            "a value of environment.value is not",
        ),
        ("UPDATE trials SET batch_size = 1 << 60", "a value of trials.batch_size is not"),
        ("UPDATE trials SET runs = 0", "a value of trials.runs is not"),
        ("UPDATE steps SET sent_ns = 'soon'", "a value of steps.sent_ns is not"),
        ("UPDATE deployments SET load_s = 9e999", "a value of deployments.load_s is not"),
        ("UPDATE deployments SET load_s = x'00'", "a value of deployments.load_s is not"),
        ("DELETE FROM deployment_arguments; DELETE FROM deployments", "belongs to none of"),
        (
            "INSERT INTO published VALUES ((SELECT trial_id FROM trials), 0, 'Prefill', "
            "0, 1, 1, 1, 1, 1, 1, 1, 1)",
            "a value of published.mean_ns is not",
        ),
        ("ALTER TABLE steps RENAME COLUMN reason TO season", "its table steps is not that of"),
        ("DROP TABLE published", "its table published is not that of format"),
    ],
)
def test_a_value_that_cannot_have_been_written(tmp_path: Path, spoil: str, says: str) -> None:
    connection = sqlite3.connect(_run(tmp_path))
    connection.executescript(spoil)
    connection.commit()
    connection.close()
    with pytest.raises(RunFileError, match=f"run.db: is damaged: .*{says}") as caught:
        RunStore.open(tmp_path, writable=False)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        ("UPDATE deployments SET launcher = 'rocket'", "rocket"),
        ("UPDATE deployments SET tgi_version = 'x'", "`x`"),
        ("UPDATE deployments SET host = '[]'", "must be a mapping"),
        ("UPDATE deployments SET launcher = 'docker', host = '[]'", "must be a mapping"),
        ("UPDATE deployment_arguments SET name = 'num_rhard'", "has no argument 'num_rhard'"),
        ("UPDATE deployment_arguments SET value = '[1]'", r"value is \[1\]"),
        ("UPDATE trials SET prompt_seed = 'x'", "invalid literal"),
    ],
)
def test_a_value_of_another_format_is_told_as_damage(tmp_path: Path, spoil: str, says: str) -> None:
    connection = sqlite3.connect(_run(tmp_path))
    connection.executescript(spoil)
    connection.commit()
    connection.close()
    with (
        RunStore.open(tmp_path, writable=False) as store,
        pytest.raises(RunFileError, match=f"run.db: is damaged: .*{says}"),
    ):
        store.header()


def test_a_file_of_which_sqlite_says_what_is_no_text(tmp_path: Path) -> None:
    """It quotes the schema that it cannot read."""
    file = _run(tmp_path)
    data = file.read_bytes()
    place = data.index(b"CREATE TABLE environment")
    file.write_bytes(data[:place] + b"\xc5\xff\xfe" + data[place + 3 :])
    for writable in (False, True):
        with pytest.raises(RunFileError) as caught:
            RunStore.open(tmp_path, writable)
        assert "\n" not in str(caught.value)


def test_a_step_of_no_known_phase(tmp_path: Path) -> None:
    connection = sqlite3.connect(_run(tmp_path))
    connection.execute("UPDATE steps SET phase = 'rest'")
    connection.commit()
    connection.close()
    with (
        RunStore.open(tmp_path, writable=False) as store,
        pytest.raises(RunFileError, match="is damaged"),
    ):
        store.observations(samples.trial(1).trial_id)


def test_a_run_file_without_its_run(tmp_path: Path) -> None:
    connection = sqlite3.connect(_run(tmp_path))
    connection.execute("DELETE FROM run")
    connection.commit()
    connection.close()
    with (
        pytest.raises(RunFileError, match=r"is damaged: it has no run$"),
        RunStore.open(tmp_path, writable=False) as store,
    ):
        store.header()


def test_names_with_characters_of_uris(tmp_path: Path) -> None:
    folder = tmp_path / "50% #1? é"
    folder.mkdir()
    assert _run(folder).exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="cannot be written"):
        RunStore.create(tmp_path / "missing", samples.header())


def test_what_is_cut_off_while_it_is_created_is_no_run(tmp_path: Path) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        database.create_database(tmp_path / "run.db", fail)
    assert not (tmp_path / "run.db").exists()
    assert _run(tmp_path).exists()
    assert [p.name for p in tmp_path.iterdir()] == ["run.db"]


@pytest.mark.parametrize("writable", [False, True])
def test_an_older_format_is_upgraded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writable: bool
) -> None:
    before = _run(tmp_path).read_bytes()
    next_step = "ALTER TABLE run ADD COLUMN note TEXT;\nUPDATE run SET note = 'new'; -- as asked"
    monkeypatch.setattr(database, "MIGRATIONS", (*schema.MIGRATIONS, next_step))
    monkeypatch.setattr(database, "FORMAT_VERSION", schema.FORMAT_VERSION + 1)
    with RunStore.open(tmp_path, writable) as store:
        assert store.header() == samples.header()
        assert len(store.observations(samples.trial(1).trial_id)) == 600
    if not writable:
        assert (tmp_path / "run.db").read_bytes() == before
        assert [entry.name for entry in tmp_path.iterdir()] == ["run.db"]
        return
    connection = sqlite3.connect(tmp_path / "run.db")
    assert connection.execute("PRAGMA user_version").fetchone() == (schema.FORMAT_VERSION + 1,)
    assert connection.execute("SELECT note FROM run").fetchone() == ("new",)
    connection.close()


def test_an_upgrade_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _run(tmp_path).read_bytes()
    monkeypatch.setattr(database, "MIGRATIONS", (*schema.MIGRATIONS, "DROP TABLE run; NONSENSE;"))
    monkeypatch.setattr(database, "FORMAT_VERSION", schema.FORMAT_VERSION + 1)
    with pytest.raises(RunFileError):
        RunStore.open(tmp_path, writable=False)
    assert (tmp_path / "run.db").read_bytes() == before


def test_the_history_of_the_format_names_every_version() -> None:
    assert schema.__doc__ is not None
    for version in range(1, schema.FORMAT_VERSION + 1):
        assert f"\n    {version}  " in schema.__doc__

"""Files that are no run, damaged or of another format are refused in one sentence."""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.analysis import task_samples
from tests.conftest import GOLDEN
from tests.launch.deployments import attach, docker, embedded, program
from tests.record import samples
from tests.record.test_store import ENTRY, FIRST, LOAD, TASK, stored
from tgi_bench.devices.observation import Telemetry
from tgi_bench.errors import ResultsError, RunFileError
from tgi_bench.launch.launcher import Launcher
from tgi_bench.load_observation import ClientFloor, LoadStage, RequestObservation
from tgi_bench.observation import PublishedEntry, StepObservation
from tgi_bench.record import database, formats
from tgi_bench.record.store import RunStore
from tgi_bench.task_observation import TaskRun


def _run(folder: Path) -> Path:
    with stored(folder) as store:
        attempt = store.begin(FIRST)
        for index in range(200):
            store.add(attempt, samples.run_of(index))
        store.add(attempt, [samples.SEEN])
        store.add(store.begin(LOAD), [samples.request(0), samples.load_stage()])
        store.add(store.begin(TASK), task_samples.task_runs(2))
        store.add_to_run([samples.floor(), ENTRY])
    return folder / "run.db"


def _asked(place: str, value: object) -> str:
    """Changes one value of every batch's trial."""
    asked = f"json_set(asked, '{place}', {value})"
    return f"UPDATE trials SET asked = {asked} WHERE kind = 'batch'"


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
        (_asked("$.batch_size", 1 << 60), "a value of trials.asked is not"),
        (_asked("$.runs", 0), "a value of trials.asked is not"),
        (_asked("$.trial_id", "'x'"), "a value of trials.trial_id is not"),
        (_asked("$.deployment_id", "'x'"), "a value of trials.host_id is not"),
        ("UPDATE trials SET asked = 'x'", "a value of trials.asked is not"),
        ("INSERT INTO starts VALUES (1, 'x', 'no', NULL)", "a value of starts.host_id is not"),
        ("INSERT INTO starts VALUES (1, 'num_shard-2', NULL, NULL)", "a value of starts.facts is"),
        ("UPDATE requests SET event_ns = x'010203'", "a value of requests.event_ns is not"),
        ("UPDATE requests SET event_tokens = x'0102'", "a value of requests.event_ns is not"),
        ("UPDATE requests SET event_ns = 'text'", "a value of requests.event_ns is not"),
        ("UPDATE task_calls SET step_ends_ns = x'00'", "a value of task_calls.step_ends_ns is not"),
        ("DELETE FROM telemetry_devices", "a row of telemetry_samples belongs to none of"),
        ("DROP TABLE client_floors", "its table client_floors is not that of"),
        ("UPDATE steps SET sent_ns = 'soon'", "a value of steps.sent_ns is not"),
        ("UPDATE deployments SET load_s = 9e999", "a value of deployments.load_s is not"),
        ("UPDATE deployments SET load_s = x'00'", "a value of deployments.load_s is not"),
        ("DELETE FROM deployment_arguments; DELETE FROM deployments", "trials.host_id is not"),
        ("DELETE FROM attempts", "belongs to none of attempts"),
        (
            "INSERT INTO published VALUES (1, 0, 'Prefill', 0, 1, 1, 1, 1, 1, 1, 1, 1)",
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
        ("UPDATE deployments SET launcher_keys = '[]'", "EmbeddedKeys"),
        ("UPDATE deployments SET launcher = 'docker', launcher_keys = '[]'", "DockerKeys"),
        ("UPDATE deployment_arguments SET name = 'num_rhard'", "has no argument 'num_rhard'"),
        ("UPDATE deployment_arguments SET value = '[1]'", r"value is \[1\]"),
        (_asked("$.prompt_seed", "'x'"), "prompt_seed: Input should be a valid integer"),
        ("UPDATE trials SET asked = json_remove(asked, '$.task') WHERE kind = 'direct'", "task"),
        (_asked("$.task.kind", "'x'").replace("batch", "direct"), "kind"),
        (
            "UPDATE trials SET asked = json_remove(asked, '$.workload') WHERE kind = 'load'",
            "workload",
        ),
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


@pytest.mark.parametrize(
    ("spoil", "read"),
    [
        ("UPDATE steps SET phase = 'rest'", (FIRST, StepObservation)),
        ("UPDATE requests SET outcome = 'fine'", (LOAD, RequestObservation)),
        ("UPDATE load_stages SET details = '[[1]]'", (LOAD, LoadStage)),
        ("UPDATE load_stages SET client = ''", (LOAD, LoadStage)),
        ("UPDATE task_calls SET part = 'x'", (TASK, TaskRun)),
        ("UPDATE telemetry SET began = '1'", (FIRST, Telemetry)),
        ("UPDATE telemetry_devices SET kind = 'x'", (FIRST, Telemetry)),
        ("UPDATE client_floors SET ttft_error_ns = '[1]'", ("", ClientFloor)),
        ("UPDATE published_values SET metric = 'luck'", ("", PublishedEntry)),
        ("UPDATE published_values SET reason = 'why', printed = 'x'", ("", PublishedEntry)),
        ('UPDATE published_entries SET ended = \'{"outcome": "luck"}\'', ("", PublishedEntry)),
        ("UPDATE published_entries SET doubts = '['", ("", PublishedEntry)),
    ],
)
def test_what_was_seen_and_is_not_as_written_is_told_as_damage(
    tmp_path: Path, spoil: str, read: tuple[str, type]
) -> None:
    connection = sqlite3.connect(_run(tmp_path))
    connection.execute(spoil)
    connection.commit()
    connection.close()
    trial_id, kind = read
    with (
        RunStore.open(tmp_path, writable=False) as store,
        pytest.raises(RunFileError, match=r"run.db: is damaged: .") as caught,
    ):
        tuple(store.seen(trial_id, kind) if trial_id else store.of_run(kind))
    assert "\n" not in str(caught.value)


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
@pytest.mark.parametrize("version", range(1, formats.FORMAT_VERSION))
def test_an_upgrade_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, version: int, writable: bool
) -> None:
    """What is said to be of an older format and is not."""
    _set(tmp_path, f"user_version = {version}")
    before = (tmp_path / "run.db").read_bytes()
    with pytest.raises(RunFileError, match="is truncated, damaged or unreadable: ") as caught:
        RunStore.open(tmp_path, writable)
    assert "\n" not in str(caught.value)
    assert (tmp_path / "run.db").read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.db"]


@pytest.mark.parametrize(
    ("kept", "spoil", "says"),
    [
        ("1", "UPDATE trials SET batch_size = 1 << 60", "a value of trials.asked is not"),
        ("2", "UPDATE requests SET event_ns = x'01'", "a value of requests.event_ns is not"),
        ("3", "UPDATE published_values SET value = 'x'", "a value of published_values.value is"),
        ("4", "UPDATE trials SET prompt_seed = 'x'", "malformed JSON"),
        ("4-direct", "UPDATE task_runs SET began_ns = 'x'", "a value of task_runs.began_ns is not"),
        ("5", "UPDATE trials SET runs = x'00'", "JSON cannot hold BLOB values"),
        (
            "5",
            "DELETE FROM telemetry",
            "belongs to none of telemetry",
        ),
    ],
)
@pytest.mark.parametrize("writable", [False, True])
def test_a_damaged_file_of_an_older_format(
    tmp_path: Path, kept: str, spoil: str, says: str, writable: bool
) -> None:
    file = tmp_path / "run.db"
    file.write_bytes(gzip.decompress((GOLDEN / "formats" / kept / "run.db.gz").read_bytes()))
    connection = sqlite3.connect(file)
    connection.execute(spoil)
    connection.commit()
    connection.close()
    before = file.read_bytes()
    with pytest.raises(RunFileError, match=f"damaged.*: .*({says})") as caught:
        RunStore.open(tmp_path, writable)
    assert "\n" not in str(caught.value)
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("launcher", "host", "read"),
    [
        ("docker", '{"gpus": null}', docker()),
        (
            "docker",
            '{"gpus": "2", "shm_size": "1g", "volumes": ["a:/b"], "network": "host", '
            '"options": [["cap_add", "[\\"A\\"]"], ["init", "true"]]}',
            docker(
                gpus="2",
                shm_size="1g",
                volumes=["a:/b"],
                network="host",
                options={"cap_add": ["A"], "init": True},
            ),
        ),
        ("process", "null", program()),  # of an imported report
        ("process", '{"command": ["a", "b c"]}', program("a", "b c")),
        ("attach", '{"url": "http://h", "master_socket": null}', attach("http://h")),
        (
            "attach",
            '{"url": null, "master_socket": "/s", "verify_tls": false, "headers": [["X", "$A"]]}',
            attach(sockets="/s", verify_tls=False, headers={"X": "$A"}),
        ),
        ("embedded", "null", embedded(accelerator="H100-SXM")),
        (
            "embedded",
            '{"calibration": "c d", "visible_devices": 2}',
            embedded(accelerator="H100-SXM", calibration="c d", visible_devices=2),
        ),
    ],
)
def test_launchers_of_format_5_have_the_keys_of_their_experiment(
    tmp_path: Path, launcher: str, host: str, read: Launcher
) -> None:
    file = tmp_path / "run.db"
    file.write_bytes(gzip.decompress((GOLDEN / "formats" / "5" / "run.db.gz").read_bytes()))
    connection = sqlite3.connect(file)
    connection.execute(
        "UPDATE deployments SET launcher = ?, host = ?, accelerator = 'H100-SXM'", (launcher, host)
    )
    connection.commit()
    connection.close()
    for writable in (False, True):
        with RunStore.open(tmp_path, writable) as store:
            found = {d.deployment_id: d.launcher for d in store.header().plan.deployments}
        assert found == dict.fromkeys(found, read)
        assert found


def test_every_digit_of_an_older_format_is_kept(tmp_path: Path) -> None:
    """Where numbers of columns have become those of a JSON text."""
    file = tmp_path / "run.db"
    file.write_bytes(gzip.decompress((GOLDEN / "formats" / "5" / "run.db.gz").read_bytes()))
    connection = sqlite3.connect(file)
    connection.execute("UPDATE client_floors SET ttft_error_p50_ns = ?", (0.1 + 0.2,))
    trial = "UPDATE trials SET step_timeout_s = ?, temperature = ?, prompt_seed = ?"
    connection.execute(trial, (1 / 3, 5e-324, str(2**70 + 1)))
    connection.execute("UPDATE server_gauges SET value = ?", (2 / 3,))
    connection.commit()
    connection.close()
    with RunStore.open(tmp_path, writable=False) as store:
        plan = store.header().plan
        seen = [store.telemetry(trial.trial_id) for trial in plan.trials]
        assert {floor.ttft_error_ns[0] for floor in store.of_run(ClientFloor)} == {0.1 + 0.2}
    for asked in plan.trials:
        assert (asked.step_timeout_s, asked.sampling.temperature) == (1 / 3, 5e-324)
        assert asked.prompt_seed == 2**70 + 1
    assert {value for one in seen if one is not None for _, value in one.began} == {2 / 3}


def test_the_history_of_the_format_names_every_version() -> None:
    assert formats.__doc__ is not None
    for version in range(1, formats.FORMAT_VERSION + 1):
        assert f"\n    {version}  " in formats.__doc__

"""A bad input gets one clear message, exit code 2 and no traceback."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine
from tests.sweep.experiments import write
from tgi_bench.record.database import FILE_NAME
from tgi_bench.record.formats import FORMAT_VERSION

GOOD = """\
experiment: good
model: bigscience/bloomz-1b1
server:
  launcher: embedded
  version: 0.9.4
  variable:
    num_shard: [1, 2]
batches:
  sequence_length: [16]
  decode_length: 2
  batch_size: [1]
  runs: 3
"""
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)


def changed(old: str, new: str) -> str:
    assert GOOD.count(old) == 1, old
    return GOOD.replace(old, new)


TEXTS: dict[str, tuple[str, str]] = {
    "empty": ("", "empty"),
    "only a comment": ("# nothing\n", ""),
    "a list": ("- a\n- b\n", ""),
    "a scalar": ("hello\n", ""),
    "no YAML": ("experiment: [1, 2\nmodel: x\n", ":2"),
    "a tab": ("experiment:\n\t- x\n", ":2"),
    "two documents": (GOOD + "---\n" + GOOD, ""),
    "a key twice": (GOOD + "experiment: again\n", "experiment"),
    "a bomb": (BOMB, ""),
    "deep nesting": ("a: " + "[" * 5000, ""),
    "a python object": (changed("good", "!!python/object/apply:os.system [x]"), ""),
    "wrong type of runs": (changed("runs: 3", "runs: many"), "batches.runs"),
    "fraction of a run": (changed("runs: 3", "runs: 2.5"), "batches.runs"),
    "boolean runs": (changed("runs: 3", "runs: true"), "batches.runs"),
    "zero runs": (changed("runs: 3", "runs: 0"), "batches.runs"),
    "zero batch": (changed("batch_size: [1]", "batch_size: [0]"), "batches.batch_size"),
    "negative batch": (changed("batch_size: [1]", "batch_size: [-4]"), "batches.batch_size"),
    "negative prompt": (
        changed("sequence_length: [16]", "sequence_length: -1"),
        "batches.sequence_length",
    ),
    "huge prompt": (
        changed("sequence_length: [16]", f"sequence_length: {10**30}"),
        "batches.sequence_length",
    ),
    "zero tokens": (changed("decode_length: 2", "decode_length: 0"), "batches.decode_length"),
    "negative warm-ups": (changed("runs: 3", "runs: 3\n  warmups: -1"), "batches.warmups"),
    "no batch sizes": (changed("batch_size: [1]", "batch_size: []"), "batches.batch_size"),
    "unknown key": (changed("model:", "modell:"), "model"),
    "unknown nested key": (changed("runs:", "run:"), "runs"),
    "misspelt argument": (changed("num_shard: [1, 2]", "num_shards: [1, 2]"), "num_shard"),
    "empty matrix": (changed("num_shard: [1, 2]", "num_shard: []"), "num_shard"),
    "all skipped": (
        changed(
            "    num_shard: [1, 2]\n", "    num_shard: [1, 2]\n  skip: [{num_shard: [1, 2]}]\n"
        ),
        "skip",
    ),
    "name above": (changed("experiment: good", "experiment: ../../tmp/x"), "experiment"),
    "absolute name": (changed("experiment: good", "experiment: /tmp/x"), "experiment"),
    "name of dots": (changed("experiment: good", "experiment: .."), "experiment"),
    "no name": (changed("experiment: good", "experiment: ''"), "experiment"),
    "unknown launcher": (changed("launcher: embedded", "launcher: podman"), "server.launcher"),
    "unknown version": (changed("version: 0.9.4", "version: 99"), "version"),
}


@pytest.mark.parametrize("case", TEXTS)
@pytest.mark.parametrize("command", ["plan", "sweep"])
def test_experiments(tgi_bench: CommandLine, tmp_path: Path, case: str, command: str) -> None:
    text, expected = TEXTS[case]
    file = tmp_path / "experiment.yaml"
    file.write_text(text, encoding="utf-8")
    options = ["--results", str(tmp_path / "results")] if command == "sweep" else []
    message = tgi_bench.refused(command, file, *options)
    assert str(file) in message
    assert expected in message
    assert len(message) < 2000
    assert sorted(tmp_path.iterdir()) == [file]


def test_the_good_one_is_good(tgi_bench: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(GOOD, encoding="utf-8")
    assert tgi_bench("plan", file).code == 0


@pytest.mark.parametrize("command", ["plan", "sweep", "import"])
def test_files_that_cannot_be_read(tgi_bench: CommandLine, tmp_path: Path, command: str) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\x00\xff\xfe\x80")
    (tmp_path / "file").touch()
    for path, expected in (
        (tmp_path / "nobody.yaml", "no such"),
        (tmp_path, "is a directory"),
        (binary, "not a text file"),
        (tmp_path / "file" / "below", "cannot be read"),
        (tmp_path / ("n" * 300), "cannot be read"),
    ):
        message = tgi_bench.refused(command, path)
        assert expected in message, message
        assert str(path) in message


@pytest.mark.parametrize("command", ["plan", "import"])
def test_files_that_would_never_end(tgi_bench: CommandLine, tmp_path: Path, command: str) -> None:
    endless, pipe, long = (tmp_path / name for name in ("zero.yaml", "pipe.yaml", "long.yaml"))
    endless.symlink_to("/dev/zero")
    os.mkfifo(pipe)
    with long.open("wb") as stream:
        stream.truncate(1 << 25)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for path, expected in (
            (endless, "is a device or a socket"),
            (tmp_path / "socket", "is a device or a socket"),
            (pipe, "is a pipe that nobody writes to"),
            (long, "bytes, the most that are read"),
        ):
            message = tgi_bench.refused(command, path)
            assert f"{path}: " in message
            assert expected in message


def test_a_pipe_of_the_shell_is_read() -> None:
    script = f"exec {sys.executable} -m tgi_bench.cli.main plan <(sleep 0.2; cat)"
    done = subprocess.run(
        ["bash", "-c", script], input=GOOD, capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 deployments, 2 trials" in done.stdout


def test_a_name_with_a_line_end_stays_on_one_line(tgi_bench: CommandLine, tmp_path: Path) -> None:
    assert r"a\nb.yaml: no such" in tgi_bench.refused("plan", tmp_path / "a\nb.yaml")


def test_an_import_s_errors_name_file_and_line(tgi_bench: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "tables.md"
    file.write_text("# nothing\n", encoding="utf-8")
    assert tgi_bench.refused("import", file).startswith(f"tgi-bench: {file}:1: no tables found;")
    assert "is a directory, not a report file" in tgi_bench.refused("import", tmp_path)
    assert "is a directory, not an experiment file" in tgi_bench.refused("plan", tmp_path)


def test_an_empty_report_is_not_imported(tgi_bench: CommandLine, tmp_path: Path) -> None:
    for text in ("", "# no tables\n", "| a | b |\n|---|---|\n| 1 | 2 |\n"):
        file = tmp_path / "report.md"
        file.write_text(text, encoding="utf-8")
        tgi_bench.refused("import", file, "--results", tmp_path / "results")
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("name", ["../out", "/tmp/out", "..", "", "a/b"])
def test_an_import_stays_in_the_results_folder(
    tgi_bench: CommandLine, tmp_path: Path, name: str
) -> None:
    published = Path(__file__).parent.parent / "golden" / "published_tgi_bloomz-7b1-mt.md"
    results = tmp_path / "inner" / "results"
    ended = tgi_bench("import", published, "--name", name, "--results", results)
    assert ended.code == 2
    assert ended.stderr.startswith("tgi-bench: --name: must be a name of at most 100 letters")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--set", "batches.runs"], "--set"),
        (["--set", "batches.runs=0"], "batches.runs"),
        (["--set", "batches.rums=3"], "batches.rums"),
        (["--set", "=3"], "--set"),
        (["--only", "num_shard=4"], "num_shard"),
        (["--only", "quantize=gptq"], "quantize"),
        (["--only", "num_shard"], "--only"),
        (["--launcher", "podman"], "podman"),
        (["--no-such-option"], "--no-such-option"),
    ],
)
def test_options(tgi_bench: CommandLine, tmp_path: Path, options: list[str], expected: str) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(GOOD, encoding="utf-8")
    assert expected in tgi_bench.refused("plan", file, *options)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("server.embedded.accelerator=H1000", "accelerator"),
        ("model=org/unknown", "model"),
    ],
)
def test_what_the_embedded_server_cannot_compute(
    tgi_bench: CommandLine, tmp_path: Path, setting: str, expected: str
) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(GOOD, encoding="utf-8")
    results = tmp_path / "results"
    message = tgi_bench.refused("sweep", file, "--set", setting, "--results", results)
    assert expected in message
    assert not results.exists()


def test_a_program_that_is_not_there(tgi_bench: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(GOOD, encoding="utf-8")
    settings = ("--launcher", "process", "--set", "server.command=no-such-launcher")
    results = tmp_path / "results"
    message = tgi_bench.refused("sweep", file, *settings, "--results", results)
    assert "no-such-launcher" in message
    assert not results.exists()


def test_a_file_in_the_place_of_the_results_folder(tgi_bench: CommandLine, tmp_path: Path) -> None:
    file = write(tmp_path)
    (tmp_path / "taken").touch()
    for results in (tmp_path / "taken", tmp_path / "taken" / "below"):
        message = tgi_bench.refused("sweep", file, "--results", results)
        assert "--results" in message
        assert str(results) in message


def test_a_file_in_the_place_of_the_experiment_s_folder(
    tgi_bench: CommandLine, tmp_path: Path
) -> None:
    file = write(tmp_path)
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "small").touch()
    message = tgi_bench.refused("sweep", file, "--results", tmp_path / "results")
    assert str(tmp_path / "results") in message
    assert "cannot be written" in message


def a_run(tgi_bench: CommandLine, folder: Path) -> Path:
    """A run.db, made by importing."""
    published = Path(__file__).parent.parent / "golden" / "published_tgi_bloomz-7b1-mt.md"
    assert tgi_bench("import", published, "--name", "run", "--results", folder).code == 0
    (run_dir,) = (folder / "run").iterdir()
    return run_dir / FILE_NAME


def test_runs_that_are_none(tgi_bench: CommandLine, tmp_path: Path) -> None:
    empty, garbage, foreign = (tmp_path / name for name in ("empty", "garbage", "foreign"))
    empty.touch()
    garbage.write_bytes(os.urandom(5000))
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    folder = tmp_path / "folder"
    (folder / FILE_NAME).mkdir(parents=True)
    for path, expected in (
        (tmp_path / "nobody", "no such file or folder"),
        (tmp_path, f"no {FILE_NAME} in the folder"),
        (empty, "is empty"),
        (garbage, "not a run of tgi-bench"),
        (foreign, "not a run of tgi-bench"),
        (folder, "not a file"),
        (tmp_path / ("n" * 300), ""),
    ):
        message = tgi_bench.refused("report", path)
        assert expected in message, message
        assert message.count("\n") == 1, message


def test_a_run_of_a_newer_version(tgi_bench: CommandLine, tmp_path: Path) -> None:
    file = a_run(tgi_bench, tmp_path)
    with sqlite3.connect(file) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT_VERSION + 1}")
    connection.close()
    message = tgi_bench.refused("report", file)
    assert f"format {FORMAT_VERSION + 1}" in message
    assert message.count("\n") == 1


@pytest.mark.parametrize("share", [0.001, 0.02, 0.3, 0.5, 0.9, 0.999])
def test_a_truncated_run(tgi_bench: CommandLine, tmp_path: Path, share: float) -> None:
    file = a_run(tgi_bench, tmp_path)
    whole = file.read_bytes()
    file.write_bytes(whole[: max(1, int(len(whole) * share))])
    message = tgi_bench.refused("report", file, "--format", "json")
    assert str(file) in message
    assert message.count("\n") == 1


def test_a_truncated_run_is_not_resumed_over(tgi_bench: CommandLine, tmp_path: Path) -> None:
    """The newest run of the plan cannot be read: that is said, and nothing is overwritten."""
    experiment = write(tmp_path)
    plan = tgi_bench("plan", experiment).stdout
    digest = next(line.split()[1] for line in plan.splitlines() if line.startswith("plan "))
    run_dir = tmp_path / "results" / "small" / f"20260101T000000Z-{digest[:6]}"
    run_dir.mkdir(parents=True)
    (run_dir / FILE_NAME).write_bytes(b"SQLite format 3\0" + b"\1" * 90)
    ended = tgi_bench("sweep", experiment, "--results", tmp_path / "results", "--resume")
    assert ended.code == 2
    assert str(run_dir) in ended.stderr
    assert [p.name for p in run_dir.iterdir()] == [FILE_NAME]


def test_a_report_into_a_file(tgi_bench: CommandLine, tmp_path: Path) -> None:
    file = a_run(tgi_bench, tmp_path)
    (tmp_path / "taken").touch()
    assert "taken" in tgi_bench.refused("report", file, "--output", tmp_path / "taken")


def test_an_unknown_format(tgi_bench: CommandLine, tmp_path: Path) -> None:
    assert "pdf" in tgi_bench.refused("report", tmp_path, "--format", "pdf")


def test_no_command_like_that(tgi_bench: CommandLine) -> None:
    assert "swep" in tgi_bench.refused("swep")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--tgi-version", "1.2.3.4"], "1.2.3.4"),
        (["--tgi-version", "9.9.9"], "the behaviours of 0.8.0 to 3.3.7, not of 9.9.9"),
        (["--port", "9991"], "give --model-id; known: facebook/opt-1.3b, "),
        (["--max-total-tokens", "9" * 5000], "must be an integer that fits 64 bits"),
        (["--max-total-tokens", "x"], "must be an integer of at least 1, not `x`"),
        (["--engine", "real"], "--engine"),
        (["--accelerator", "abacus"], "abacus"),
        (["--model-id", "org/unknown"], "org/unknown"),
        (["--num-shard", "none"], "num-shard"),
        (["--num-shards", "2"], "num-shard"),
        (["--quantize", "zip"], "quantize"),
        (["--model-id", "bigscience/bloomz-1b1", "--hostname", "256.256.256.256"], "--hostname"),
    ],
)
def test_serve(tgi_bench: CommandLine, arguments: list[str], expected: str) -> None:
    assert expected in tgi_bench.refused("serve", *arguments)


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        program = [sys.executable, "-m", "tgi_bench.cli.main", "serve", "--port", port]
        done = subprocess.run(
            [*program, "--model-id", "bigscience/bloomz-1b1"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert (done.returncode, done.stdout) == (2, "")
    assert port in done.stderr
    assert "--port" in done.stderr
    assert done.stderr.count("127.0.0.1") == 1
    assert done.stderr.count("\n") == 1


def test_a_process_of_its_own_says_the_same(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tgi_bench.cli.main", "sweep", str(tmp_path / "nobody.yaml")],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"tgi-bench: {tmp_path / 'nobody.yaml'}: no such experiment file\n"


@pytest.mark.parametrize("command", [["schema"], ["--help"], ["plan"]])
def test_an_output_without_room(tmp_path: Path, command: list[str]) -> None:
    experiment = tmp_path / "good.yaml"
    experiment.write_text(GOOD, encoding="utf-8")
    arguments = [*command, str(experiment)] if command == ["plan"] else command
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tgi_bench.cli.main", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=30,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "tgi-bench: the output cannot be written: No space left on device\n"


def test_a_reader_that_stops_reading() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tgi_bench.cli.main", "schema"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        errors = process.stderr.read()
        process.wait(30)
    assert "Traceback" not in errors

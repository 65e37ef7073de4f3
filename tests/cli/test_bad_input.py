"""A bad input gets one clear message, exit code 2 and no traceback."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine
from tests.sweep.experiments import write
from tgi_bench.record.database import FILE_NAME

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


def test_a_pipe_of_the_shell_is_read() -> None:
    script = f"exec {sys.executable} -m tgi_bench.cli.main plan <(sleep 0.2; cat)"
    done = subprocess.run(
        ["bash", "-c", script], input=GOOD, capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 deployments, 2 trials" in done.stdout


def test_a_name_with_a_line_end_stays_on_one_line(tgi_bench: CommandLine, tmp_path: Path) -> None:
    assert r"a\nb.yaml: no such" in tgi_bench.refused("plan", tmp_path / "a\nb.yaml")


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


def test_a_name_of_no_machine(tgi_bench: CommandLine) -> None:
    words = ("--model-id", "bigscience/bloomz-1b1", "--hostname", "256.256.256.256")
    assert "--hostname" in tgi_bench.refused("serve", *words)


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

"""All that killed sweeps left, ended at once, and told in sentences."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launch import servers
from tests.launch.test_orphans import _dead_owner, _left
from tgi_bench.errors import LaunchError
from tgi_bench.launch import LAUNCHERS, docker_engine
from tgi_bench.launch.left_behind import Left, Orphan, ProcessName, end_left, socket_folder


def _left_folder() -> Path:
    script = (
        "import time; from tgi_bench.launch.left_behind import socket_folder\n"
        "with socket_folder() as stem: print(stem, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().decode().strip()).parent
        owner.kill()
    return folder


def test_processes_and_folders() -> None:
    folder = _left_folder()
    with socket_folder() as stem, _left(servers.SLEEP, _dead_owner()) as orphan:
        left = end_left(())
        assert orphan.wait(20) == -signal.SIGTERM
        assert folder in left.folders
        assert not folder.exists()
        assert stem.parent.is_dir()
        assert orphan.pid in {o.process.pid for o in left.processes}
        assert left.not_asked == ()
        said = left.sentences()
        assert any("that the killed sweep of run-1 had left" in line for line in said)
        assert f"removed the socket folder {folder}" in said


def test_sentences() -> None:
    two = tuple(Orphan(ProcessName(pid, 1), "r", False) for pid in (1, 2))
    left = Left(two, ("removed the container c",), (Path("/tmp/x"),))
    assert left.sentences() == (
        "ended 2 processes that the killed sweep of r had left",
        "removed the container c",
        "removed the socket folder /tmp/x",
    )
    assert Left((), (), ()).sentences() == ()
    assert Left((), (), (), (), (Path("/tmp/y"),)).sentences() == (
        "removed the null server's folder /tmp/y",
    )


def test_the_folder_of_a_null_server_whose_parent_was_killed() -> None:
    script = (
        "from tgi_bench.selfcheck.loads import null_server\n"
        "from tgi_bench.server.null.timing import StreamPace\n"
        "with null_server(StreamPace(0, 0, 0)) as server: print(server._log, flush=True); input()"
    )
    words = [sys.executable, "-c", script]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().decode().strip()).parent
        assert folder not in end_left(()).null_server_folders
        owner.kill()
    assert folder in end_left(()).null_server_folders
    assert not folder.exists()


@pytest.mark.parametrize("name", ["tgi-bench.sockets.mine", "tgi-bench-scratch", "tgi-bench-s"])
def test_folders_of_other_names_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / name).mkdir()
    assert tmp_path / name not in end_left(()).folders
    assert (tmp_path / name).is_dir()


def test_without_an_engine_the_rest_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> tuple[str, ...]:
        raise LaunchError("no Docker Engine answers")

    monkeypatch.setattr(docker_engine, "end_left_containers", none)
    said = ("containers were not looked for: no Docker Engine answers",)
    assert end_left(LAUNCHERS).not_asked == said

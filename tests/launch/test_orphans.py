"""What a killed sweep left is ended by the next; what a living one runs is not touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launch import servers
from tests.launch.test_process import wait_for
from tgi_bench.errors import InputError
from tgi_bench.launch import left_behind
from tgi_bench.launch.child import ServerProcess
from tgi_bench.launch.left_behind import (
    DOMAIN_MARK,
    OWNER_MARK,
    RUN_MARK,
    ProcessName,
    remove_left_folders,
    socket_folder,
)


def _left(script: str, owner: str) -> subprocess.Popen[bytes]:
    """A marked process that nobody told to end with its owner."""
    started = subprocess.Popen(
        [sys.executable, "-c", "print(1, flush=True)\n" + script]
        if not script.startswith("import signal")
        else [sys.executable, "-c", servers.IGNORE_TERM + "print(1, flush=True)\n" + script],
        stdout=subprocess.PIPE,
        env={**os.environ, OWNER_MARK: owner, RUN_MARK: "run-1"},
    )
    assert started.stdout is not None
    started.stdout.readline()
    return started


def _dead_owner() -> str:
    with subprocess.Popen([sys.executable, "-c", servers.SLEEP]) as owner:
        name = ProcessName.of(owner.pid)
        owner.kill()
    return str(name)


@pytest.mark.parametrize("stubborn", [False, True])
def test_an_orphan_is_ended(monkeypatch: pytest.MonkeyPatch, stubborn: bool) -> None:
    monkeypatch.setattr(left_behind, "_TERM_WAIT_S", 0.3 if stubborn else 10.0)
    script = (servers.IGNORE_TERM if stubborn else "") + servers.SLEEP
    with _left(script, _dead_owner()) as left:
        process = ProcessName.of(left.pid)
        assert process is not None
        assert left_behind.Orphan(process, "run-1", stubborn) in left_behind.end_orphans()
        assert left.wait(20) == -(signal.SIGKILL if stubborn else signal.SIGTERM)
    assert process not in {o.process for o in left_behind.end_orphans()}


def test_living_owners_and_foreign_marks_are_left_alone(tmp_path: Path) -> None:
    foreign = _left(servers.SLEEP, "not a mark")
    try:
        with ServerProcess(servers.command(tmp_path, servers.SLEEP)) as server:
            found = {o.process.pid for o in left_behind.end_orphans()}
            assert not found & {server.pid, foreign.pid, os.getpid()}
            assert server.alive()
            assert foreign.poll() is None
    finally:
        foreign.kill()
        foreign.communicate()


def test_what_sweeps_of_another_domain_left_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _folder_of_a_killed_owner()
    with _left(servers.SLEEP, _dead_owner()) as left:
        with monkeypatch.context() as another:
            another.setenv(DOMAIN_MARK, "another1")
            assert left.pid not in {o.process.pid for o in left_behind.end_orphans()}
            assert folder not in remove_left_folders()
            another.delenv(DOMAIN_MARK)
            assert left.pid not in {o.process.pid for o in left_behind.end_orphans()}
            assert folder not in remove_left_folders()
        assert left.poll() is None
        assert left.pid in {o.process.pid for o in left_behind.end_orphans()}
    assert folder in remove_left_folders()


@pytest.mark.parametrize("name", ["Upper", "a.b", "../x", "x" * 17, "é"])
def test_a_domain_that_is_no_name_of_one(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(DOMAIN_MARK, name)
    with pytest.raises(InputError, match=DOMAIN_MARK):
        left_behind.end_orphans()


def test_an_id_that_is_used_again_is_another_process() -> None:
    own = ProcessName.own()
    assert own.lives()
    assert not ProcessName(own.pid, own.started + 1).lives()
    assert ProcessName.parse(str(own)) == own
    for text in ("", ":", "1", "1:", "a:1", "-1:2", "1:2:3"):
        assert ProcessName.parse(text) is None


def test_socket_folders() -> None:
    with socket_folder() as stem:
        assert stem.parent.stat().st_mode & 0o777 == 0o700
        assert len(os.fsencode(f"{stem}-99")) <= 107
        assert stem.parent not in remove_left_folders()
        assert stem.parent.is_dir()
    assert not stem.parent.exists()


def test_the_socket_folder_of_a_killed_owner_is_removed() -> None:
    folder = _folder_of_a_killed_owner()
    assert folder in remove_left_folders()
    wait_for(lambda: not folder.exists())


def _folder_of_a_killed_owner() -> Path:
    script = (
        "import time; from tgi_bench.launch.left_behind import socket_folder\n"
        "with socket_folder() as stem: print(stem, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().decode().strip()).parent
        owner.kill()
    assert folder.is_dir()
    return folder

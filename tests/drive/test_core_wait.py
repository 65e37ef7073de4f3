"""The kernel's account of how long threads of this process waited for a core."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tgi_bench.drive import server_host as core_wait
from tgi_bench.drive.server_host import CoreWait

IN_THE_WAY = "while True: pass"


def account(folder: Path, **waits: int) -> None:
    for thread, waited_ns in waits.items():
        (folder / thread).mkdir(exist_ok=True)
        (folder / thread / "schedstat").write_text(f"5 {waited_ns} 7\n")


def test_the_longest_wait_of_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_wait, "_THREADS", tmp_path)
    account(tmp_path, a=100, b=1_000)
    before = CoreWait()
    account(tmp_path, a=400, b=1_200, late=250)
    assert before.until_ns(CoreWait()) == 300
    assert before.until_ns(before) == 0


def test_a_thread_that_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_wait, "_THREADS", tmp_path)
    account(tmp_path, a=100, b=1_000)
    before = CoreWait()
    (tmp_path / "b" / "schedstat").unlink()
    account(tmp_path, a=150)
    assert before.until_ns(CoreWait()) == 50


@pytest.mark.parametrize("there", ["nothing", "no account", "other words"])
def test_a_kernel_that_does_not_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    monkeypatch.setattr(core_wait, "_THREADS", tmp_path / "task")
    if there != "nothing":
        (tmp_path / "task" / "a").mkdir(parents=True)
    if there == "other words":
        (tmp_path / "task" / "a" / "schedstat").write_text("none\n")
    assert CoreWait().until_ns(CoreWait()) is None


@pytest.mark.skipif(sys.platform != "linux", reason="the account is Linux's")
def test_a_thread_that_shares_its_core_waits() -> None:
    cores = os.sched_getaffinity(0)
    one = {min(cores)}
    os.sched_setaffinity(0, one)  # of this thread, and of the process that it starts
    try:
        before = CoreWait()
        with subprocess.Popen([sys.executable, "-c", IN_THE_WAY]) as other:
            deadline = time.monotonic() + 30
            while not before.until_ns(CoreWait()) and time.monotonic() < deadline:
                pass
            other.kill()
        waited_ns = before.until_ns(CoreWait())
    finally:
        os.sched_setaffinity(0, cores)
    assert waited_ns is not None
    assert waited_ns > 0

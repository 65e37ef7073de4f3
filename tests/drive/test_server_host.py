"""A server's share of the machine's CPU, from accounts of the kernel's form."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.proc_folder import OWN, SERVER, ProcFolder
from tgi_bench.drive import server_host as core_wait
from tgi_bench.drive.server_host import CoreWait, HostWatch, server_roots
from tgi_bench.load_observation import ServerCpu, Untold

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


TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
URL = "http://127.0.0.1:3000"
WORKER, SHARD, OTHER = 9000, 501, 600


@pytest.fixture
def proc(tmp_path: Path) -> ProcFolder:
    """A server of a launcher (SERVER), a router that listens and a shard; us and our worker."""
    made = ProcFolder(tmp_path / "proc")
    made.process(1, 0, session=1)
    made.process(OWN, 1, session=OWN)
    made.process(WORKER, OWN, session=OWN)
    made.process(SERVER, 1, session=SERVER)
    made.process(500, SERVER, session=SERVER, group=500, fds=("socket:[77]",))
    made.process(SHARD, SERVER, session=SERVER, group=SHARD)
    made.process(OTHER, 1, session=OTHER)
    made.tcp(("0100007F:0BB8", 77))
    made.busy(1000)
    return made


def test_what_server_client_and_others_had(proc: ProcFolder) -> None:
    proc.thread(500, 500, 10, 5)
    watch = HostWatch(URL, proc.path)
    proc.process(500, SERVER, session=SERVER, fds=("socket:[77]",), ticks=40)
    proc.process(SHARD, SERVER, session=SERVER, ticks=7, ended=3)
    proc.process(WORKER, OWN, session=OWN, ticks=4, ended=1000)
    proc.process(OTHER, 1, session=OTHER, ticks=90)
    proc.thread(500, 500, 110, 65)
    proc.thread(SHARD, SHARD, 200, 30)
    proc.busy(1200)
    seen = watch.end([WORKER, 9001])
    assert (seen.busy_ns, seen.client_ns, seen.untold) == (200 * TICK_NS, 4 * TICK_NS, None)
    assert seen.server == ServerCpu(3, 2, 50 * TICK_NS, 300, 90)
    assert seen.cores == os.cpu_count()
    assert seen.wall_ns > 0


def test_how_long_the_client_waited_for_a_core(proc: ProcFolder) -> None:
    proc.thread(OWN, OWN, 900, 50)
    proc.thread(WORKER, WORKER, 10, 4)
    watch = HostWatch(URL, proc.path)
    proc.thread(OWN, OWN, 1000, 8000)  # before the load nothing is lost
    watch.load_begins([WORKER])
    proc.thread(OWN, OWN, 1100, 8070)
    proc.thread(WORKER, WORKER, 30, 94)
    watch.look()
    proc.ends(WORKER)
    assert watch.end([WORKER]).client_waited_ns == 90
    assert HostWatch(URL, proc.path).end().client_waited_ns is None
    proc.thread(OWN, OWN, 0, 0)
    watch.load_begins([])
    assert watch.end().client_waited_ns is None


def test_a_thread_that_ends_was_seen_by_a_look(proc: ProcFolder) -> None:
    watch = HostWatch(URL, proc.path)
    proc.thread(SHARD, 502, 70, 20)
    watch.look()
    proc.ends(SHARD, 502)
    proc.thread(SHARD, SHARD, 5, 1)
    assert watch.end().server == ServerCpu(3, 2, 0, 75, 21)


def test_a_server_that_ended(proc: ProcFolder) -> None:
    watch = HostWatch(URL, proc.path)
    for pid in (SERVER, 500, SHARD):
        proc.ends(pid)
    assert (watch.end().server, watch.end().untold) == (None, Untold.ENDED)


def test_a_kernel_that_does_not_count_waits(proc: ProcFolder) -> None:
    (proc.path / str(SHARD) / "task" / str(SHARD)).mkdir(parents=True)
    assert HostWatch(URL, proc.path).end().untold is Untold.SYSTEM


@pytest.mark.parametrize("text", [None, "", "cpu 1 2\n", "cpu a b c d e f g h i\n", "intr 1 2\n"])
def test_a_kernel_that_does_not_say_what_was_busy(proc: ProcFolder, text: str | None) -> None:
    account = proc.path / "stat"
    account.unlink() if text is None else account.write_text(text)
    assert HostWatch(URL, proc.path).end().busy_ns is None


def test_who_listens_for_a_server_elsewhere(proc: ProcFolder) -> None:
    proc.process(500, SERVER, session=SERVER, fds=("socket:[77]",), command="docker-proxy")
    assert server_roots(URL, proc.path) is Untold.FORWARDED


@pytest.mark.parametrize(
    ("to", "holder", "why"),
    [
        ("0100007F:1F40", OTHER, Untold.FORWARDED),
        ("0100007F:1F40", SHARD, None),  # ranks of one server meet at a port
        ("0100007F:1F40", OWN, None),
        ("0100007F:1F41", OTHER, None),  # nothing that is seen listens there
        ("010200C0:1F40", OTHER, None),  # 192.0.2.1 is another machine's
    ],
    ids=["another", "its own", "the client", "unseen", "elsewhere"],
)
def test_a_proxy_is_connected_to_another_server(
    proc: ProcFolder, to: str, holder: int, why: Untold | None
) -> None:
    proc.process(500, SERVER, session=SERVER, fds=("socket:[77]", "socket:[99]"))
    parent = SERVER if holder == SHARD else 1
    proc.process(holder, parent, session=holder, fds=("socket:[78]",))
    proc.tcp(("0100007F:0BB8", 77), ("00000000:1F40", 78), to=to)
    assert HostWatch(URL, proc.path).end().untold is why


def test_a_proxy_is_connected_while_a_request_runs_alone(proc: ProcFolder) -> None:
    proc.process(500, SERVER, session=SERVER, fds=("socket:[77]", "socket:[99]"))
    proc.process(OTHER, 1, session=OTHER, fds=("socket:[78]",))
    listening = ("0100007F:0BB8", 77), ("00000000:1F40", 78)
    watch = HostWatch(URL, proc.path)
    proc.tcp(*listening, to="0100007F:1F40")
    watch.look()
    proc.tcp(*listening)
    assert watch.end().untold is Untold.FORWARDED


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://192.0.2.1:3000", Untold.ELSEWHERE),
        ("http://127.0.0.1:3001", Untold.UNSEEN),
        ("http://127.0.0.2:3000", Untold.UNSEEN),
    ],
)
def test_where_no_tree_is_seen(proc: ProcFolder, url: str, why: Untold) -> None:
    assert server_roots(url, proc.path) is why
    assert HostWatch(url, proc.path).end().untold is why


def test_a_server_that_is_a_thread_of_ours(proc: ProcFolder) -> None:
    proc.process(OWN, 1, session=OWN, fds=("socket:[77]",))
    assert server_roots(URL, proc.path) is Untold.OWN_PROCESS


def test_a_system_without_such_a_folder(tmp_path: Path) -> None:
    assert server_roots(URL, tmp_path / "none") is Untold.SYSTEM

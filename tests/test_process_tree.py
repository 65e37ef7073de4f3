"""Who listens, and what belongs to it: of accounts of the kernel's form, and of a real process."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.proc_folder import ProcFolder
from tgi_bench.drive.server_host import HostWatch, server_roots
from tgi_bench.process_tree import all_stats, listeners, root_of, tree

SHELL, CLIENT, LAUNCHER, ROUTER, SHARD, FREE = 100, 110, 200, 210, 220, 300
SERVER = """
import socket, subprocess, sys
listening = socket.create_server(("127.0.0.1", 0))
waits = [sys.executable, "-c", "import sys; sys.stdin.read()"]
below = subprocess.Popen(waits, stdin=subprocess.PIPE)
print(listening.getsockname()[1], below.pid, flush=True)
sys.stdin.read()
"""


def of_launcher(folder: Path, parent: int, session: int, terminal: int = 0) -> int:
    """The root of a router of that launcher, each of whose processes leads a group."""
    made = ProcFolder(folder)
    made.process(1, 0, session=1)
    made.process(50, 1, session=50)
    made.process(SHELL, 50, session=SHELL, terminal=terminal)
    made.process(CLIENT, SHELL if parent == CLIENT else 1, session=SHELL, group=CLIENT)
    made.process(LAUNCHER, parent, session=session, group=LAUNCHER, terminal=terminal)
    made.process(ROUTER, LAUNCHER, session=session, group=ROUTER, terminal=terminal)
    made.process(SHARD, LAUNCHER, session=session, group=SHARD, terminal=terminal)
    stats = all_stats(folder)
    root = root_of(ROUTER, stats, CLIENT)
    if root == LAUNCHER:
        assert tree([root], stats) == {LAUNCHER, ROUTER, SHARD}
    return root


@pytest.mark.parametrize(
    ("parent", "session", "terminal"),
    [
        (1, LAUNCHER, 0),  # a container's first process's child, a service of systemd
        (SHELL, LAUNCHER, 0),  # a supervisor gives it a session
        (SHELL, SHELL, 34816),  # a job of a shell at a terminal
        (CLIENT, LAUNCHER, 0),  # started by the client
        (CLIENT, SHELL, 0),
    ],
)
def test_the_launcher_is_the_root(tmp_path: Path, parent: int, session: int, terminal: int) -> None:
    assert of_launcher(tmp_path, parent, session, terminal) == LAUNCHER


def test_the_script_that_started_it_belongs_to_it(tmp_path: Path) -> None:
    assert of_launcher(tmp_path, SHELL, SHELL) == SHELL


def test_a_script_that_started_both_does_not(tmp_path: Path) -> None:
    made = ProcFolder(tmp_path)
    made.process(SHELL, 50, session=SHELL)
    made.process(CLIENT, SHELL, session=SHELL)
    made.process(LAUNCHER, SHELL, session=SHELL)
    assert root_of(LAUNCHER, all_stats(tmp_path), CLIENT) == LAUNCHER


@pytest.mark.parametrize(
    ("table", "at", "address", "found"),
    [
        ("tcp", "0100007F:0BB8", "127.0.0.1", True),
        ("tcp", "00000000:0BB8", "127.0.0.1", True),
        ("tcp", "0200007F:0BB8", "127.0.0.1", False),
        ("tcp", "0100007F:0BB9", "127.0.0.1", False),
        ("tcp6", "00000000000000000000000000000000:0BB8", "127.0.0.1", True),
        ("tcp6", "00000000000000000000000001000000:0BB8", "::1", True),
        ("tcp6", "0000000000000000FFFF00000100007F:0BB8", "127.0.0.1", True),
    ],
)
@pytest.mark.skipif(sys.byteorder == "big", reason="the table is of a machine of the other order")
def test_addresses_as_the_kernel_writes_them(
    tmp_path: Path, table: str, at: str, address: str, found: bool
) -> None:
    made = ProcFolder(tmp_path)
    made.process(ROUTER, 1, session=ROUTER, fds=("/dev/null", "socket:[77]"))
    made.process(FREE, 1, session=FREE, fds=("socket:[99]", "pipe:[77]"))
    made.tcp((at, 77), table=table)
    holders = listeners([address], 3000, [ROUTER, FREE, 4], tmp_path)
    assert holders == (frozenset({ROUTER}) if found else frozenset())


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_real_process_and_what_it_started() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        port, below = map(int, server.stdout.readline().split())
        for host in ("127.0.0.1", "localhost"):
            assert server_roots(f"http://{host}:{port}") == (server.pid,)
        assert tree([server.pid], all_stats()) == {server.pid, below}
        seen = HostWatch(f"http://127.0.0.1:{port}").end()
        assert seen.untold is None
        assert seen.server is not None
        assert (seen.server.processes, seen.server.threads) == (2, 2)
        server.communicate("")
    with socket.create_server(("127.0.0.1", 0)) as ours:
        url = f"http://127.0.0.1:{ours.getsockname()[1]}"
        assert HostWatch(url).end().server is None

"""A server's process: ready, failed, stopped; nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.launch import servers
from tgi_bench.ask import contact
from tgi_bench.dialects.identity import asked_by, info_of
from tgi_bench.dialects.metrics import capacity_of
from tgi_bench.engines.engine import Engine, engine_spec
from tgi_bench.errors import LaunchError
from tgi_bench.launch import child as child_module
from tgi_bench.launch.child import ServerProcess
from tgi_bench.launch.launcher import silent
from tgi_bench.launch.left_behind import ProcessName
from tgi_bench.launch.log import LogFile, listening_on
from tgi_bench.launch.readiness import ServerProbe, wait_until_ready
from tgi_bench.launch.secrets import Redactor
from tgi_bench.plan.plan import Timeouts


def url_of(lines: Sequence[str]) -> str | None:
    address = listening_on(lines)
    return None if address is None else f"http://{address}"


def ready(server: ServerProcess) -> str:
    probe = ServerProbe(engine_spec(Engine.TGI), "m", url_of)
    return wait_until_ready(server, probe, Timeouts(20, 20, 20, 20), silent)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_ready_then_stopped(tmp_path: Path) -> None:
    with ServerProcess(servers.command(tmp_path, servers.READY + servers.SERVE)) as server:
        url = ready(server)
        assert server.alive()
        assert server.death() is None
        assert info_of(asked_by(contact(url))).version == "3.3.7"
        assert capacity_of(contact(url)) == 12345
        assert info_of(asked_by(contact(f"{url}/x"))).version is None
        assert capacity_of(contact(f"{url}/x")) is None
        environ = Path(f"/proc/{server.pid}/environ").read_text()
        assert "TGI_BENCH_RUN=20261121T102233Z-0a1b2c\0" in environ
        assert f"TGI_BENCH_OWNER={ProcessName.own()}" in environ
    assert not server.alive()
    assert ProcessName.of(server.pid) is None
    assert info_of(asked_by(contact(url))).version is None
    server.stop()


@pytest.mark.parametrize(
    ("script", "cause"),
    [
        ("print('Error: ShardCannotStart'); exit(1)", "it ended with: ShardCannotStart"),
        ("exit(0)", "it ended: exit code 0"),
        ("import os; os.kill(os.getpid(), 9)", "it ended: killed (signal 9)"),
        ("import os; os.write(1, bytes(range(256)) * 9); exit(3)", "it ended: exit code 3"),
        ("print('Listening on 127.0.0.1:99999'); exit(4)", "it ended: exit code 4"),
        (
            "print('RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0)');"
            "print('Error: ShardFailed'); exit(1)",
            "CUDA out of memory. Tried to allocate 2.00 GiB (exit code 1)",
        ),
    ],
)
def test_a_server_that_ends(tmp_path: Path, script: str, cause: str) -> None:
    with (
        ServerProcess(servers.command(tmp_path, script)) as server,
        pytest.raises(LaunchError) as caught,
    ):
        ready(server)
    assert cause in str(caught.value)


def test_the_last_50_lines_are_told(tmp_path: Path) -> None:
    script = "for i in range(80): print('line', i)"
    with (
        ServerProcess(servers.command(tmp_path, script)) as server,
        pytest.raises(LaunchError) as caught,
    ):
        ready(server)
    assert caught.value.log_tail == tuple(f"line {i}" for i in range(30, 80))


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    command = child_module.Command(
        ("no-such-program",), {}, tmp_path / "x.log", "run", Redactor((), {})
    )
    with ServerProcess(command) as server, pytest.raises(LaunchError, match="exit code 127"):
        ready(server)


def test_one_that_ignores_sigterm_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_module, "_TERM_WAIT_UNREADY_S", 0.2)
    script = servers.IGNORE_TERM + "import os\nchild = os.fork()\n"
    script += "if child: print(child, flush=True)\n" + servers.SLEEP
    with ServerProcess(servers.command(tmp_path, script)) as server:
        wait_for(lambda: bool(server.log.lines()))
        child = int(server.log.lines()[0])
        assert ProcessName.of(child) is not None
    assert ProcessName.of(server.pid) is None
    wait_for(lambda: ProcessName.of(child) is None)


STOPS_SLOWLY = """
import signal, sys, time
def stop(*_):
    print("stopping", flush=True)
    time.sleep({seconds})
    print("stopped in good order", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
"""


def test_a_ready_one_may_take_as_long_to_stop_as_real_launchers_do(tmp_path: Path) -> None:
    """5.5 s were seen of one that was idle."""
    script = STOPS_SLOWLY.format(seconds=6) + servers.READY + servers.SERVE
    with ServerProcess(servers.command(tmp_path, script)) as server:
        ready(server)
        server.became_ready()
    assert server.log.lines()[-2:] == ("stopping", "stopped in good order")


def test_a_second_interrupt_ends_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_module, "_TERM_WAIT_S", 600.0)
    script = STOPS_SLOWLY.format(seconds=600) + servers.READY + servers.SERVE
    server = ServerProcess(servers.command(tmp_path, script))
    ready(server)
    server.became_ready()
    watching = threading.Thread(target=_interrupt_while_stopping, args=(server,))
    watching.start()
    with pytest.raises(KeyboardInterrupt):
        server.stop()
    watching.join()
    assert ProcessName.of(server.pid) is None
    assert not server.alive()


def _interrupt_while_stopping(server: ServerProcess) -> None:
    wait_for(lambda: "stopping" in LogFile(server.log.path, 0).lines())
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def test_starts_are_appended_and_numbered(tmp_path: Path) -> None:
    for number in (1, 2):
        with ServerProcess(servers.command(tmp_path, f"print('start', {number}, end='')")) as s:
            wait_for(lambda: not s.alive())
            assert s.log.lines() == (f"start {number}",)
    assert (tmp_path / "launch" / "default.log").read_text().splitlines() == [
        "# tgi-bench: start 1",
        "start 1",
        "# tgi-bench: start 2",
        "start 2",
    ]


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "launch").write_text("")
    with pytest.raises(LaunchError, match="cannot be written"):
        ServerProcess(servers.command(tmp_path, ""))


def test_a_server_ends_with_its_parent(tmp_path: Path) -> None:
    parent_script = (
        "import sys, time; from pathlib import Path; from tests.launch import servers\n"
        "from tgi_bench.launch.child import ServerProcess\n"
        "s = ServerProcess(servers.command(Path(sys.argv[1]), 'print(1, flush=True);' + "
        "servers.SLEEP.replace(chr(10), ';')))\n"
        "while not s.log.lines(): time.sleep(0.01)\n"
        "print(s.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent_script, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(servers.ROOT)},
    ) as parent:
        assert parent.stdout is not None
        server = ProcessName.of(int(parent.stdout.readline()))
        assert server is not None
        os.kill(parent.pid, signal.SIGKILL)
    wait_for(lambda: not server.lives())

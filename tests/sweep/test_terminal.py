"""What a terminal sends to everything that runs in it, and one that is closed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.sweep.experiments import only_run, write
from tests.sweep.loads import write as write_loads
from tests.sweep.processes import LIMIT_S, PROGRAM, Tool
from tgi_bench.load_observation import LoadStage
from tgi_bench.record.store import RunStore

LONG: dict[str, object] = {"concurrency": 2, "duration": "60s", "warmup": 0}


def started(
    tool: Tool, file: Path, before: Callable[[], object], output: int
) -> subprocess.Popen[bytes]:
    """A sweep that leads a session of its own; before: what it does first."""
    return subprocess.Popen(
        [*PROGRAM, "sweep", str(file), "--results", str(tool.results)],
        env=tool.environ(),
        cwd=tool.folder,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        preexec_fn=before,
    )


def recorded(tool: Tool, name: str, table: str) -> Path:
    """The run's folder, once that table has a row."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        for file in (tool.results / name).glob("*/run.db"):
            with RunStore.open(file, writable=False) as store:
                rows = store._connection.execute(f"SELECT count(*) FROM {table}").fetchone()
            if rows[0]:
                return file.parent
        time.sleep(0.05)
    raise AssertionError(f"nothing in {table}")


@contextmanager
def shown(master: int) -> Iterator[None]:
    """A terminal that shows what is written to it: one that does not lets its writer wait."""
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            if select.select([master], [], [], 0.05)[0]:
                os.read(master, 1 << 16)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT, signal.SIGHUP])
def test_a_signal_for_the_whole_group(tool: Tool, number: signal.Signals) -> None:
    """As of Ctrl-C and Ctrl-\\ : the load client's processes leave it to the sweep."""
    file = write_loads(tool.folder, LONG)
    log = tool.folder / "output"
    with log.open("wb") as stream, started(tool, file, os.setsid, stream.fileno()) as process:
        run_dir = recorded(tool, "loads", "requests")
        os.killpg(process.pid, number)
        process.wait(LIMIT_S)
    said = log.read_text(encoding="utf-8")
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert "ended early" not in said
    assert tool.left() == {}
    with RunStore.open(run_dir, writable=False) as store:
        (stage,) = tuple(store.seen(store.header().plan.load_trials[0].trial_id, LoadStage))
    assert stage.cut_off == "interrupted"
    assert (run_dir / "report.md").exists()


def test_a_terminal_that_is_closed(tool: Tool) -> None:
    """Not even the summary can be printed any more: the report is written all the same."""
    file = write(tool.folder, batches={"runs": 200, "batch_size": [1]})
    master, slave = os.openpty()
    with started(tool, file, lambda: os.login_tty(slave), slave) as process:
        os.close(slave)
        with shown(master):
            run_dir = recorded(tool, "small", "steps")
        os.close(master)
        process.wait(LIMIT_S)
    assert process.returncode == 130
    assert tool.left() == {}
    assert "not finished" in (run_dir / "report.md").read_text(encoding="utf-8")


def test_nohup_is_heeded(tool: Tool) -> None:
    file = write(tool.folder)

    def without_hangup() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    log = tool.folder / "output"
    with log.open("wb") as stream, started(tool, file, without_hangup, stream.fileno()) as process:
        recorded(tool, "small", "steps")
        process.send_signal(signal.SIGHUP)
        process.wait(LIMIT_S)
    assert process.returncode in (0, 3), log.read_text()
    with RunStore.open(only_run(tool.results), writable=False) as store:
        assert store.finished()

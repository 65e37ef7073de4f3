"""A log that cannot be written any more stops no server."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from tests.launch import servers
from tests.launch.test_process import wait_for
from tgi_bench.errors import NotRecordedError
from tgi_bench.launch import child
from tgi_bench.launch.child import Pump, ServerProcess
from tgi_bench.launch.secrets import Redactor

FULL = Path("/dev/full")
NOTHING = Redactor((), {})


def test_what_comes_is_read_on_and_dropped() -> None:
    pump = Pump(FULL, NOTHING)
    for _ in range(64):  # more than a pipe holds
        os.write(pump.inlet, b"a line of the server\n" * 1000)
    pump.stop(20)
    assert pump.drained(0)
    assert pump.failure == "/dev/full cannot be written: No space left on device"


def test_a_server_without_a_log_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its address, its readiness and its failures are known by it."""
    command = servers.command(tmp_path, "print('x', flush=True)\n" + servers.SLEEP)
    monkeypatch.setattr(child, "_pump", lambda _command: Pump(FULL, NOTHING))
    with ServerProcess(command) as server:
        wait_for(lambda: not server.alive())
        death = server.death()
        assert death is not None
        assert death.cause == "/dev/full cannot be written: No space left on device"


def test_a_start_that_cannot_be_numbered_is_not_recorded(tmp_path: Path) -> None:
    """A trial that ends for it would not be tried again where there is room."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(NotRecordedError, match="cannot be written: File too large"):
            child.number_start(tmp_path / "launch" / "a.log")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

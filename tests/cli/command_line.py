"""The command line inside the test's process."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tgi_bench.cli.main import main


@dataclass(frozen=True, slots=True)
class Ended:
    """How it ended and what it printed."""

    code: object
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class CommandLine:
    """`tgi-bench` with the arguments of a call; an exception that is no message passes on."""

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str | Path) -> Ended:
        self.monkeypatch.setattr(sys, "argv", ["tgi-bench", *map(str, arguments)])
        before = signal.getsignal(signal.SIGTERM)
        code: object = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code
        finally:
            signal.signal(signal.SIGTERM, before)
        printed = self.capsys.readouterr()
        return Ended(code, printed.out, printed.err)

    def refused(self, *arguments: str | Path) -> str:
        """The message of an exit with 2, which prints nothing else."""
        ended = self(*arguments)
        assert ended.code == 2, ended
        assert "Traceback" not in ended.stderr
        assert ended.stdout == ""
        assert ended.stderr.endswith("\n")
        assert ended.stderr.strip()
        return ended.stderr


@pytest.fixture
def tgi_bench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capsys)

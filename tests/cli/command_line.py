"""The command line inside the test's process."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tgi_bench.cli.main import main

_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


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
        before = {number: signal.getsignal(number) for number in _ENDING}
        code: object = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
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

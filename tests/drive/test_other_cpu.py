"""The CPU that others took, from an account of the kernel's form."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tgi_bench.drive import other_cpu
from tgi_bench.drive.other_cpu import MachineCpu

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def test_what_is_busy_and_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    account = tmp_path / "stat"
    monkeypatch.setattr(other_cpu, "_FILE", account)
    account.write_text("cpu  1 2 3 1000 50 4 5 6 100 100\ncpu0 1 1 1 1 1 1 1 1\n")
    before = MachineCpu.now()
    assert before.busy_ns == (1 + 2 + 3 + 4 + 5 + 6) * TICK_NS
    account.write_text("cpu  101 2 3 9000 99 4 5 6 100 100\n")
    moments = iter([before.at_ns + 200 * TICK_NS] * 3)
    monkeypatch.setattr("tgi_bench.drive.other_cpu.time.monotonic_ns", lambda: next(moments))
    cores = os.cpu_count()
    assert before.others_since((20 * TICK_NS, 30 * TICK_NS)) == f"0.25 of {cores} cores"
    assert before.others_since((100 * TICK_NS, TICK_NS)) == f"0.00 of {cores} cores"


@pytest.mark.parametrize("text", [None, "", "cpu 1 2\n", "cpu a b c d e f g h i\n", "intr 1 2\n"])
def test_a_kernel_that_does_not_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    monkeypatch.setattr(other_cpu, "_FILE", tmp_path / "stat")
    if text is not None:
        (tmp_path / "stat").write_text(text)
    now = MachineCpu.now()
    assert now.busy_ns is None
    assert now.others_since(()) is None

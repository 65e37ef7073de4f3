"""`tgi-bench report --format csv`: which tables, and the files that they go to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.report.example import simulated_run
from tests.report.load_example import load_run, mixed_run
from tgi_bench.analysis.run import Run
from tgi_bench.cli import report_command
from tgi_bench.report.documents import as_csv, estimates_csv, loads_csv


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (simulated_run(), {"run.csv": as_csv(simulated_run())}),
        (load_run(), {"loads.csv": loads_csv(load_run())}),
        (mixed_run(), {"run.csv": as_csv(mixed_run()), "loads.csv": loads_csv(mixed_run())}),
    ],
)
def test_csv(
    run: Run,
    expected: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(report_command, "load", lambda path: run)
    assert report_command.run(tmp_path, "csv", None) == 0
    # An empty line between two tables.
    assert capsys.readouterr().out == "\n".join(expected.values())
    assert report_command.run(tmp_path, "csv", tmp_path / "out") == 0
    files = {p.name: p.read_text(encoding="utf-8") for p in (tmp_path / "out").iterdir()}
    # Of batches there are estimates too, in a file of their own.
    assert files.pop("estimates.csv", "") == estimates_csv(run)
    assert files == expected

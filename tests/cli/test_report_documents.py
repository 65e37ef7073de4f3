"""`tgi-bench report --format csv`: which tables, and the files that they go to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analysis.task_samples import whole_run
from tests.cli.command_line import CommandLine
from tests.report.example import simulated_run
from tests.report.load_example import load_run, mixed_run
from tgi_bench.analysis.run import Run
from tgi_bench.cli import report_command
from tgi_bench.cli.report_command import ReportOptions
from tgi_bench.errors import InputError
from tgi_bench.kinds.batch.columns import as_csv
from tgi_bench.kinds.batch.estimated_measured import estimates_csv
from tgi_bench.kinds.direct.columns import tasks_csv
from tgi_bench.kinds.load.columns import loads_csv
from tgi_bench.kinds.load.goals import slos_csv


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (simulated_run(), {"run.csv": as_csv(simulated_run())}),
        (load_run(), {"loads.csv": loads_csv(load_run())}),
        (whole_run(), {"tasks.csv": tasks_csv(whole_run())}),
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
    assert report_command.run([tmp_path], ReportOptions("csv", None, None)) == 0
    # An empty line between two tables.
    assert capsys.readouterr().out == "\n".join(expected.values())
    assert report_command.run([tmp_path], ReportOptions("csv", None, tmp_path / "out")) == 0
    files = {p.name: p.read_text(encoding="utf-8") for p in (tmp_path / "out").iterdir()}
    # Of batches there are estimates too, and of loads what they had to meet, in files of their own.
    assert files.pop("estimates.csv", "") == estimates_csv(run)
    assert files.pop("slos.csv", "") == slos_csv(run)
    assert files == expected


def test_several_runs_share_a_layout_only(tmp_path: Path, tgi_bench: CommandLine) -> None:
    assert "add --layout bigcode" in tgi_bench.refused("report", tmp_path, tmp_path)
    both = ("--layout", "h2ogpt", "--format", "csv")
    assert "no run.db" in tgi_bench.refused("report", tmp_path, *both)


def test_a_layout_is_markdown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(report_command, "load", lambda path: whole_run())
    with pytest.raises(InputError, match="leave --format csv out"):
        report_command.run([tmp_path], ReportOptions("csv", "bigcode", None))

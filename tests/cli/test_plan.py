"""What `plan` says beside its tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine
from tests.sweep.experiments import write


def lines(tgi_bench: CommandLine, folder: Path, *settings: str) -> list[str]:
    options = [word for setting in settings for word in ("--set", setting)]
    ended = tgi_bench("plan", write(folder), *options)
    assert ended.code == 0, ended
    return ended.stdout.splitlines()


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("model=org/unknown", "unknown model 'org/unknown'"),
        ("server.embedded.accelerator=abacus", "unknown accelerator 'abacus'"),
        ("server.variable.num_shard=[3]", "num_shard 3 does not divide the 16 heads"),
    ],
)
def test_what_the_embedded_server_cannot_start(
    tgi_bench: CommandLine, tmp_path: Path, setting: str, why: str
) -> None:
    said = lines(tgi_bench, tmp_path, setting)
    assert any(line.startswith(f"cannot start: {why}") for line in said), said
    assert not any(line.startswith("no estimate") for line in said)
    process = lines(tgi_bench, tmp_path, setting, "server.launcher=process")
    assert any(line.startswith(f"no estimate: {why}") for line in process), process


def test_a_newer_version_than_the_newest_known(tgi_bench: CommandLine, tmp_path: Path) -> None:
    settings = ("server.version=9.9.9", "server.launcher=process")
    said = "\n".join(lines(tgi_bench, tmp_path, *settings))
    assert "9.9.9 (newer than 3.3.7, whose arguments are taken)" in said
    assert "newer" not in "\n".join(lines(tgi_bench, tmp_path, "server.version=3.3.7"))


def test_one_of_each_has_no_s(tgi_bench: CommandLine, tmp_path: Path) -> None:
    settings = ("batches.batch_size=1", "batches.sequence_length=16", "server.variable={}")
    assert "1 deployment, 1 trial" in lines(tgi_bench, tmp_path, *settings)
    assert "2 deployments, 8 trials" in lines(tgi_bench, tmp_path)


def test_a_skip_entry_that_leaves_out_nothing(tgi_bench: CommandLine, tmp_path: Path) -> None:
    said = lines(tgi_bench, tmp_path, "server.skip=[{num_shard: 2}, {num_shard: 8}]")
    assert [line for line in said if line.startswith("skip")] == [
        "skip entry 2 matches no combination"
    ]


@pytest.mark.parametrize("width", [80, 119, 120, 400])
def test_no_figure_is_cropped_on_a_terminal_of_80_columns(
    tgi_bench: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr("tgi_bench.cli.console._WIDTH_OF_A_FILE", width)
    settings = ("model=bigscience/bloom", "batches.sequence_length=20000", "batches.runs=100")
    said = lines(tgi_bench, tmp_path, *settings)
    assert "\u2026" not in "".join(said)
    assert any("NO: memory" in line for line in said)

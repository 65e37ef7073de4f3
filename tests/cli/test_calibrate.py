"""`tgi-bench calibrate`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine
from tests.launch.deployments import embedded
from tgi_bench.estimate.calibration import find, parse
from tgi_bench.published.command import keep, read

GOLDEN = Path(__file__).parents[1] / "golden"


def imported(tgi_bench: CommandLine, results: Path, name: str) -> Path:
    ended = tgi_bench("import", GOLDEN / name, "--results", results)
    assert ended.code == 0, ended
    [run] = (results / Path(name).stem).iterdir()
    return run


def simulated(results: Path) -> Path:
    """As pages of simulated runs were imported once."""
    name = "published_tgi_bloomz-7b1-mt.md"
    found = read((GOLDEN / name).read_text(encoding="utf-8"), name)
    servers = tuple(
        replace(
            deployment,
            launcher=embedded(),
            accelerator="A100-40GB-SXM",
        )
        for deployment in found.plan.deployments
    )
    return keep(replace(found, plan=replace(found.plan, deployments=servers)), name, results)


def test_the_published_table_of_torchcap(tgi_bench: CommandLine, tmp_path: Path) -> None:
    run = imported(tgi_bench, tmp_path, "published_torchcap_2025-04-13.rst")
    file = tmp_path / "mine.yaml"
    ended = tgi_bench("calibrate", run, "-o", file)
    assert ended.code == 0, ended
    assert "transformers forward pass with loss on RTX-A5000" in ended.stdout
    assert "12 left out: several devices" in ended.stdout
    assert "share of the data sheet's peak" in ended.stdout
    assert "one point left out" in ended.stdout
    found = {c.accelerator: c for c in parse(file.read_text(encoding="utf-8"), "mine.yaml")}
    assert set(found) == {"RTX-A5000", "RTX-A6000"}
    for name, calibration in found.items():
        known = find(name, calibration.stack)
        assert known is not None
        assert calibration.source.startswith("imported run published_torchcap_2025-04-13/")
        assert dict(calibration.fitted) == pytest.approx(dict(known.fitted), rel=1e-3)
    assert "exists" in tgi_bench.refused("calibrate", run, "-o", file)


def test_few_measurements_of_one_gpu_are_left_out(tgi_bench: CommandLine, tmp_path: Path) -> None:
    run = imported(tgi_bench, tmp_path, "published_h2ogpt.md")
    ended = tgi_bench("calibrate", run)
    assert ended.code == 0, ended
    assert (
        "not calibrated: transformers 4.30 generate on RTX-4090: too few measurements for a "
        "calibration: 3 for 4 constants" in ended.stdout
    )
    assert "not kept: give -o FILE" in ended.stdout


def test_simulated_runs_are_refused_or_say_so(tgi_bench: CommandLine, tmp_path: Path) -> None:
    run = simulated(tmp_path)
    assert "is simulated: its times are an estimate's" in tgi_bench.refused("calibrate", run)
    file = tmp_path / "mine.yaml"
    ended = tgi_bench("calibrate", run, "--simulated-ok", "--fit", "dispatch_s", "-o", file)
    assert ended.code == 0, ended
    [calibration] = parse(file.read_text(encoding="utf-8"), "mine.yaml")
    assert "SIMULATED: fitted to an estimate's own times" in calibration.source
    assert "SIMULATED" in ended.stdout


def test_bad_input(tgi_bench: CommandLine, tmp_path: Path) -> None:
    run = imported(tgi_bench, tmp_path, "published_torchcap_2025-04-13.rst")
    for arguments, message in (
        (("--fit", "speed"), "unknown constant 'speed'; known: compute_efficiency"),
        (("--fit", "step_s,step_s"), "each once"),
        (("--fit", "step_s,dispatch_s,choice_dispatch_s"), "singular fit"),
        (("--accelerator", "abacus"), "unknown accelerator 'abacus'"),
    ):
        said = tgi_bench.refused("calibrate", run, *arguments)
        assert message in said
        assert said.count("\n") == 1
    assert "no such" in tgi_bench.refused("calibrate", tmp_path / "nowhere")
    assert tgi_bench("calibrate").code == 2

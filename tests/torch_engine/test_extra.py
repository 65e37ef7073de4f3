"""Without the extra: one sentence; and nothing that is light imports torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tgi_bench.cli.output import BAD_INPUT
from tgi_bench.errors import InputError
from tgi_bench.torch_engine import spec

LIGHT = """
import sys
from click.testing import CliRunner
from tgi_bench.cli.main import cli
import tgi_bench.server.launcher, tgi_bench.server.shard, tgi_bench.server.router.app
import tgi_bench.torch_engine.spec, tgi_bench.sweep
for words in ({words!r}):
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 0, result.output
heavy = [name for name in ("torch", "transformers", "accelerate") if name in sys.modules]
assert not heavy, heavy
"""

EXPERIMENT = """
experiment: light
model: bigscience/bloomz-1b1
server:
  launcher: embedded
  version: 3.3.7
  embedded: {engine: transformers, random_weights: true, device: cpu}
batches: {sequence_length: 16, decode_length: 4, batch_size: [1], runs: 1}
"""


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spec, "find_spec", lambda name: None if name != "accelerate" else name)
    with pytest.raises(InputError) as caught:
        spec.require_extra()
    assert str(caught.value) == (
        "the transformers engine needs torch and transformers, not installed here: "
        "pip install 'tgi-bench[transformers]'"
    )


def test_another_major_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spec, "find_spec", lambda name: name)
    monkeypatch.setattr(spec, "version", lambda name: "5.0.1")
    with pytest.raises(InputError, match=r"needs transformers 4, not 5\.0\.1: pip install"):
        spec.require_extra()


@pytest.mark.parametrize("command", ["serve", "sweep"])
def test_the_command_line_says_so(tmp_path: Path, command: str) -> None:
    """In a Python where these packages cannot be found."""
    experiment = tmp_path / "light.yaml"
    experiment.write_text(EXPERIMENT, encoding="utf-8")
    words = {
        "serve": ["serve", "--engine", "transformers", "--model-id", "some/model"],
        "sweep": ["sweep", str(experiment), "--results", str(tmp_path / "results")],
    }[command]
    script = (
        "import tgi_bench.torch_engine.spec as spec, sys\n"
        "spec.find_spec = lambda name: None\n"
        "from tgi_bench.cli.main import main\n"
        f"sys.argv = ['tgi-bench', *{words!r}]\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == BAD_INPUT
    assert "pip install 'tgi-bench[transformers]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "results").exists()


def test_plan_and_help_stay_light(tmp_path: Path) -> None:
    experiment = tmp_path / "light.yaml"
    experiment.write_text(EXPERIMENT, encoding="utf-8")
    words = [["--help"], ["serve", "--help"], ["plan", str(experiment)]]
    done = subprocess.run(
        [sys.executable, "-c", LIGHT.format(words=words)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

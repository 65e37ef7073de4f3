"""Direct mode on the command line, as far as it needs no model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine
from tgi_bench.torch_engine import spec

EXPERIMENT = """\
experiment: direct
backend: transformers
model: org/model
transformers: {device: cuda, dtype: [bf16, 4bit], layer_split: 2}
generate: {prompt_tokens: 9, new_tokens: 100, batch_size: [8, 1], find_batch: {}}
summarize: {file: notes.txt}
"""
ROOT = Path(__file__).parents[2]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "direct.yaml"
    made.write_text(EXPERIMENT, encoding="utf-8")
    (tmp_path / "notes.txt").write_text("Some notes.", encoding="utf-8")
    return made


def test_the_plan_shows_every_trial(tgi_bench: CommandLine, file: Path) -> None:
    ended = tgi_bench("plan", file)
    assert ended.code == 0
    lines = [" ".join(line.split()) for line in ended.stdout.splitlines()]
    assert lines[:2] == ["experiment direct", "model org/model"]
    assert "model 1/2 bf16+layer_split-2" in lines
    assert "transformers, 4bit, CUDA, layers split over 2 devices" in lines
    assert lines.count("generate 9 100 8 1 1+5") == 2
    assert lines.count("generate 9 100 1 to OOM, at most 65536 1 1+5") == 2
    assert lines.count("summarize notes.txt 64, 128 1 map + reduce 1+3") == 2
    assert "2 models, 8 trials" in lines


def test_a_document_that_is_not_there(tgi_bench: CommandLine, file: Path) -> None:
    (file.parent / "notes.txt").unlink()
    for command in ("plan", "sweep"):
        expected = "tgi-bench: notes.txt: no such document file (summarize.file)\n"
        assert tgi_bench.refused(command, file) == expected


def test_a_missing_extra_is_one_sentence(
    tgi_bench: CommandLine, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spec, "find_spec", lambda name: None)
    said = tgi_bench.refused("sweep", file)
    assert said.count("\n") == 1
    assert "pip install 'tgi-bench[transformers]'" in said
    assert not (file.parent / "results").exists()


def test_the_plan_imports_no_torch(file: Path) -> None:
    program = (
        "import sys; from tgi_bench.cli.main import cli; "
        f"cli.main(['plan', {str(file)!r}], standalone_mode=False); "
        "assert not {'torch', 'transformers', 'numpy'} & set(sys.modules)"
    )
    environ = {"PYTHONPATH": str(ROOT), "PATH": ""}
    words = [sys.executable, "-c", program]
    ended = subprocess.run(words, env=environ, cwd=file.parent, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr.decode()


def test_a_server_is_of_no_use_to_direct_mode(tgi_bench: CommandLine, file: Path) -> None:
    said = tgi_bench.refused("plan", file, "--launcher", "embedded")
    assert "--launcher embedded" in said

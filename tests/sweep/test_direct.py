"""Direct mode from the command line: a real model on the CPU, its reports, its layouts, resume."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.sweep.processes import Tool, kill, read_until, rest_of
from tests.torch_engine.needs_torch import needs_torch
from tests.torch_engine.tiny import write_config
from tgi_bench.cli.run_view import load
from tgi_bench.kinds.direct.figures import DirectRecord, TaskSummary
from tgi_bench.observation import Outcome
from tgi_bench.published.direct import generate_entries, summary_entries
from tgi_bench.record.store import RunStore
from tgi_bench.task_observation import TaskRun

pytestmark = needs_torch

EXPERIMENT = """\
experiment: direct
backend: transformers
model: {model}
transformers:
  random_weights: true
  device: cpu
  dtype: [fp32, bf16]
generate:
  prompt_tokens: 8
  new_tokens: 6
  batch_size: [1, 4]
  runs: 3
summarize:
  document_tokens: 50
  chunk_tokens: 32
  map_new_tokens: 8
  reduce_new_tokens: 8
"""
MEMORY = """\
experiment: memory
backend: transformers
model: {model}
transformers:
  random_weights: true
  device: cpu
  dtype: fp32
  memory_limit: 1536m
generate:
  prompt_tokens: 2
  new_tokens: 2
  batch_size: [1, 16384, 32768]
  find_batch: {{start: 8192, highest: 16384, tolerance: 1}}
  runs: 1
  warmups: 0
"""


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    return Tool(tmp_path)


def written(tool: Tool, text: str, **changes: object) -> Path:
    model = write_config(tool.folder / "model", "llama", **changes)
    file = tool.folder / "direct.yaml"
    file.write_text(text.format(model=model), encoding="utf-8")
    return file


def run_dir_of(tool: Tool, experiment: str = "direct") -> Path:
    (found,) = (tool.results / experiment).iterdir()
    return found


@pytest.mark.long
def test_a_sweep_and_both_layouts(tool: Tool) -> None:
    file = written(tool, EXPERIMENT)
    planned = tool.run("plan", file)
    assert planned.returncode == 0, planned.stderr
    assert "2 models, 6 trials" in planned.stdout
    ended = tool.sweep(file)
    # 3: on a machine that does something else meanwhile, runs need not agree.
    assert ended.returncode in (0, 3), ended.stdout + ended.stderr
    run_dir = run_dir_of(tool)
    run = load(run_dir)
    assert run.finished
    assert [t.end and t.end.outcome for t in run.of(TaskSummary)] == [Outcome.OK] * 6
    assert [f.new_tokens for t in run.of(TaskSummary) for f in t.figures] == [6, 24, 24, 6, 24, 24]
    lengths = "every run has the asked output length"
    assert [c.passed for c in run.verdict.checks if c.name == lengths] == [True]
    assert (run_dir / "report.md").read_text().startswith("# direct: ")
    assert (run_dir / "launch" / "fp32.log").exists()
    other = json.loads(tool.run("report", run_dir, "--format", "json").stdout)
    assert len(other["tasks"]) == 6
    for layout, made in (("bigcode", generate_entries), ("h2ogpt", summary_entries)):
        ended = tool.run("report", run_dir, run_dir, "--layout", layout, "--output", tool.folder)
        assert ended.returncode == 0, ended.stderr
        text = (tool.folder / f"{layout}.md").read_text()
        for entry in made(run):
            for value in entry.values:
                assert text.count(f" {value.printed} ") >= 2, (layout, value)
    assert tool.left() == {}


@pytest.mark.long
def test_out_of_memory_is_found_survived_and_searched(tool: Tool) -> None:
    """A batch of 16384 has 4 GiB of logits, of 8192 2 GiB, and 1.5 GiB are there."""
    file = written(tool, MEMORY, vocab_size=65_536)
    ended = tool.sweep(file)
    assert ended.returncode == 3, ended.stdout + ended.stderr
    run = load(run_dir_of(tool, "memory"))
    one, large, larger, search = run.of(TaskSummary)
    outcomes = [t.end and t.end.outcome for t in (one, large, larger, search)]
    skipped = [Outcome.OK, Outcome.OUT_OF_MEMORY, Outcome.SKIPPED, Outcome.OK]
    assert outcomes == skipped, ended.stdout
    assert large.end is not None
    assert "out of memory" in large.end.reason
    assert search.largest is not None
    assert search.largest.fits is not None
    assert search.largest.fits < 8192
    assert search.largest.too_large == 2 * search.largest.fits
    layout = tool.run("report", run_dir_of(tool, "memory"), "--layout", "bigcode").stdout
    assert "oom" in layout


@pytest.mark.long
def test_a_sweep_that_was_killed_is_gone_on_with(tool: Tool) -> None:
    file = written(tool, EXPERIMENT)
    with tool.started(file) as process:
        read_until(process, "[2/6]")
        kill(process)
    assert tool.left() == {}
    run_dir = run_dir_of(tool)
    with RunStore.open(run_dir, writable=False) as store:
        before = {name: tuple(store.seen(name, TaskRun)) for name in store.ends()}
    assert 2 <= len(before) < 6
    ended = tool.sweep(file, "--resume")
    assert ended.returncode in (0, 3), ended.stdout + ended.stderr
    assert run_dir_of(tool) == run_dir
    with RunStore.open(run_dir, writable=False) as store:
        assert store.finished()
        assert len(store.ends()) == 6
        for name, runs in before.items():
            assert tuple(store.seen(name, TaskRun)) == runs


def test_an_interrupted_sweep_ends_its_processes_and_reports(tool: Tool) -> None:
    file = written(tool, EXPERIMENT)
    with tool.started(file) as process:
        read_until(process, "[1/6]")
        process.send_signal(signal.SIGINT)
        output = rest_of(process)
    assert process.returncode == 130, output
    assert "go on with the same command and --resume" in output
    assert tool.left() == {}
    page = (run_dir_of(tool) / "report.md").read_text(encoding="utf-8")
    assert "the sweep is not finished" in page
    assert "not finished" in page.partition("# Trials without figures")[2]


def test_what_cannot_be_loaded_is_told_of_each_trial(tool: Tool) -> None:
    file = written(tool, EXPERIMENT)
    ended = tool.sweep(file, "--set", "model=no/such/model", "--only", "dtype=fp32")
    assert ended.returncode == 1, ended.stdout
    assert "NOT STARTED" in ended.stdout
    run = load(run_dir_of(tool))
    assert {t.end and t.end.outcome for t in run.of(TaskSummary)} == {Outcome.LAUNCH_FAILED}
    assert "no/such/model" in run.of(DirectRecord)[0].failure

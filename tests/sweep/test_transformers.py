"""A sweep of a real model on the CPU, over gRPC and HTTP, one rank and two."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.launch.deployments import transformers
from tests.sweep.experiments import only_run, outcomes
from tests.sweep.loads import requests
from tests.sweep.processes import Tool
from tests.torch_engine.needs_torch import needs_torch
from tests.torch_engine.tiny import write_config
from tgi_bench.cli.run_view import load
from tgi_bench.kinds.load.figures import LoadSummary
from tgi_bench.load_observation import RequestOutcome
from tgi_bench.observation import StepObservation
from tgi_bench.record.store import RunStore

ENDED = (0, 3)
TREE: dict[str, object] = {
    "experiment": "real",
    "server": {
        "launcher": "embedded",
        "version": "3.3.7",
        "constant": {"max_input_tokens": 48, "max_total_tokens": 64},
        "variable": {"num_shard": [1, 2]},
        "embedded": {
            "engine": "transformers",
            "device": "cpu",
            "random_weights": True,
            "weights_seed": 3,
        },
    },
    "batches": {"sequence_length": [16], "decode_length": 4, "batch_size": [1, 3], "runs": 3},
    "load": {
        "name": "few",
        "concurrency": 3,
        "requests": 12,
        "workload": {"prompt_tokens": 8, "output_tokens": 4},
    },
}


def write(folder: Path, model: Path, **changes: object) -> Path:
    file = folder / "real.yaml"
    file.write_text(yaml.safe_dump({**TREE, "model": str(model), **changes}), encoding="utf-8")
    return file


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_config(tmp_path / "model", "llama")


@needs_torch
@pytest.mark.long
def test_a_sweep_of_a_real_model(tool: Tool, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    done = tool.sweep(write(tool.folder, model))
    assert done.returncode in ENDED, done.stdout + done.stderr
    run_dir = only_run(tool.results, "real")
    assert set(outcomes(run_dir).values()) == {"ok"}
    run = load(run_dir)
    assert run.origin == "measured"
    launcher = transformers("cpu", random_weights=True, weights_seed=3)
    assert [d.deployment.launcher for d in run.deployments] == [launcher, launcher]
    assert all(d.facts is not None and not d.facts.simulated for d in run.deployments)
    report = (run_dir / "report.md").read_text(encoding="utf-8")
    assert "imulated" not in report
    assert "**Measured**" in report
    log = (run_dir / "launch" / "num_shard-2.log").read_text(encoding="utf-8")
    assert "LlamaForCausalLM" in log
    for trial in run.of(LoadSummary):
        found = requests(run_dir, trial.trial.trial_id)
        assert {r.outcome for r in found} == {RequestOutcome.OK}
        assert {r.output_tokens for r in found} == {4}
    with RunStore.open(run_dir, writable=False) as store:
        steps = tuple(store.seen("num_shard-2/s16-d4-b3", StepObservation))
    assert all([r.shard_rank for r in step.ranks] == [0, 1] for step in steps)


@needs_torch
def test_what_cannot_be_divided_is_said(tool: Tool, tmp_path: Path) -> None:
    bloom = write_config(tmp_path / "bloom", "bloom")
    done = tool.sweep(write(tool.folder, bloom), "--only", "num_shard=2")
    assert done.returncode == 1
    said = " ".join(done.stdout.split())
    assert "transformers has no tensor-parallel plan for bloom models" in said

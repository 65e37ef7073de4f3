"""Experiments whose steps take a few milliseconds, and what to expect of their runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

from tgi_bench.analysis.run import Run
from tgi_bench.cli.run_view import load
from tgi_bench.observation import Outcome, StepObservation
from tgi_bench.record.store import RunStore

NOISY_CHECKS = ("client and transport", "ranks agree", "runs of a trial agree", "the first run")
"""Parts of the names of checks that a busy machine may fail."""

_TREE = {
    "experiment": "small",
    "model": "bigscience/bloomz-1b1",
    "server": {
        "launcher": "embedded",
        "version": "0.9.4",
        "constant": {
            "max_input_length": 128,
            "max_total_tokens": 256,
            "max_batch_prefill_tokens": 256,
        },
        "variable": {"num_shard": [1, 2]},
        "embedded": {"accelerator": "H100-SXM"},
    },
    "batches": {
        "sequence_length": [64, 16],
        "decode_length": 3,
        "batch_size": [1, 2],
        "runs": 3,
    },
}


def write(folder: Path, name: str = "small", **sections: dict[str, object]) -> Path:
    """An experiment file; sections (server, batches) replace keys of the small one's."""
    tree = {key: dict(v) if isinstance(v, dict) else v for key, v in _TREE.items()}
    tree["experiment"] = name
    for section, keys in sections.items():
        old = tree[section]
        assert isinstance(old, dict)
        old.update(keys)
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(tree), encoding="utf-8")
    return file


def runs_of(results: Path, name: str = "small") -> list[Path]:
    """The run folders, oldest first."""
    return sorted((results / name).iterdir())


def only_run(results: Path, name: str = "small") -> Path:
    (run,) = runs_of(results, name)
    return run


def assert_measured(done: subprocess.CompletedProcess[str], run_dir: Path) -> Run:
    """A sweep that came to its end. 0 is VALID; 3 is only what a busy machine may do."""
    run = load(run_dir)
    noise = [c.name for c in run.verdict.checks if not c.passed]
    assert all(any(word in name for word in NOISY_CHECKS) for name in noise), noise
    assert done.returncode == (3 if noise else 0), done.stdout + done.stderr
    assert done.stderr == ""
    assert run.finished
    return run


def outcomes(run_dir: Path) -> dict[str, str]:
    """How each trial that has an end ended, without its deployment: "s64-d3-b1"."""
    with RunStore.open(run_dir, writable=False) as store:
        return {trial_id: end.outcome.value for trial_id, end in store.ends().items()}


def assert_whole(run_dir: Path) -> None:
    """Every trial has one end, and every OK trial all steps of all runs, once."""
    with RunStore.open(run_dir, writable=False) as store:
        ends, plan = store.ends(), store.header().plan
        assert list(ends) == [trial.trial_id for trial in plan.trials]
        for trial in plan.trials:
            steps = tuple(store.seen(trial.trial_id, StepObservation))
            if ends[trial.trial_id].outcome is Outcome.OK:
                assert [(o.run_index, o.step_index) for o in steps] == [
                    (run, step)
                    for run in range(trial.warmups + trial.runs)
                    for step in range(trial.decode_length)
                ]
                assert {o.outcome for o in steps} == {Outcome.OK}
        assert store.finished()

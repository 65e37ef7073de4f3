"""A sweep against the embedded server, in processes of their own, from YAML to reports."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from pathlib import Path

import pytest

from tests.sweep.experiments import (
    assert_measured,
    assert_whole,
    only_run,
    outcomes,
    runs_of,
    write,
)
from tests.sweep.processes import Tool, read_until, rest_of
from tgi_bench.observation import Phase, ServerFacts, ShardFacts, StepObservation
from tgi_bench.record.store import RunStore

OOM_SERVER: dict[str, object] = {
    "constant": {
        "max_input_length": 128,
        "max_total_tokens": 256,
        "max_batch_prefill_tokens": 256,
        "cuda_memory_fraction": 0.04,
    },
    "variable": {"num_shard": [1]},
}
OOM_BATCHES: dict[str, object] = {"sequence_length": [128, 16], "batch_size": [1, 16, 32]}


def query(run_dir: Path, sql: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(f"file:{run_dir / 'run.db'}?mode=ro", uri=True)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def test_a_sweep_writes_all_of_it(tool: Tool) -> None:
    done = tool.sweep(write(tool.folder))
    run_dir = only_run(tool.results)
    run = assert_measured(done, run_dir)
    assert_whole(run_dir)
    assert sorted(p.relative_to(run_dir).as_posix() for p in run_dir.rglob("*")) == [
        "launch",
        "launch/num_shard-1.log",
        "launch/num_shard-2.log",
        "num_shard-1.md",
        "num_shard-2.md",
        "report.md",
        "run.db",
    ]
    assert run.origin == "simulated"
    for name in ("num_shard-1.md", "num_shard-2.md", "report.md"):
        assert "simulated" in (run_dir / name).read_text(encoding="utf-8")
    for line in ("[1/8] ok", "[8/8] ok", "verdict:", f"{run_dir / 'report.md'}"):
        assert line in done.stdout
    assert "Traceback" not in done.stdout


def test_both_ranks_are_observed_and_warm_ups_are_marked(tool: Tool) -> None:
    one: dict[str, object] = {"sequence_length": [16], "batch_size": [2]}
    two: dict[str, object] = {"version": "3.3.7", "variable": {"num_shard": [2]}}
    assert_measured(tool.sweep(write(tool.folder, batches=one, server=two)), only_run(tool.results))
    with RunStore.open(only_run(tool.results), writable=False) as store:
        steps = tuple(store.seen("num_shard-2/s16-d3-b2", StepObservation))
        facts = store.facts("num_shard-2", ServerFacts)
    simulated = ShardFacts("generate.v3", ("simulated",) * 2, ("torch.float16",) * 2)
    assert facts is not None
    assert facts.shards == simulated
    assert [o.warmup for o in steps] == [True] * 3 + [False] * 9
    assert all([r.shard_rank for r in o.ranks] == [0, 1] for o in steps)
    for step in steps:
        assert all(r.total_ns is not None and r.total_ns <= step.latency_ns for r in step.ranks)
        assert (step.phase is Phase.PREFILL) == (step.step_index == 0)
        assert step.new_tokens == 2
        assert [r.requests for r in step.ranks] == [1, 1]


@pytest.mark.parametrize(
    ("version", "starts"), [("0.9.4", 1), ("2.0.4", 2), ("2.3.0", 2), ("3.3.7", 2)]
)
def test_out_of_memory_skips_larger_batches_and_a_dead_server_is_started_again(
    tool: Tool, version: str, starts: int
) -> None:
    server = {**OOM_SERVER, "version": version}
    done = tool.sweep(write(tool.folder, server=server, batches=OOM_BATCHES))
    run_dir = only_run(tool.results)
    assert_measured(done, run_dir)
    assert outcomes(run_dir) == {
        "num_shard-1/s128-d3-b1": "ok",
        "num_shard-1/s128-d3-b16": "out_of_memory",
        "num_shard-1/s128-d3-b32": "skipped",
        "num_shard-1/s16-d3-b1": "ok",
        "num_shard-1/s16-d3-b16": "ok",
        "num_shard-1/s16-d3-b32": "ok",
    }
    with RunStore.open(run_dir, writable=False) as store:
        ends = store.ends()
        failed = tuple(store.seen("num_shard-1/s128-d3-b16", StepObservation))
    assert "CUDA out of memory. Tried to allocate" in ends["num_shard-1/s128-d3-b16"].reason
    assert "batch size 16" in ends["num_shard-1/s128-d3-b32"].reason
    assert len(failed) == 1
    assert query(run_dir, "SELECT count(*) FROM starts") == [(starts,)]
    log = (run_dir / "launch" / "num_shard-1.log").read_text(encoding="utf-8")
    assert log.count("# tgi-bench: start ") == starts
    assert "OOM" in (run_dir / "num_shard-1.md").read_text(encoding="utf-8")


def test_a_server_that_does_not_start_ends_its_trials_and_not_the_sweep(tool: Tool) -> None:
    """One device has no room for the warm-up of 4096 tokens; two have."""
    server: dict[str, object] = {
        "constant": {"max_input_length": 128, "max_total_tokens": 256},
        "variable": {"cuda_memory_fraction": [0.01, 1.0]},
    }
    batches: dict[str, object] = {"sequence_length": 16, "batch_size": [1]}
    done = tool.sweep(write(tool.folder, server=server, batches=batches))
    assert done.returncode == 1
    assert "NOT STARTED" in done.stdout
    assert list(outcomes(only_run(tool.results)).values()) == ["launch_failed", "ok"]


def test_overrides_are_recorded_and_shown(tool: Tool) -> None:
    server: dict[str, object] = {
        "launcher": "docker",
        "image": "ghcr.io/huggingface/text-generation-inference:0.9.4",
        "version": None,
    }
    done = tool.sweep(
        write(tool.folder, server=server),
        "--launcher",
        "embedded",
        "--only",
        "num_shard=2",
        "--set",
        "batches.batch_size=[1]",
        "--set",
        "batches.sequence_length=16",
    )
    run_dir = only_run(tool.results)
    run = assert_measured(done, run_dir)
    recorded = {(o.key_path, o.value) for o in run.plan.overrides}
    assert {
        ("batches.batch_size", "[1]"),
        ("batches.sequence_length", "16"),
        ("server.launcher", "embedded"),
        ("only.num_shard", "2"),
    } <= recorded
    assert list(outcomes(run_dir)) == ["num_shard-2/s16-d3-b1"]
    shown = "".join(path.read_text(encoding="utf-8") for path in run_dir.glob("*.md"))
    assert "--only num_shard=2" in shown
    for key_path, value in recorded:
        assert key_path.startswith("only.") or f"{key_path}={value}" in shown
    assert not (run_dir / "num_shard-1.md").exists()


def test_plan_touches_nothing(tool: Tool) -> None:
    experiment = write(tool.folder)
    before = sorted(tool.folder.rglob("*"))
    done = tool.run("plan", experiment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 deployments, 8 trials" in done.stdout
    assert done.stdout.index("num_shard-1") < done.stdout.index("num_shard-2")
    assert sorted(tool.folder.rglob("*")) == before
    assert tool.living() == {}


def test_plan_says_what_will_not_fit(tool: Tool) -> None:
    batches: dict[str, object] = {"sequence_length": [64], "batch_size": [1, 200_000]}
    done = tool.run("plan", write(tool.folder, batches=batches))
    assert "2 trials will not fit" in done.stdout


def test_report_is_made_again(tool: Tool) -> None:
    small: dict[str, object] = {"sequence_length": [16], "batch_size": [1]}
    tool.sweep(write(tool.folder, batches=small))
    run_dir = only_run(tool.results)
    written = {p.name: p.read_text(encoding="utf-8") for p in run_dir.glob("*.md")}
    again = tool.folder / "again"
    done = tool.run("report", run_dir / "run.db", "--output", again)
    assert done.returncode == 0
    assert {p.name: p.read_text(encoding="utf-8") for p in again.iterdir()} == written
    for form in ("md", "json", "csv"):
        by_folder, by_file = (
            tool.run("report", path, "--format", form) for path in (run_dir, run_dir / "run.db")
        )
        assert by_folder.returncode == 0
        assert by_folder.stdout == by_file.stdout != ""
    document = json.loads(tool.run("report", run_dir, "--format", "json").stdout)
    assert run_dir.name in json.dumps(document)
    rows = list(csv.DictReader(io.StringIO(tool.run("report", run_dir, "--format", "csv").stdout)))
    assert len(rows) >= 2


def test_a_published_report_is_imported_and_reported(tool: Tool) -> None:
    published = Path(__file__).parent.parent / "golden" / "published_tgi_bloomz-7b1-mt.md"
    done = tool.run("import", published, "--name", "published", "--results", tool.results)
    assert (done.returncode, done.stderr) == (0, "")
    run_dir = only_run(tool.results, "published")
    assert [p.name for p in sorted(run_dir.glob("num_shard-*.md"))] == [
        f"num_shard-{n}.md" for n in (1, 2, 4, 8)
    ]
    report = tool.run("report", run_dir)
    assert report.returncode == 0
    assert "Traceback" not in report.stderr
    assert outcomes(run_dir)


def test_two_sweeps_at_once_do_not_touch_each_other(tool: Tool) -> None:
    experiment = write(tool.folder)
    with tool.started(experiment) as first:
        read_until(first, "ready")
        with tool.started(experiment) as second:
            outputs = [rest_of(first), rest_of(second)]
    assert [p.returncode in (0, 3) for p in (first, second)] == [True, True], outputs
    runs = runs_of(tool.results)
    assert len(runs) == 2
    for run_dir in runs:
        assert_whole(run_dir)
        assert set(outcomes(run_dir).values()) == {"ok"}
    assert not any("ended a server" in output for output in outputs)

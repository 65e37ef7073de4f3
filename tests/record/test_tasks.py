"""Direct mode in run.db: trials, loads of models, runs with every step."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from tests.analysis import task_samples as s
from tests.record import samples
from tgi_bench.errors import ResultsError, RunFileError
from tgi_bench.plan.plan import Plan
from tgi_bench.plan.task_trial import Dtype, FindBatch, SummarizeTask, TaskDevice
from tgi_bench.record import task_rows
from tgi_bench.record.store import RunStore

FIRST, SEARCH, SUMMARY = TRIALS = (
    s.generate(2),
    s.generate(None, find=FindBatch(1, 8, 0.1)),
    s.summarize(s.model(Dtype.INT4, device=TaskDevice.AUTO, layer_split=2, memory_limit_bytes=5)),
)
IN_FILE = replace(SUMMARY, task=SummarizeTask(None, "a b.txt", 16, 2, 4, 8), prompt_seed=2**63 - 1)


def _plan() -> Plan:
    return Plan("tasks", "org/model", (), (), (), samples.DIGEST, task_trials=TRIALS)


def _store(folder: Path) -> RunStore:
    return RunStore.create(folder, samples.header(_plan()))


def test_a_plan_with_tasks_is_read_back_equal(tmp_path: Path) -> None:
    with _store(tmp_path) as store:
        assert store.header().plan == _plan()
        assert store.header().plan.direct_models == (FIRST.model, SUMMARY.model)


@pytest.mark.parametrize("trial", [*TRIALS, IN_FILE])
def test_a_trial_is_read_back_equal(trial: object) -> None:
    assert trial in (*TRIALS, IN_FILE)
    for known in (*TRIALS, IN_FILE):
        assert task_rows.decode(task_rows.encode(known)) == known


@pytest.mark.parametrize(
    "text", ["{}", "[1]", '{"model": {}, "task": {}}', task_rows.encode(FIRST).replace("4", '"', 1)]
)
def test_what_is_no_trial(text: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        task_rows.decode(text)


def test_runs_are_read_back_equal_and_the_last_attempt_counts(tmp_path: Path) -> None:
    runs = [*s.task_runs(2)[:3], s.failed_run(s.MEMORY, 2, 0, 3)]
    with _store(tmp_path) as store:
        tasks = store.tasks
        assert tasks.begin(FIRST.trial_id) == 1
        tasks.add(FIRST.trial_id, 1, runs[:1])
        assert tasks.begin(FIRST.trial_id) == 2
        for run in runs:
            tasks.add(FIRST.trial_id, 2, [run])
        assert store.ends() == {}
        tasks.end(FIRST.trial_id, 2, s.MEMORY)
        tasks.begin(SUMMARY.trial_id)
        tasks.add(SUMMARY.trial_id, 1, s.summary_runs())
        tasks.end_unstarted(SEARCH.trial_id, s.SKIPPED)
    with RunStore.open(tmp_path, writable=False) as store:
        assert store.tasks.runs(FIRST.trial_id) == tuple(runs)
        assert store.tasks.runs(SUMMARY.trial_id) == tuple(s.summary_runs())
        assert store.tasks.runs(SEARCH.trial_id) == ()
        assert store.ends() == {FIRST.trial_id: s.MEMORY, SEARCH.trial_id: s.SKIPPED}


def test_a_trial_ends_once_and_only_where_the_plan_has_it(tmp_path: Path) -> None:
    with _store(tmp_path) as store:
        store.tasks.end_unstarted(FIRST.trial_id, s.OK)
        with pytest.raises(ResultsError, match="ended already"):
            store.tasks.begin(FIRST.trial_id)
        with pytest.raises(KeyError):
            store.tasks.begin("other")
        with pytest.raises(KeyError):
            store.tasks.add(SUMMARY.trial_id, 1, [])


def test_loads_of_models(tmp_path: Path) -> None:
    known = s.facts()
    with _store(tmp_path) as store:
        tasks = store.tasks
        assert (tasks.facts("bf16"), tasks.failure("bf16")) == (None, "")
        tasks.loaded("bf16", s.facts(device="other"))
        tasks.loaded("bf16", known)
        tasks.load_failed("4bit", "no bitsandbytes")
        assert (tasks.facts("bf16"), tasks.failure("bf16")) == (known, "")
        assert (tasks.facts("4bit"), tasks.failure("4bit")) == (None, "no bitsandbytes")
        tasks.load_failed("bf16", "no room")
        assert (tasks.facts("bf16"), tasks.failure("bf16")) == (known, "no room")


def test_the_view_of_latencies(tmp_path: Path) -> None:
    with _store(tmp_path) as store:
        store.tasks.begin(FIRST.trial_id)
        store.tasks.add(FIRST.trial_id, 1, s.task_runs(2)[1:2])
    connection = sqlite3.connect(tmp_path / "run.db")
    columns = "batch_size, call_s, prefill_ms, decode_total_ms, new_tokens, outcome"
    rows = connection.execute(f"SELECT {columns} FROM task_latencies").fetchall()
    connection.close()
    assert rows == [(2, 0.01, 6.0, 4.0, 6, "ok")]


def test_a_damaged_run_is_told(tmp_path: Path) -> None:
    with _store(tmp_path) as store:
        store.tasks.begin(FIRST.trial_id)
        store.tasks.add(FIRST.trial_id, 1, s.task_runs(2))
    connection = sqlite3.connect(tmp_path / "run.db")
    connection.execute("UPDATE task_calls SET step_ends_ns = x'00'")
    connection.commit()
    connection.close()
    with pytest.raises(RunFileError), RunStore.open(tmp_path, writable=False) as store:
        store.tasks.runs(FIRST.trial_id)

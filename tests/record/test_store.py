"""run.db: what is written is read back equal, and nothing that was written is lost."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.analysis import task_samples
from tests.launch.deployments import attach, docker, embedded, program, transformers
from tests.record import samples
from tgi_bench.devices.observation import Telemetry, without_devices
from tgi_bench.engines.arguments import arguments_of
from tgi_bench.errors import ResultsError
from tgi_bench.kinds.load.run import LoadRecording
from tgi_bench.launch.launcher import Launcher
from tgi_bench.load_observation import ClientFloor, LoadStage, RequestObservation
from tgi_bench.observation import (
    FigureKind,
    Outcome,
    PublishedEntry,
    PublishedFigures,
    PublishedMetric,
    PublishedValue,
    ServerFacts,
    StepObservation,
    TrialEnd,
)
from tgi_bench.plan.plan import ArgumentValue, Engine, Plan, Sampling, Timeouts
from tgi_bench.record.store import RunStore
from tgi_bench.task_observation import DirectFacts, TaskRun
from tgi_bench.trials.direct import Dtype, FindBatch, TaskDevice
from tgi_bench.trials.load import TraceTimes

FIRST, SECOND, THIRD = (t.trial_id for t in samples.plan().trials)
LOAD = samples.load_trial().trial_id
TASKS = (
    task_samples.generate(2),
    task_samples.generate(None, find=FindBatch(1, 8, 0.1)),
    task_samples.summarize(
        task_samples.model(Dtype.INT4, device=TaskDevice.AUTO, layer_split=2, memory_limit_bytes=5)
    ),
)
TASK = TASKS[0].trial_id
OK = TrialEnd(Outcome.OK, "")
OUT_OF_MEMORY = TrialEnd(Outcome.OUT_OF_MEMORY, "CUDA out of memory. Tried to allocate 2.00 GiB")
ROOT = Path(__file__).parents[2]


def plan() -> Plan:
    """Trials of every kind."""
    loads = (samples.load_trial(), samples.load_trial("load-trace", TraceTimes(2.0)))
    return replace(samples.plan(), load_trials=loads, task_trials=TASKS)


def stored(folder: Path) -> RunStore:
    return RunStore.create(folder, samples.header(plan()))


@dataclass(frozen=True, slots=True)
class Sort:
    """Of a kind of trial: one, and what is seen of it in two parts."""

    trial_id: str
    seen: type
    first: Sequence[object]
    second: Sequence[object]
    rows: int


SORTS = (
    Sort(FIRST, StepObservation, samples.run_of(0), samples.run_of(1, ranks=0), 3),
    Sort(LOAD, RequestObservation, [samples.request(0)], [samples.request(1, events=0)], 1),
    Sort(LOAD, LoadStage, [samples.load_stage(0)], [samples.load_stage(1)], 1),
    Sort(TASK, TaskRun, task_samples.task_runs(2)[:1], task_samples.task_runs(2)[1:3], 1),
    Sort(TASK, Telemetry, [samples.SEEN], (), 1),
)
each_sort = pytest.mark.parametrize("sort", SORTS, ids=lambda sort: sort.seen.__name__)


def test_the_header_is_read_back_equal(tmp_path: Path) -> None:
    with stored(tmp_path) as store:
        assert store.header() == samples.header(plan())
    with RunStore.open(tmp_path, writable=False) as store:
        assert store.header() == samples.header(plan())
        assert repr(store.header().plan) == repr(plan())
        assert store.header().plan.direct_models == (TASKS[0].model, TASKS[2].model)
        assert store.header().experiment == "bloomz"
        assert not store.finished()


_NAMES = [spec.name for spec in arguments_of(samples.deployment().tgi_version)]
_values: st.SearchStrategy[ArgumentValue] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=0, max_value=2**64 - 1),
    st.floats(allow_nan=False),
    st.text(),
)
_fractions = st.none() | st.floats(min_value=0.001, max_value=1.0)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(st.tuples(st.sampled_from(_NAMES), _values), max_size=6),
    sampling=st.builds(
        Sampling,
        do_sample=st.booleans(),
        temperature=_fractions,
        top_k=st.none() | st.integers(1, 100),
        top_p=_fractions,
        typical_p=_fractions,
        repetition_penalty=_fractions,
        watermark=st.booleans(),
    ),
    seed=st.none() | st.integers(min_value=0, max_value=2**64),
    launcher=st.sampled_from((docker(), program(), embedded(), attach("http://h:1"))),
    assumed=st.booleans(),
)
def test_any_plan_is_read_back_equal(
    tmp_path: Path,
    values: list[tuple[str, ArgumentValue]],
    sampling: Sampling,
    seed: int | None,
    launcher: Launcher,
    assumed: bool,
) -> None:
    deployment = replace(
        samples.deployment(values=tuple(values)),
        launcher=launcher,
        image="ghcr.io/x:0.9.4",
        version_assumed=assumed,
    )
    asked = replace(
        samples.plan(),
        deployments=(deployment, samples.deployment("other", ())),
        trials=(
            replace(samples.trial(2), sampling=sampling, prompt_seed=seed),
            samples.trial(1, "other"),
        ),
    )
    (tmp_path / "run.db").unlink(missing_ok=True)
    with RunStore.create(tmp_path, samples.header(asked)) as store:
        assert repr(store.header().plan) == repr(asked)  # repr tells True from 1 from 1.0


@each_sort
def test_the_last_attempt_counts_and_the_earlier_is_kept(tmp_path: Path, sort: Sort) -> None:
    with stored(tmp_path) as store:
        assert tuple(store.seen(sort.trial_id, sort.seen)) == ()
        store.add(store.begin(sort.trial_id), sort.first)
    with RunStore.open(tmp_path, writable=True) as store:
        assert store.ends() == {}
        attempt = store.begin(sort.trial_id)
        assert tuple(store.seen(sort.trial_id, sort.seen)) == ()
        store.add(attempt, sort.second)
        store.add(attempt, sort.first)
        store.end(attempt, OUT_OF_MEMORY)
    with RunStore.open(tmp_path, writable=False) as store:
        assert tuple(store.seen(sort.trial_id, sort.seen)) == (*sort.first, *sort.second)
        assert store.ends() == {sort.trial_id: OUT_OF_MEMORY}
    attempts = _query(tmp_path, "SELECT attempt, outcome FROM attempts ORDER BY attempt_id")
    assert attempts == [(1, None), (2, "out_of_memory")]


@each_sort
def test_it_is_written_whole_or_not_at_all(tmp_path: Path, sort: Sort) -> None:
    with stored(tmp_path) as store:
        attempt = store.begin(sort.trial_id)
        store.add(attempt, sort.first)
        with pytest.raises(ResultsError, match="could not be recorded"):
            store.add(attempt, (*sort.second, *sort.first))
        assert tuple(store.seen(sort.trial_id, sort.seen)) == tuple(sort.first)
        wrong = replace(samples.request(9), event_tokens=array("q", [1, 1, 1]))
        with pytest.raises(TypeError, match="typecode 'q' where 'i'"):
            store.add(attempt, [samples.request(8), wrong])
        assert samples.request(8) not in store.seen(sort.trial_id, RequestObservation)


@pytest.mark.parametrize("trial_id", [FIRST, LOAD, TASK])
def test_what_would_overwrite_is_refused(tmp_path: Path, trial_id: str) -> None:
    with stored(tmp_path) as store:
        attempt = store.begin(trial_id)
        store.end(attempt, OK)
        for again in (
            lambda: store.end(attempt, OUT_OF_MEMORY),
            lambda: store.begin(trial_id),
            lambda: store.end_unstarted(trial_id, OUT_OF_MEMORY),
        ):
            with pytest.raises(ResultsError, match="ended already"):
                again()
        assert store.ends() == {trial_id: OK}
    with pytest.raises(ResultsError, match="exists already"):
        stored(tmp_path)
    with RunStore.open(tmp_path, writable=False) as store:
        assert store.ends() == {trial_id: OK}
    assert [p.name for p in tmp_path.iterdir()] == ["run.db"]


def test_trials_of_every_kind_end_in_one_list_in_the_order_of_the_plan(tmp_path: Path) -> None:
    failed = TrialEnd(Outcome.LAUNCH_FAILED, "too few GPUs")
    with stored(tmp_path) as store:
        for trial_id in (TASK, "num_shard-2/load-trace", THIRD, LOAD, FIRST):
            store.end_unstarted(trial_id, failed)
        assert list(store.ends()) == [FIRST, THIRD, LOAD, "num_shard-2/load-trace", TASK]
        assert set(store.ends().values()) == {failed}


def test_names_that_the_plan_lacks(tmp_path: Path) -> None:
    with stored(tmp_path) as store:
        for call in (
            lambda: store.begin("none"),
            lambda: store.end_unstarted("none", OK),
            lambda: store.end(1, OK),
            lambda: store.failed("none", "no"),
            lambda: store.started("none", samples.facts()),
            lambda: store.add_end_gauges(1, ()),
        ):
            with pytest.raises(KeyError):
                call()
        with pytest.raises(ResultsError, match="could not be recorded"):
            store.add(1, samples.run_of(0))


@pytest.mark.parametrize(
    ("host_id", "facts"),
    [
        ("num_shard-2", samples.facts()),
        ("num_shard-2", replace(samples.facts(None), arguments=None, capacity_tokens=None)),
        ("num_shard-2", replace(samples.facts(None), arguments=(), command=("a", "\udc80"))),
        (TASKS[0].model.model_id, task_samples.facts()),
    ],
)
def test_starts_of_a_deployment_or_a_model(
    tmp_path: Path, host_id: str, facts: ServerFacts | DirectFacts
) -> None:
    kind = type(facts)
    with stored(tmp_path) as store:
        assert (store.facts(host_id, kind), store.failure(host_id)) == (None, "")
        store.failed(host_id, "too few GPUs")
        assert (store.facts(host_id, kind), store.failure(host_id)) == (None, "too few GPUs")
        store.started(host_id, replace(facts, details=()))
        assert store.failure(host_id) == ""
        store.started(host_id, facts)
        assert store.facts(host_id, kind) == facts
        store.failed(host_id, "its port is taken")
        assert (store.facts(host_id, kind), store.failure(host_id)) == (facts, "its port is taken")


def test_telemetry_of_the_last_attempt_that_has_any(tmp_path: Path) -> None:
    with stored(tmp_path) as store:
        assert store.telemetry(FIRST) is None
        store.add(store.begin(FIRST), [without_devices("an attempt that was cut off")])
        attempt = store.begin(FIRST)
        store.add(attempt, [replace(samples.SEEN, ended=())])
        store.add_end_gauges(attempt, samples.SEEN.ended)
        store.begin(FIRST)
    with RunStore.open(tmp_path, writable=False) as store:
        assert store.telemetry(FIRST) == samples.SEEN
        assert store.telemetry(SECOND) is None


ENTRY = PublishedEntry(
    entry_id="fp32-b1",
    model="m",
    accelerator="A100 80GB",
    devices=1,
    parallelism="",
    dtype="float32",
    quantize=None,
    batch_size=1,
    prompt_tokens=7,
    new_tokens=100,
    runs=5,
    end=OK,
    values=(
        PublishedValue(PublishedMetric.GENERATE_S, FigureKind.MEASURED, 2.21, "2.21", ""),
        PublishedValue(PublishedMetric.GENERATE_S, FigureKind.ESTIMATED, 2.0, "2.00", "a guess"),
    ),
    doubts=("which A100?",),
)


def test_what_is_of_the_run_is_read_back_in_order(tmp_path: Path) -> None:
    other = replace(ENTRY, entry_id="a", end=None, values=())
    with stored(tmp_path) as store:
        assert store.of_run(PublishedEntry) == ()
        store.add_to_run([samples.floor(), ENTRY])
        store.add_to_run([other])
        with pytest.raises(ResultsError, match="UNIQUE"):
            store.add_to_run([replace(ENTRY, entry_id="b"), ENTRY])
        assert store.of_run(PublishedEntry) == (ENTRY, other)
        assert store.of_run(ClientFloor) == (samples.floor(),)


def test_a_figure_by_its_metric_and_kind() -> None:
    assert ENTRY.value(PublishedMetric.GENERATE_S) == 2.21
    assert ENTRY.value(PublishedMetric.GENERATE_S, FigureKind.ESTIMATED) == 2.0
    assert ENTRY.value(PublishedMetric.MEMORY_GIB) is None


def test_published_figures_are_in_the_order_of_the_report(tmp_path: Path) -> None:
    figures = (
        PublishedFigures("prefill", 139.82e6, 1e6, 2e6, 1.5e6, None, 2e6, 7324.0, 1.0, 8000.5),
        PublishedFigures("decode_total", 1e6, 1e6, 2e6, None, None, None, None, None, None),
    )
    header = replace(samples.header(), origin="imported")
    with RunStore.create(tmp_path, header) as store:
        store.add(store.begin(FIRST), figures)
        assert tuple(store.seen(FIRST, PublishedFigures)) == figures
        assert store.header().origin == "imported"
    with pytest.raises(ResultsError):
        RunStore.create(_folder(tmp_path), replace(header, origin="guessed"))


def test_finish(tmp_path: Path) -> None:
    with stored(tmp_path) as store:
        store.finish()
        assert store.finished()


def test_what_a_resumed_run_adds_to_its_environment(tmp_path: Path) -> None:
    with stored(tmp_path) as store:
        before = store.header().environment
        store.add_environment([("Resumed (UTC)", "10:00"), ("Load", "1")])
        store.add_environment([("Resumed (UTC)", "11:00")])
        after = store.header().environment
    assert after == (*before, ("Resumed (UTC)", "10:00; 11:00"), ("Load", "1"))


def test_a_closed_run_is_one_file_and_reading_leaves_it_so(tmp_path: Path) -> None:
    with stored(tmp_path) as store:
        store.finish()
    store.close()
    before = (tmp_path / "run.db").read_bytes()
    with RunStore.open(tmp_path / "run.db", writable=False) as store:
        assert store.finished()
        with pytest.raises(ResultsError, match="readonly"):
            store.begin(FIRST)
    assert [p.name for p in tmp_path.iterdir()] == ["run.db"]
    assert (tmp_path / "run.db").read_bytes() == before


def test_an_interrupt_within_a_transaction_leaves_a_run_that_closes(tmp_path: Path) -> None:
    with stored(tmp_path) as store:
        store.end_unstarted(FIRST, TrialEnd(Outcome.SKIPPED, "before"))
        # Where an interrupt falls between the first line of a transaction and its body.
        store._connection.execute("BEGIN IMMEDIATE")
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.db"]
    with RunStore.open(tmp_path, writable=False) as store:
        assert list(store.ends()) == [FIRST]


def test_a_living_run_can_be_read(tmp_path: Path) -> None:
    with stored(tmp_path) as writer:
        attempt = writer.begin(FIRST)
        with RunStore.open(tmp_path, writable=False) as reader:
            writer.add(attempt, samples.run_of(0))
            assert tuple(reader.seen(FIRST, StepObservation)) == samples.run_of(0)
            writer.close()  # while it is read
            assert tuple(reader.seen(FIRST, StepObservation)) == samples.run_of(0)
    with RunStore.open(tmp_path, writable=True) as store:
        assert tuple(store.seen(FIRST, StepObservation)) == samples.run_of(0)


_WRITER = """
import sys
from pathlib import Path
from tests.record.test_store import WRITTEN, stored
trial_id, part_of = WRITTEN[sys.argv[2]]
store = stored(Path(sys.argv[1]))
attempt = store.begin(trial_id)
for index in range(100_000):
    store.add(attempt, part_of(index))
    print(index, flush=True)
"""
WRITTEN: dict[str, tuple[str, Callable[[int], Sequence[object]]]] = {
    "steps": (FIRST, samples.run_of),
    "requests": (LOAD, lambda part: (samples.request(2 * part), samples.request(2 * part + 1))),
}
"""The trial, and what is written of it at once."""


@pytest.mark.parametrize(
    ("name", "kind", "parts"),
    [
        ("steps", StepObservation, 1),
        ("steps", StepObservation, 7),
        ("steps", StepObservation, 40),
        ("requests", RequestObservation, 7),
    ],
)
def test_what_was_written_survives_kill_9(
    tmp_path: Path, name: str, kind: type[object], parts: int
) -> None:
    trial_id, part_of = WRITTEN[name]
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(tmp_path), name],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
    ) as writer:
        assert writer.stdout is not None
        told = [int(writer.stdout.readline()) for _ in range(parts)]
        os.kill(writer.pid, signal.SIGKILL)
        told.extend(int(line) for line in writer.stdout)
    with RunStore.open(tmp_path, writable=False) as store:
        survived = tuple(store.seen(trial_id, kind))
    size = len(part_of(0))
    assert len(survived) % size == 0
    assert len(told) <= len(survived) // size <= len(told) + 1
    assert survived == tuple(o for i in range(len(survived) // size) for o in part_of(i))
    with RunStore.open(tmp_path, writable=True) as store:
        assert store.ends() == {}
        store.begin(trial_id)
    assert _query(tmp_path, "SELECT max(attempt) FROM attempts") == [(2,)]


def test_tables_and_views_can_be_queried(tmp_path: Path) -> None:
    single = replace(samples.request(1, events=1), output_tokens=1)
    none = replace(samples.request(2, events=0), output_tokens=0, sent_ns=None)
    many = replace(
        samples.request(3), event_tokens=array("i", [70_003, 4, 4]), output_tokens=70_011
    )
    with stored(tmp_path) as store:
        store.add(store.begin(FIRST), samples.run_of(0))
        store.add(store.begin(LOAD), [samples.request(0), single, none, many])
        store.add(store.begin(TASK), task_samples.task_runs(2)[1:2])
    arguments = "SELECT value FROM deployment_arguments WHERE name = 'num_shard'"
    assert _query(tmp_path, arguments) == [("2",)]
    shapes = "deployment_id, sequence_length, decode_length, batch_size"
    assert _query(tmp_path, f"SELECT {shapes}, phase, latency_ms FROM step_latencies") == [
        ("num_shard-2", 1024, 8, 1, "prefill", 5.0),
        ("num_shard-2", 1024, 8, 1, "decode", 5.0),
        ("num_shard-2", 1024, 8, 1, "decode", 5.0),
    ]
    columns = "part, ttft_ms, service_ttft_ms, tpot_ms, e2e_ms, send_lag_ms, output_tokens"
    assert _query(tmp_path, f"SELECT {columns} FROM request_latencies") == [
        ("warmup", 101.0, 100.0, 20.0, 250.0, 1.0, 3),
        ("measured", 101.0, 100.0, None, 250.0, 1.0, 1),
        ("measured", None, None, None, 250.0, None, 0),
        ("measured", 101.0, 100.0, 5.0, 250.0, 1.0, 70_011),
    ]
    assert _query(tmp_path, "SELECT DISTINCT concurrency FROM request_latencies") == [(None,)]
    columns = "batch_size, call_s, prefill_ms, decode_total_ms, new_tokens, outcome"
    assert _query(tmp_path, f"SELECT {columns} FROM task_latencies") == [
        (2, 0.01, 6.0, 4.0, 6, "ok")
    ]


def test_a_load_whose_requests_were_all_of_warm_up_says_so(tmp_path: Path) -> None:
    """The first sample is of warm-up; it was sent and answered, but not within the window."""
    with stored(tmp_path) as store:
        recording = LoadRecording(store, store.begin(LOAD), str)
        assert recording.end() == TrialEnd(Outcome.FAILED, "no request was sent")
        recording.record([samples.request(0)])
        end = recording.end()
    assert end.outcome is Outcome.FAILED
    assert end.reason.startswith("no request was sent and ended within the window")


def _query(run_dir: Path, sql: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(run_dir / "run.db")
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def _folder(tmp_path: Path) -> Path:
    folder = tmp_path / "another"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    "launcher",
    [
        embedded(visible_devices=2, calibration="x 1"),
        transformers("cpu", random_weights=True, weights_seed=3),
        program(),
        program("python", "-m", "x y"),
        attach("http://h:1", "/tmp/s-0", verify_tls=False, headers={"X-Team": "a"}),
        attach("http://h:1"),
        docker(),
        docker(
            gpus="0,3",
            shm_size="1g",
            volumes=["/a:/b", "c:/d:ro"],
            network="net",
            options={"cap_add": ["SYS_NICE"], "init": True},
        ),
    ],
)
def test_a_deployment_of_every_launcher_comes_back(tmp_path: Path, launcher: Launcher) -> None:
    asked = replace(
        samples.deployment(),
        launcher=launcher,
        engine=Engine.VLLM,
        env=("HF_TOKEN", "B"),
        timeouts=Timeouts(1.5, 2.5, 3.5, 4.5),
    )
    header = samples.header(replace(samples.plan(), deployments=(asked,)))
    with RunStore.create(tmp_path, header) as store:
        assert store.header().plan.deployments == (asked,)

"""run.db: what is written is read back equal, and nothing that was written is lost."""

from __future__ import annotations

import dataclasses
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.record import samples
from tgi_bench.engines.arguments import arguments_of
from tgi_bench.errors import ResultsError
from tgi_bench.observation import Outcome, PublishedFigures, TrialEnd
from tgi_bench.plan.plan import (
    ArgumentValue,
    AttachOptions,
    DockerOptions,
    Engine,
    HostOptions,
    LauncherKind,
    ProcessOptions,
    Sampling,
    Timeouts,
)
from tgi_bench.record.store import RunStore

FIRST, SECOND, THIRD = (t.trial_id for t in samples.plan().trials)
OK = TrialEnd(Outcome.OK, "")
OUT_OF_MEMORY = TrialEnd(Outcome.OUT_OF_MEMORY, "CUDA out of memory. Tried to allocate 2.00 GiB")


def test_the_header_is_read_back_equal(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, samples.header()) as store:
        assert store.header() == samples.header()
    with RunStore.open(tmp_path, writable=False) as store:
        assert store.header() == samples.header()
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
    launcher=st.sampled_from(LauncherKind),
    assumed=st.booleans(),
)
def test_any_plan_is_read_back_equal(
    tmp_path: Path,
    values: list[tuple[str, ArgumentValue]],
    sampling: Sampling,
    seed: int | None,
    launcher: LauncherKind,
    assumed: bool,
) -> None:
    deployment = dataclasses.replace(
        samples.deployment(values=tuple(values)),
        launcher=launcher,
        image="ghcr.io/x:0.9.4",
        version_assumed=assumed,
    )
    plan = dataclasses.replace(
        samples.plan(),
        deployments=(deployment, samples.deployment("other", ())),
        trials=(
            dataclasses.replace(samples.trial(2), sampling=sampling, prompt_seed=seed),
            samples.trial(1, "other"),
        ),
    )
    (tmp_path / "run.db").unlink(missing_ok=True)
    with RunStore.create(tmp_path, samples.header(plan)) as store:
        assert repr(store.header().plan) == repr(plan)  # repr tells True from 1 from 1.0


def test_observations_and_ends_are_read_back_equal(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, samples.header()) as store:
        attempt = store.begin_trial(FIRST)
        assert attempt == 1
        for index in range(3):
            store.add(FIRST, attempt, samples.run_of(index))
        store.end_trial(FIRST, attempt, OK)
        store.end_unstarted(THIRD, OUT_OF_MEMORY)
        written = tuple(o for index in range(3) for o in samples.run_of(index))
        assert store.observations(FIRST) == written
        assert store.observations(SECOND) == ()
        assert store.observations(THIRD) == ()
        assert store.ends() == {FIRST: OK, THIRD: OUT_OF_MEMORY}
        assert list(store.ends()) == [FIRST, THIRD]


def test_a_step_may_have_no_ranks(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, samples.header()) as store:
        store.add(FIRST, store.begin_trial(FIRST), samples.run_of(0, ranks=0))
        assert store.observations(FIRST) == samples.run_of(0, ranks=0)


def test_the_last_attempt_counts_and_the_earlier_is_kept(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, samples.header()) as store:
        store.add(FIRST, store.begin_trial(FIRST), samples.run_of(0))
    with RunStore.open(tmp_path, writable=True) as store:
        assert store.ends() == {}
        attempt = store.begin_trial(FIRST)
        assert attempt == 2
        assert store.observations(FIRST) == ()
        store.add(FIRST, attempt, samples.run_of(1))
        store.end_trial(FIRST, attempt, OK)
        assert store.observations(FIRST) == samples.run_of(1)
    rows = _query(tmp_path, "SELECT attempt, count(*) FROM attempts JOIN steps USING (attempt_id)"
                            " GROUP BY attempt")  # fmt: skip
    assert rows == [(1, 3), (2, 3)]


def test_a_run_of_steps_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, samples.header()) as store:
        attempt = store.begin_trial(FIRST)
        store.add(FIRST, attempt, samples.run_of(0))
        with pytest.raises(ResultsError, match="could not be recorded"):
            store.add(FIRST, attempt, (*samples.run_of(1), *samples.run_of(0)))
        assert store.observations(FIRST) == samples.run_of(0)


def test_what_would_overwrite_is_refused(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, samples.header()) as store:
        attempt = store.begin_trial(FIRST)
        store.end_trial(FIRST, attempt, OK)
        with pytest.raises(ResultsError, match="ended already"):
            store.end_trial(FIRST, attempt, OUT_OF_MEMORY)
        with pytest.raises(ResultsError, match="ended already"):
            store.begin_trial(FIRST)
        with pytest.raises(ResultsError, match="ended already"):
            store.end_unstarted(FIRST, OUT_OF_MEMORY)
        assert store.ends() == {FIRST: OK}
    with pytest.raises(ResultsError, match="exists already"):
        RunStore.create(tmp_path, samples.header())
    with RunStore.open(tmp_path, writable=False) as store:
        assert store.ends() == {FIRST: OK}
    assert [p.name for p in tmp_path.iterdir()] == ["run.db"]


def test_names_that_the_plan_lacks(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, samples.header()) as store:
        for call in (
            lambda: store.begin_trial("none"),
            lambda: store.end_unstarted("none", OK),
            lambda: store.add(FIRST, 1, ()),
            lambda: store.deployment_failed("none", "no"),
            lambda: store.deployment_started("none", samples.facts()),
            lambda: store.add_published("none", ()),
        ):
            with pytest.raises(KeyError):
                call()


def test_starts_of_a_deployment(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, samples.header()) as store:
        assert store.facts("num_shard-2") is None
        assert store.failure("num_shard-2") == ""
        store.deployment_failed("num_shard-2", "too few GPUs")
        assert store.facts("num_shard-2") is None
        assert store.failure("num_shard-2") == "too few GPUs"
        store.deployment_started("num_shard-2", samples.facts())
        assert store.failure("num_shard-2") == ""
        bare = dataclasses.replace(samples.facts(None), arguments=None, capacity_tokens=None)
        store.deployment_started("num_shard-2", bare)
        assert store.facts("num_shard-2") == bare
        store.deployment_started("num_shard-2", dataclasses.replace(bare, arguments=()))
        assert store.facts("num_shard-2") == dataclasses.replace(bare, arguments=())
        store.deployment_started("num_shard-2", samples.facts())
        assert store.facts("num_shard-2") == samples.facts()
        store.deployment_failed("num_shard-2", "its port is taken")
        assert store.facts("num_shard-2") == samples.facts()
        assert store.failure("num_shard-2") == "its port is taken"


def test_published_figures_are_read_back_equal(tmp_path: Path) -> None:
    figures = (
        PublishedFigures("prefill", 139.82e6, 1e6, 2e6, 1.5e6, None, 2e6, 7324.0, 1.0, 8000.5),
        PublishedFigures("decode_total", 1e6, 1e6, 2e6, None, None, None, None, None, None),
    )
    header = dataclasses.replace(samples.header(), origin="imported")
    with RunStore.create(tmp_path, header) as store:
        store.add_published(FIRST, figures)
        assert store.published(FIRST) == figures
        assert store.published(SECOND) == ()
        assert store.header().origin == "imported"
    with pytest.raises(ResultsError):
        RunStore.create(_folder(tmp_path), dataclasses.replace(header, origin="guessed"))


def test_finish(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, samples.header()) as store:
        store.finish()
        assert store.finished()


def test_what_a_resumed_run_adds_to_its_environment(tmp_path: Path) -> None:
    with RunStore.create(_folder(tmp_path), samples.header(samples.plan())) as store:
        before = store.header().environment
        store.add_environment([("Resumed (UTC)", "10:00"), ("Load", "1")])
        store.add_environment([("Resumed (UTC)", "11:00")])
        after = store.header().environment
    assert after == (*before, ("Resumed (UTC)", "10:00; 11:00"), ("Load", "1"))


def test_a_closed_run_is_one_file_and_reading_leaves_it_so(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, samples.header()) as store:
        store.finish()
    store.close()
    before = (tmp_path / "run.db").read_bytes()
    with RunStore.open(tmp_path / "run.db", writable=False) as store:
        assert store.finished()
        with pytest.raises(ResultsError, match="readonly"):
            store.begin_trial(FIRST)
    assert [p.name for p in tmp_path.iterdir()] == ["run.db"]
    assert (tmp_path / "run.db").read_bytes() == before


def test_an_interrupt_within_a_transaction_leaves_a_run_that_closes(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, samples.header()) as store:
        trial_id = samples.plan().trials[0].trial_id
        store.end_unstarted(trial_id, TrialEnd(Outcome.SKIPPED, "before"))
        # Where an interrupt falls between the first line of a transaction and its body.
        store._connection.execute("BEGIN IMMEDIATE")
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.db"]
    with RunStore.open(tmp_path, writable=False) as store:
        assert list(store.ends()) == [trial_id]


def test_a_living_run_can_be_read(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, samples.header()) as writer:
        attempt = writer.begin_trial(FIRST)
        with RunStore.open(tmp_path, writable=False) as reader:
            writer.add(FIRST, attempt, samples.run_of(0))
            assert reader.observations(FIRST) == samples.run_of(0)
            writer.close()  # while it is read
            assert reader.observations(FIRST) == samples.run_of(0)
    with RunStore.open(tmp_path, writable=True) as store:
        assert store.observations(FIRST) == samples.run_of(0)


_WRITER = """
import sys
from pathlib import Path
from tests.record import samples
from tgi_bench.record.store import RunStore
store = RunStore.create(Path(sys.argv[1]), samples.header())
trial = samples.plan().trials[0].trial_id
attempt = store.begin_trial(trial)
for index in range(100_000):
    store.add(trial, attempt, samples.run_of(index))
    print(index, flush=True)
"""


@pytest.mark.parametrize("runs", [1, 7, 40])
def test_what_was_written_survives_kill_9(tmp_path: Path, runs: int) -> None:
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(root)},
        text=True,
    ) as writer:
        assert writer.stdout is not None
        told = [int(writer.stdout.readline()) for _ in range(runs)]
        os.kill(writer.pid, signal.SIGKILL)
        told.extend(int(line) for line in writer.stdout)
    with RunStore.open(tmp_path, writable=False) as store:
        survived = store.observations(FIRST)
    assert survived[: 3 * len(told)] == tuple(o for i in told for o in samples.run_of(i))
    assert len(survived) % 3 == 0
    assert len(survived) <= 3 * (len(told) + 1)
    with RunStore.open(tmp_path, writable=True) as store:
        assert store.ends() == {}
        assert store.begin_trial(FIRST) == 2


def test_tables_and_views_can_be_queried(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, samples.header()) as store:
        store.add(FIRST, store.begin_trial(FIRST), samples.run_of(0))
    assert _query(tmp_path, "SELECT value FROM deployment_arguments WHERE name = 'num_shard'") == [
        ("2",)
    ]
    assert _query(tmp_path, "SELECT batch_size, phase, latency_ms FROM step_latencies") == [
        (1, "prefill", 5.0),
        (1, "decode", 5.0),
        (1, "decode", 5.0),
    ]


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
    ("launcher", "host"),
    [
        (LauncherKind.EMBEDDED, None),
        (LauncherKind.PROCESS, None),  # of an imported report
        (LauncherKind.PROCESS, ProcessOptions(("python", "-m", "x y"))),
        (LauncherKind.ATTACH, AttachOptions("http://h:1", "/tmp/s-0")),
        (LauncherKind.ATTACH, AttachOptions("http://h:1")),
        (LauncherKind.DOCKER, DockerOptions()),
        (
            LauncherKind.DOCKER,
            DockerOptions("0,3", "1g", ("/a:/b", "c:/d:ro"), "net", (("cap_add", '["SYS_NICE"]'),)),
        ),
    ],
)
def test_a_deployment_of_every_launcher_comes_back(
    tmp_path: Path, launcher: LauncherKind, host: HostOptions
) -> None:
    asked = dataclasses.replace(
        samples.deployment(),
        launcher=launcher,
        host=host,
        engine=Engine.VLLM,
        env=("HF_TOKEN", "B"),
        timeouts=Timeouts(1.5, 2.5, 3.5, 4.5),
    )
    header = samples.header(dataclasses.replace(samples.plan(), deployments=(asked,)))
    with RunStore.create(tmp_path, header) as store:
        assert store.header().plan.deployments == (asked,)

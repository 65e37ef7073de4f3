"""Loads in run.db: stages, requests with every arrival, the client's own error."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.record import samples
from tgi_bench.errors import ResultsError, RunFileError
from tgi_bench.load_observation import RequestOutcome, TokenSource
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.plan.load_trial import TraceTimes
from tgi_bench.plan.plan import Plan
from tgi_bench.record.load_recording import LoadRecording
from tgi_bench.record.schema import FORMAT_VERSION
from tgi_bench.record.store import RunStore

OK = TrialEnd(Outcome.OK, "")
LOAD = samples.load_trial().trial_id
OTHER = "num_shard-2/load-trace"
ROOT = Path(__file__).parents[2]
FORMAT_1 = ROOT / "results" / "bloomz-7b1-mt" / "20261121T123246Z-584111" / "run.db"


def _plan() -> Plan:
    other = samples.load_trial("load-trace", TraceTimes(2.0))
    return dataclasses.replace(samples.plan(), load_trials=(samples.load_trial(), other))


def _store(folder: Path) -> RunStore:
    return RunStore.create(folder, samples.header(_plan()))


def _query(run_dir: Path, sql: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(run_dir / "run.db")
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def test_a_plan_with_loads_is_read_back_equal(tmp_path: Path) -> None:
    with _store(tmp_path) as store:
        assert repr(store.header().plan) == repr(_plan())


def test_a_plan_of_loads_only(tmp_path: Path) -> None:
    plan = dataclasses.replace(_plan(), trials=())
    with RunStore.create(tmp_path, samples.header(plan)) as store:
        assert store.header().plan == plan
        store.end_load_unstarted(OTHER, TrialEnd(Outcome.LAUNCH_FAILED, "too few GPUs"))
        assert store.ends() == {OTHER: TrialEnd(Outcome.LAUNCH_FAILED, "too few GPUs")}


def test_stages_and_requests_are_read_back_equal(tmp_path: Path) -> None:
    never_sent = dataclasses.replace(
        samples.request(3, events=0),
        sent_ns=None,
        prompt_tokens=None,
        output_tokens_asked=None,
        counted_by=TokenSource.EVENTS,
        finish_reason=None,
        status=None,
        outcome=RequestOutcome.DROPPED,
        reason="at its time 8 were in flight",
    )
    late = dataclasses.replace(
        samples.request(0, stage=1), event_tokens=array("i", [2**31 - 1, 0, 1]), new_connection=True
    )
    bare = dataclasses.replace(samples.client(), worker_cpu_ns=(), kernel_stamps=False)
    second = dataclasses.replace(
        samples.load_stage(1),
        concurrency=None,
        rate_per_s=4.0,
        details=(),
        client=bare,
        cut_off="the server died",
    )
    with _store(tmp_path) as store:
        assert store.begin_load(LOAD) == 1
        store.add_requests(LOAD, 1, [samples.request(2), never_sent])
        store.add_requests(LOAD, 1, (samples.request(i) for i in (0, 1)))
        store.add_stage(LOAD, 1, samples.load_stage())
        store.add_stage(LOAD, 1, second)
        store.add_requests(LOAD, 1, [late])
        store.end_load(LOAD, 1, OK)
        assert store.load_stages(LOAD) == (samples.load_stage(), second)
        first = (samples.request(0), samples.request(1), samples.request(2))
        assert tuple(store.requests(LOAD)) == (*first, never_sent, late)
        kept = next(store.requests(LOAD))
        assert (kept.event_ns.typecode, kept.event_tokens.typecode) == ("q", "i")
        assert store.load_stages(OTHER) == ()
        assert tuple(store.requests(OTHER)) == ()
        assert store.ends() == {LOAD: OK}


def test_arrivals_are_little_endian(tmp_path: Path) -> None:
    tiny = dataclasses.replace(
        samples.request(0), event_ns=array("q", [1, 2]), event_tokens=array("i", [3, 4])
    )
    with _store(tmp_path) as store:
        store.add_requests(LOAD, store.begin_load(LOAD), [tiny])
    ((arrivals, tokens),) = _query(tmp_path, "SELECT event_ns, event_tokens FROM requests")
    assert arrivals == b"\x01" + bytes(7) + b"\x02" + bytes(7)
    assert tokens == b"\x03" + bytes(3) + b"\x04" + bytes(3)


def test_batches_and_loads_end_in_one_list(tmp_path: Path) -> None:
    batch = samples.trial(2).trial_id
    with _store(tmp_path) as store:
        store.end_load_unstarted(OTHER, OK)
        store.end_unstarted(batch, OK)
        store.end_load(LOAD, store.begin_load(LOAD), TrialEnd(Outcome.FAILED, "no answer"))
        assert list(store.ends()) == [batch, LOAD, OTHER]


def test_the_last_attempt_counts_and_the_earlier_is_kept(tmp_path: Path) -> None:
    with _store(tmp_path) as store:
        store.add_requests(LOAD, store.begin_load(LOAD), [samples.request(0)])
        store.add_stage(LOAD, 1, samples.load_stage())
    with RunStore.open(tmp_path, writable=True) as store:
        assert store.ends() == {}
        assert store.begin_load(LOAD) == 2
        assert store.load_stages(LOAD) == ()
        assert tuple(store.requests(LOAD)) == ()
        store.add_requests(LOAD, 2, [samples.request(7)])
        assert tuple(store.requests(LOAD)) == (samples.request(7),)
    assert _query(tmp_path, "SELECT count(*) FROM requests") == [(2,)]


def test_what_is_refused(tmp_path: Path) -> None:
    with _store(tmp_path) as store:
        for call in (
            lambda: store.begin_load(samples.trial(1).trial_id),
            lambda: store.begin_trial(LOAD),
            lambda: store.end_load_unstarted("none", OK),
            lambda: store.add_requests(LOAD, 1, []),
            lambda: store.add_stage(LOAD, 1, samples.load_stage()),
            lambda: store.end_load(LOAD, 1, OK),
        ):
            with pytest.raises(KeyError):
                call()
        attempt = store.begin_load(LOAD)
        with pytest.raises(ResultsError, match="could not be recorded"):
            store.add_requests(LOAD, attempt, [samples.request(0), samples.request(0)])
        assert tuple(store.requests(LOAD)) == ()
        wrong = dataclasses.replace(samples.request(0), event_tokens=array("q", [1, 1, 1]))
        with pytest.raises(TypeError, match="typecode 'q' where 'i'"):
            store.add_requests(LOAD, attempt, [samples.request(1), wrong])
        assert tuple(store.requests(LOAD)) == ()
        store.add_stage(LOAD, attempt, samples.load_stage())
        with pytest.raises(ResultsError, match="could not be recorded"):
            store.add_stage(LOAD, attempt, samples.load_stage())
        store.end_load(LOAD, attempt, OK)
        with pytest.raises(ResultsError, match="ended already"):
            store.end_load(LOAD, attempt, OK)
        with pytest.raises(ResultsError, match="ended already"):
            store.begin_load(LOAD)


def test_floors_are_read_back_equal(tmp_path: Path) -> None:
    flat_out = dataclasses.replace(
        samples.floor(), interval_ns=0, itl_error_ns=None, start_lateness_ns=(1.5, 2.0, 3.0)
    )
    with _store(tmp_path) as store:
        assert store.floors() == ()
        store.add_floor(samples.floor())
        store.add_floor(flat_out)
        assert store.floors() == (samples.floor(), flat_out)


def test_latencies_can_be_queried(tmp_path: Path) -> None:
    with _store(tmp_path) as store:
        attempt = store.begin_load(LOAD)
        single = dataclasses.replace(samples.request(1, events=1), output_tokens=1)
        none = dataclasses.replace(samples.request(2, events=0), output_tokens=0, sent_ns=None)
        many = dataclasses.replace(
            samples.request(3), event_tokens=array("i", [70_003, 4, 4]), output_tokens=70_011
        )
        store.add_requests(LOAD, attempt, [samples.request(0), single, none, many])
    columns = "part, ttft_ms, service_ttft_ms, tpot_ms, e2e_ms, send_lag_ms, output_tokens"
    assert _query(tmp_path, f"SELECT {columns} FROM request_latencies") == [
        ("warmup", 101.0, 100.0, 20.0, 250.0, 1.0, 3),
        ("measured", 101.0, 100.0, None, 250.0, 1.0, 1),
        ("measured", None, None, None, 250.0, None, 0),
        ("measured", 101.0, 100.0, 5.0, 250.0, 1.0, 70_011),
    ]
    assert _query(tmp_path, "SELECT DISTINCT concurrency FROM request_latencies") == [(None,)]


@pytest.mark.parametrize(
    "spoil",
    [
        "UPDATE requests SET event_ns = x'010203'",
        "UPDATE requests SET event_tokens = x'0102'",
        "UPDATE requests SET outcome = 'fine'",
        "UPDATE requests SET event_ns = 'text'",
        "DROP TABLE requests",
    ],
)
def test_a_request_that_is_not_as_written_is_told_as_damage(tmp_path: Path, spoil: str) -> None:
    with _store(tmp_path) as store:
        store.add_requests(LOAD, store.begin_load(LOAD), [samples.request(0)])
    connection = sqlite3.connect(tmp_path / "run.db")
    connection.execute(spoil)
    connection.commit()
    connection.close()
    with (
        pytest.raises(RunFileError, match=r"run.db: is damaged: .*"),
        RunStore.open(tmp_path, writable=False) as store,
    ):
        list(store.requests(LOAD))


@pytest.mark.parametrize(
    ("spoil", "read"),
    [
        ("UPDATE load_trials SET asked = '{}'", RunStore.header),
        ("UPDATE load_trials SET asked = 'x'", RunStore.header),
        ("UPDATE load_stages SET details = '[[1]]'", lambda s: s.load_stages(LOAD)),
        ("UPDATE load_stages SET worker_cpu_ns = ''", lambda s: s.load_stages(LOAD)),
        ("DROP TABLE client_floors", RunStore.floors),
    ],
)
def test_what_else_is_told_as_damage(
    tmp_path: Path, spoil: str, read: Callable[[RunStore], object]
) -> None:
    with _store(tmp_path) as store:
        store.add_stage(LOAD, store.begin_load(LOAD), samples.load_stage())
    connection = sqlite3.connect(tmp_path / "run.db")
    connection.execute(spoil)
    connection.commit()
    connection.close()
    with pytest.raises(RunFileError, match="is damaged"), RunStore.open(tmp_path, False) as store:
        read(store)


def test_a_run_of_format_1_is_read_as_it_is_and_upgraded_by_a_writer(tmp_path: Path) -> None:
    shutil.copy(FORMAT_1, tmp_path / "run.db")
    before = FORMAT_1.read_bytes()
    assert _query(tmp_path, "PRAGMA user_version") == [(1,)]
    (tmp_path / "run.db").chmod(0o444)
    with RunStore.open(tmp_path, writable=False) as store:
        plan = store.header().plan
        assert plan.load_trials == ()
        assert store.floors() == ()
        ends = store.ends()
        assert len(ends) == len(plan.trials)
        with pytest.raises(ResultsError, match="readonly"):
            store.add_floor(samples.floor())
    assert (tmp_path / "run.db").read_bytes() == before
    (tmp_path / "run.db").chmod(0o644)
    with RunStore.open(tmp_path, writable=True) as store:
        assert store.header().plan == plan
        assert store.ends() == ends
        store.add_floor(samples.floor())
    assert _query(tmp_path, "PRAGMA user_version") == [(FORMAT_VERSION,)]


_WRITER = """
import sys
from pathlib import Path
from tests.record import samples
from tests.record.test_loads import LOAD, _store
store = _store(Path(sys.argv[1]))
attempt = store.begin_load(LOAD)
for index in range(100_000):
    store.add_requests(LOAD, attempt, [samples.request(2 * index), samples.request(2 * index + 1)])
    print(index, flush=True)
"""


def test_requests_that_were_written_survive_kill_9(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
    ) as writer:
        assert writer.stdout is not None
        told = [int(writer.stdout.readline()) for _ in range(7)]
        os.kill(writer.pid, signal.SIGKILL)
        told.extend(int(line) for line in writer.stdout)
    with RunStore.open(tmp_path, writable=False) as store:
        survived = tuple(store.requests(LOAD))
        assert store.load_stages(LOAD) == ()
        assert store.ends() == {}
    assert len(survived) % 2 == 0
    assert 2 * len(told) <= len(survived) <= 2 * (len(told) + 1)
    assert survived == tuple(samples.request(index) for index in range(len(survived)))


def test_a_load_whose_requests_were_all_of_warm_up_says_so(tmp_path: Path) -> None:
    """The first sample is of warm-up; it was sent and answered, but not within the window."""
    with _store(tmp_path) as store:
        recording = LoadRecording(store, LOAD, store.begin_load(LOAD), str)
        assert recording.end() == TrialEnd(Outcome.FAILED, "no request was sent")
        recording.record([samples.request(0)])
        end = recording.end()
    assert end.outcome is Outcome.FAILED
    assert end.reason.startswith("no request was sent and ended within the window")

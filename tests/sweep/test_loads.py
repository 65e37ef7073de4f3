"""Loads in a sweep, in processes of their own, from YAML to reports and over what goes wrong."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.drive.faulty_server import FaultyServer
from tests.sweep.experiments import only_run
from tests.sweep.loads import ends, requests, stages, write
from tests.sweep.processes import Tool, kill, read_until, rest_of
from tgi_bench.load_observation import ClientFloor, LoadPart, RequestOutcome
from tgi_bench.observation import Outcome
from tgi_bench.record.store import RunStore

ENDED = (0, 3)
OK = {RequestOutcome.OK}
CLOSED: dict[str, object] = {"name": "few", "concurrency": 2, "requests": 20, "warmup": 4}
LONG: dict[str, object] = {"name": "long", "concurrency": 2, "duration": "60s", "warmup": 0}


def workers_of(tool: Tool) -> list[int]:
    return [pid for pid, words in tool.living().items() if "tgi_bench.drive.worker" in words]


def wait_for_requests(run_dir: Path, trial_id: str, least: int = 1) -> None:
    deadline = time.monotonic() + 30
    while len(requests(run_dir, trial_id)) < least:
        assert time.monotonic() < deadline, "no request was recorded"
        time.sleep(0.05)


def begun(tool: Tool, trial_id: str) -> Path:
    """The run's folder, once requests of that load are written."""
    deadline = time.monotonic() + 30
    while not (tool.results / "loads").is_dir() or not list(
        (tool.results / "loads").glob("*/run.db")
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    run_dir = only_run(tool.results, "loads")
    wait_for_requests(run_dir, trial_id)
    return run_dir


def test_a_sweep_of_loads_and_batches_writes_all_of_it(tool: Tool) -> None:
    loads = (CLOSED, {"name": "open", "rate": 50, "duration": "1s", "arrivals": "constant"})
    file = write(tool.folder, *loads)
    file.write_text(
        file.read_text()
        + "batches: {sequence_length: 16, decode_length: 3, batch_size: 1, runs: 3}\n"
    )
    done = tool.sweep(file)
    assert done.returncode in ENDED, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    run_dir = only_run(tool.results, "loads")
    closed, opened = "default/load-few-c2", "default/load-open-r50"
    assert {name: end.outcome for name, end in ends(run_dir).items()} == {
        "default/s16-d3-b1": Outcome.OK,
        closed: Outcome.OK,
        opened: Outcome.OK,
    }
    assert [one.part for one in requests(run_dir, closed)] == [LoadPart.WARMUP] * 4 + [
        LoadPart.MEASURED
    ] * 20
    measured = [one for one in requests(run_dir, opened) if one.part is LoadPart.MEASURED]
    assert len(measured) == 50  # at even times, between the default warm-up and cool-down
    for trial_id in (closed, opened):
        (stage,) = stages(run_dir, trial_id)
        assert stage.dialect == "tgi"
        assert {one.outcome for one in requests(run_dir, trial_id)} == OK
        assert {one.output_tokens for one in requests(run_dir, trial_id)} == {4}
    with RunStore.open(run_dir, writable=False) as store:
        assert store.finished()
        assert len(store.of_run(ClientFloor)) == 2  # at its streams, and of an open loop
    pages = {"num_shard-1.md": "# Load over HTTP", "report.md": "# Latency against throughput"}
    for name, heading in pages.items():
        text = (run_dir / name).read_text(encoding="utf-8")
        assert "simulated" in text
        assert heading in text
    assert "[3/3] ok" in done.stdout
    document = json.loads(tool.run("report", run_dir, "--format", "json").stdout)
    assert closed in json.dumps(document)
    table = tool.run("report", run_dir, "--format", "csv").stdout
    assert any(closed in ",".join(row) for row in csv.reader(io.StringIO(table)))
    again = tool.run("report", run_dir, "--output", tool.folder / "again")
    assert again.returncode == 0
    for name in ("num_shard-1.md", "report.md"):
        before = (run_dir / name).read_text(encoding="utf-8")
        assert (tool.folder / "again" / name).read_text(encoding="utf-8") == before


def test_an_slo_that_is_missed_is_a_result_of_its_own(tool: Tool) -> None:
    """Believed where nothing disturbed the machine meanwhile, and never a success."""
    done = tool.sweep(write(tool.folder, {**CLOSED, "slo": {"ttft_p50": "1us"}}))
    assert done.returncode in (3, 4), done.stdout + done.stderr
    assert ("verdict: VALID" in done.stdout) is (done.returncode == 4)
    assert "missed: default/load-few-c2: TTFT p50 at most 0.001 ms; found: " in done.stdout


def test_an_interrupt_keeps_what_was_recorded_and_resume_repeats_the_load_alone(
    tool: Tool,
) -> None:
    """In the second of three loads; what is in flight is recorded as cut off."""
    slow = {**LONG, "workload": {"prompt_tokens": 8, "output_tokens": 100}}
    file = write(tool.folder, CLOSED, slow, {**CLOSED, "name": "last"})
    unfinished = "default/load-long-c2"
    with tool.started(file) as process:
        run_dir = begun(tool, unfinished)
        process.send_signal(signal.SIGINT)
        output = rest_of(process)
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert "--resume" in output
    assert tool.left() == {}
    assert list(ends(run_dir)) == ["default/load-few-c2"]
    seen = requests(run_dir, unfinished)
    cut = [one for one in seen if one.outcome is RequestOutcome.CUT_OFF]
    assert 1 <= len(cut) <= 2
    assert {one.outcome for one in seen} == {RequestOutcome.OK, RequestOutcome.CUT_OFF}
    before = requests(run_dir, "default/load-few-c2")
    (stage,) = stages(run_dir, unfinished)
    assert stage.cut_off == "interrupted"
    document = json.loads(tool.run("report", run_dir, "--format", "json").stdout)
    (load,) = [one for one in document["loads"] if one["trial_id"] == unfinished]
    assert (load["outcome"], load["partial"]) == (None, True)
    assert load["stages"][0]["latency"]["e2e"]["samples"] > 0
    with tool.started(file, "--resume") as process:
        assert "1 of 3 trials ended before" in read_until(process, "ready")
        wait_for_requests(run_dir, unfinished)
        process.send_signal(signal.SIGTERM)
        rest_of(process)
    assert process.returncode == 130
    assert requests(run_dir, "default/load-few-c2") == before
    with RunStore.open(run_dir, writable=False) as store:
        assert not store.finished()


def test_killed_in_a_load_and_resumed(tool: Tool) -> None:
    """kill -9: its workers end by themselves, and what was written is there."""
    file = write(
        tool.folder,
        CLOSED,
        {"name": "long", "concurrency": 2, "duration": "2s"},
    )
    with tool.started(file) as process:
        run_dir = begun(tool, "default/load-long-c2")
        kept = requests(run_dir, "default/load-long-c2")
        assert workers_of(tool)
        kill(process)
    assert tool.left() == {}
    assert list(ends(run_dir)) == ["default/load-few-c2"]
    before = requests(run_dir, "default/load-few-c2")
    cut_off = requests(run_dir, "default/load-long-c2")
    assert len(cut_off) >= len(kept) > 0
    done = tool.sweep(file, "--resume")
    assert done.returncode in ENDED, done.stdout + done.stderr
    assert "1 of 2 trials ended before" in done.stdout
    assert {end.outcome for end in ends(run_dir).values()} == {Outcome.OK}
    assert requests(run_dir, "default/load-few-c2") == before
    again = requests(run_dir, "default/load-long-c2")
    assert min(one.intended_ns for one in again) > max(one.ended_ns for one in cut_off)


def test_a_worker_that_is_killed_fails_its_trial_alone(tool: Tool) -> None:
    file = write(tool.folder, LONG, CLOSED)
    with tool.started(file) as process:
        run_dir = begun(tool, "default/load-long-c2")
        for worker in workers_of(tool):
            os.kill(worker, signal.SIGKILL)
        output = rest_of(process)
    assert process.returncode == 1, output
    found = ends(run_dir)
    failed = found["default/load-long-c2"]
    assert failed.outcome is Outcome.FAILED
    assert "worker process of the load client ended early: by signal SIGKILL" in failed.reason
    assert found["default/load-few-c2"].outcome is Outcome.OK
    assert requests(run_dir, "default/load-long-c2")
    assert "ended early" in (run_dir / "num_shard-1.md").read_text(encoding="utf-8")


def test_a_rank_that_is_killed_in_a_load(tool: Tool) -> None:
    """Its launcher says so some 0.1 s after the clients saw it, and lives on a while."""
    file = write(tool.folder, LONG, CLOSED)
    with tool.started(file) as process:
        run_dir = begun(tool, "default/load-long-c2")
        serving = {pid for pid, words in tool.living().items() if " serve " in words}
        (rank,) = [pid for pid in serving if _parent(pid) in serving]
        os.kill(rank, signal.SIGKILL)
        output = rest_of(process)
    assert process.returncode == 1, output
    died = ends(run_dir)["default/load-long-c2"]
    assert died.outcome is Outcome.SERVER_DIED
    assert re.fullmatch(r"shard 0 was killed \(signal 9\)(?: \(exit code 1\))?", died.reason)
    assert ends(run_dir)["default/load-few-c2"].outcome is Outcome.OK


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_server_that_dies_in_a_load(tool: Tool) -> None:
    """Its cause is said, the load's rest is not waited for, and the next load has another one."""
    file = write(tool.folder, LONG, CLOSED)
    with tool.started(file) as process:
        run_dir = begun(tool, "default/load-long-c2")
        shards = [
            pid
            for pid, words in tool.living().items()
            if pid != process.pid and "tgi_bench.drive.worker" not in words
        ]
        began = time.monotonic()
        for pid in shards:
            os.kill(pid, signal.SIGKILL)
        output = rest_of(process)
        assert time.monotonic() - began < 40
    assert process.returncode == 1, output
    found = ends(run_dir)
    died = found["default/load-long-c2"]
    assert died.outcome is Outcome.SERVER_DIED
    assert "killed (signal 9)" in died.reason, died
    assert "memory" not in died.reason
    assert found["default/load-few-c2"].outcome is Outcome.OK
    assert output.count("ready    default") == 2
    seen = requests(run_dir, "default/load-long-c2")
    assert RequestOutcome.OK in {one.outcome for one in seen}
    (stage,) = stages(run_dir, "default/load-long-c2")
    assert stage.cut_off
    page = (run_dir / "num_shard-1.md").read_text(encoding="utf-8")
    assert "- server died, partial figures, long: concurrency 2: " in page
    assert " 2, partial |" in page
    assert "INVALID" in page


@pytest.mark.parametrize(
    ("find", "server", "found"),
    [
        # The router refuses what is above its limit at once.
        (
            {"max_concurrency": {"start": 2, "highest": 16, "repeats": 1}},
            {"max_concurrent_requests": 4},
            4,
        ),
        ({"max_rate": {"start": 40, "highest": 80, "repeats": 1}}, {}, 80),
    ],
)
def test_a_search(
    tool: Tool, find: dict[str, object], server: dict[str, object], found: float
) -> None:
    constant = {"max_input_tokens": 128, "max_total_tokens": 256, **server}
    extent = {"requests": 40} if "max_concurrency" in find else {"duration": "1s"}
    load = {"find": find, "slo": {"success": "99%", "ttft_p50": "10s"}, **extent}
    done = tool.sweep(write(tool.folder, load, server={"constant": constant}))
    assert done.returncode in ENDED, done.stdout + done.stderr
    run_dir = only_run(tool.results, "loads")
    ((trial_id, end),) = ends(run_dir).items()
    assert end.outcome is Outcome.OK, end
    steps = stages(run_dir, trial_id)
    assert [stage.index for stage in steps] == list(range(len(steps)))
    values = [float(stage.concurrency or stage.rate_per_s or 0) for stage in steps]
    assert f"trying   {trial_id}" in done.stdout
    assert done.stdout.count(f"tried    {trial_id}: ") == len(steps)
    assert values[0] == (2 if "max_concurrency" in find else 40)
    assert found in values
    text = (run_dir / "num_shard-1.md").read_text(encoding="utf-8")
    assert str(round(found)) in text
    document = json.loads(tool.run("report", run_dir, "--format", "json").stdout)
    assert f'"value": {float(found)}' in json.dumps(document)
    if "max_concurrency" in find:
        assert values == [2, 4, 8, 6, 5]
        refused = {
            stage.concurrency
            for stage in steps
            for one in requests(run_dir, trial_id)
            if one.stage == stage.index and one.outcome is RequestOutcome.OVERLOADED
        }
        assert refused == {5, 6, 8}


def test_repeats_of_a_step_send_at_other_times(tool: Tool) -> None:
    find = {"max_rate": {"start": 40, "lowest": 40, "highest": 41, "tolerance": "5%"}}
    load = {"find": find, "slo": {"ttft_p50": "10s"}, "duration": "1s", "warmup": "0s"}
    done = tool.sweep(write(tool.folder, load))
    assert done.returncode in ENDED, done.stdout + done.stderr
    run_dir = only_run(tool.results, "loads")
    trial_id = "default/load-find-max_rate"
    began = {stage.index: stage.began_ns for stage in stages(run_dir, trial_id)}
    sends = [
        [
            one.intended_ns - began[index]
            for one in requests(run_dir, trial_id)
            if one.stage == index
        ]
        for index in began
    ]
    assert [stage.repeat for stage in stages(run_dir, trial_id)] == [0, 1, 0, 1]
    assert sends[0][:10] != sends[1][:10]


def test_a_load_that_no_request_of_which_is_answered(tool: Tool) -> None:
    with FaultyServer() as server:
        server.behaviour("internal_error")
        attach = {"launcher": "attach", "url": server.url}
        file = tool.folder / "loads.yaml"
        file.write_text(
            json.dumps(
                {
                    "experiment": "loads",
                    "model": "auto",
                    "server": attach,
                    "load": [{"concurrency": 2, "requests": 6, "warmup": 1}],
                }
            )
        )
        done = tool.sweep(file)
    assert done.returncode == 1, done.stdout + done.stderr
    run_dir = only_run(tool.results, "loads")
    (end,) = ends(run_dir).values()
    assert end.outcome is Outcome.FAILED
    assert end.reason.startswith("no request was answered: HTTP 500")
    assert len(requests(run_dir, "default/load-c2")) == 7

"""Sweeps that are killed, interrupted and gone on with."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from tests.sweep.experiments import assert_whole, only_run, outcomes, runs_of, write
from tests.sweep.processes import Tool, kill, read_until, rest_of
from tgi_bench.observation import StepObservation
from tgi_bench.record.store import RunStore

ENDED = (0, 3)
TRIALS = 8


def finished_trials(run_dir: Path) -> dict[str, tuple[StepObservation, ...]]:
    """What was observed in each trial that has an end."""
    if not (run_dir / "run.db").exists():
        return {}
    with RunStore.open(run_dir, writable=False) as store:
        return {trial_id: tuple(store.seen(trial_id, StepObservation)) for trial_id in store.ends()}


def test_a_server_that_outlived_a_killed_sweep_is_ended_by_the_next(tool: Tool) -> None:
    """It is stopped, so that it does not end with its parent as it would by itself."""
    experiment = write(tool.folder, server={"variable": {"num_shard": [2]}})
    with tool.started(experiment) as process:
        read_until(process, "[1/4]")
        servers = [pid for pid in tool.living() if pid != process.pid]
        for pid in servers:
            os.kill(pid, signal.SIGSTOP)
        kill(process)
    assert set(servers) <= set(tool.living())
    done = tool.sweep(experiment, "--resume")
    killed = only_run(tool.results).name
    assert re.search(rf"ended \d+ processes that the killed sweep of {killed}", done.stdout)
    assert done.returncode in ENDED
    assert not set(servers) & set(tool.living())
    assert_whole(only_run(tool.results))


@pytest.mark.parametrize(
    ("number", "line"),
    [
        (signal.SIGINT, "starting num_shard-1"),
        (signal.SIGINT, "[2/8]"),
        (signal.SIGTERM, "[5/8]"),
        (signal.SIGHUP, "[3/8]"),
        (signal.SIGQUIT, "[3/8]"),
    ],
)
def test_an_interrupt_ends_cleanly_with_a_report_of_what_there_is(
    tool: Tool, number: signal.Signals, line: str
) -> None:
    experiment = write(tool.folder)
    with tool.started(experiment) as process:
        read_until(process, line)
        process.send_signal(number)
        output = rest_of(process)
        assert process.returncode == 130, output
    assert tool.living() == {}
    assert "Traceback" not in output
    assert "--resume" in output
    run_dir = only_run(tool.results)
    assert not (run_dir / "lock").exists()
    report = (run_dir / "report.md").read_text(encoding="utf-8")
    assert "INVALID" in report
    finished = finished_trials(run_dir)
    assert len(finished) < TRIALS
    done = tool.sweep(experiment, "--resume")
    assert done.returncode in ENDED
    with RunStore.open(run_dir, writable=False) as store:
        assert "Resumed (UTC)" in dict(store.header().environment)
    assert "Load average when resumed" in (run_dir / "report.md").read_text(encoding="utf-8")
    assert_whole(run_dir)
    after = finished_trials(run_dir)
    assert {trial_id: after[trial_id] for trial_id in finished} == finished


def test_two_interrupts_leave_no_server(tool: Tool) -> None:
    with tool.started(write(tool.folder)) as process:
        read_until(process, "[1/8]")
        process.send_signal(signal.SIGINT)
        time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        output = rest_of(process)
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert tool.left() == {}


def test_nothing_to_resume(tool: Tool) -> None:
    experiment = write(tool.folder)
    done = tool.sweep(experiment, "--resume")
    assert done.returncode == 2
    where = tool.results / "small"
    said = f"tgi-bench: nothing to resume: no unfinished run of this plan below {where}\n"
    assert done.stderr == said
    assert not tool.results.exists()


def test_a_folder_that_was_cut_off_before_its_first_write_is_named(tool: Tool) -> None:
    experiment = write(tool.folder)
    with tool.started(experiment) as process:
        read_until(process, "[1/8]")
        kill(process)
    run_dir = only_run(tool.results)
    (run_dir / "run.db").unlink()
    done = tool.sweep(experiment, "--resume")
    assert done.returncode == 2
    assert f"{run_dir} has no run.db: there is nothing of it to resume\n" in done.stderr
    assert "no unfinished run of this plan" in done.stderr


def test_a_finished_run_is_not_resumed_nor_one_of_another_plan(tool: Tool) -> None:
    experiment = write(tool.folder, batches={"sequence_length": [16], "batch_size": [1]})
    assert tool.sweep(experiment).returncode in ENDED
    run_dir = only_run(tool.results)
    before = (run_dir / "run.db").read_bytes()
    again = tool.sweep(experiment, "--resume")
    assert again.returncode == 2
    assert "no unfinished run of this plan" in again.stderr
    with tool.started(experiment) as process:
        read_until(process, "[1/2]")
        kill(process)
    other = tool.sweep(experiment, "--resume", "--set", "batches.runs=4")
    assert other.returncode == 2
    assert "no unfinished run of this plan" in other.stderr
    assert (run_dir / "run.db").read_bytes() == before
    assert len(runs_of(tool.results)) == 2


def test_a_sweep_that_is_killed_between_its_last_trial_and_its_report(tool: Tool) -> None:
    """What is left is made: the mark of its end, then every page; no trial is run again."""
    experiment = write(tool.folder, batches={"sequence_length": [16], "batch_size": [1]})
    assert tool.sweep(experiment).returncode in ENDED
    run_dir = only_run(tool.results)
    before = finished_trials(run_dir)
    pages = {page: page.read_text(encoding="utf-8") for page in run_dir.glob("*.md")}
    assert len(pages) == 3
    for finished in (1, 0):
        connection = sqlite3.connect(run_dir / "run.db")
        connection.execute("UPDATE run SET finished = ?", (finished,))
        connection.commit()
        connection.close()
        for page in pages:
            page.unlink()
        done = tool.sweep(experiment, "--resume")
        assert done.returncode in ENDED, done.stderr
        assert "2 of 2 trials ended before" in done.stdout
        assert "starting" not in done.stdout
        assert finished_trials(run_dir) == before
        assert_whole(run_dir)
        assert {page.name for page in run_dir.glob("*.md")} == {page.name for page in pages}
    assert tool.sweep(experiment, "--resume").returncode == 2


def test_an_earlier_report_is_no_report_of_a_run_that_was_gone_on_with(tool: Tool) -> None:
    experiment = write(tool.folder)
    with tool.started(experiment) as process:
        read_until(process, "[1/8]")
        process.send_signal(signal.SIGINT)
        rest_of(process)
    run_dir = only_run(tool.results)
    assert (run_dir / "report.md").exists()
    with tool.started(experiment, "--resume") as process:
        read_until(process, "[2/8]")
        kill(process)
    assert not (run_dir / "report.md").exists()


def test_a_damaged_and_a_newer_run_do_not_block_an_older_one(tool: Tool) -> None:
    experiment = write(tool.folder, batches={"sequence_length": [16], "batch_size": [1]})
    with tool.started(experiment) as process:
        read_until(process, "[1/2]")
        kill(process)
    oldest = only_run(tool.results)
    digits = oldest.name.partition("-")[2]
    later = [oldest.with_name(f"{'9' * 8}T{minute:06}Z-{digits}") for minute in (1, 2)]
    for folder in later:
        shutil.copytree(oldest, folder)
    (later[0] / "run.db").write_bytes((oldest / "run.db").read_bytes()[:5000])
    connection = sqlite3.connect(later[1] / "run.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    done = tool.sweep(experiment, "--resume")
    assert done.returncode in ENDED, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 2, done.stderr
    assert lines[0].startswith(f"passed over: {later[1]}/run.db: written in format 99 by a newer")
    assert lines[1].startswith(f"passed over: {later[0]}/run.db: is truncated")
    assert_whole(oldest)


def test_a_run_that_is_being_written_is_not_resumed(tool: Tool) -> None:
    experiment = write(tool.folder)
    with tool.started(experiment) as process:
        read_until(process, "[1/8]")
        done = tool.sweep(experiment, "--resume")
        rest_of(process)
    run_dir = only_run(tool.results)
    said = f"tgi-bench: this plan runs now: {run_dir} (process {process.pid})\n"
    assert (done.returncode, done.stderr) == (2, said)
    assert process.returncode in ENDED
    assert_whole(only_run(tool.results))


def test_a_report_of_a_living_run(tool: Tool) -> None:
    with tool.started(write(tool.folder)) as process:
        read_until(process, "[3/8]")
        report = tool.run("report", only_run(tool.results))
        rest_of(process)
    assert (report.returncode, report.stderr) == (0, "")
    assert "INVALID" in report.stdout
    assert process.returncode in ENDED


def test_an_interrupted_run_s_server_is_gone_from_its_sockets_too(tool: Tool) -> None:
    with tool.started(write(tool.folder)) as process:
        read_until(process, "[1/8]")
        process.send_signal(signal.SIGTERM)
        rest_of(process)
    run_dir = only_run(tool.results)
    assert len(outcomes(run_dir)) < TRIALS
    log = (run_dir / "launch" / "num_shard-1.log").read_text(encoding="utf-8")
    stem = log.partition('shard_uds_path: "')[2].partition('"')[0]
    assert stem
    assert not Path(stem).parent.exists()

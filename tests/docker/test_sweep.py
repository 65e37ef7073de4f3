"""Real containers of the embedded server under a real sweep: well, badly, interrupted."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
from docker.errors import APIError

from tests.docker.sweeps import FINE, Sweeps, outcomes, rows, steps_written, wait_for
from tgi_bench.launch.docker_engine import end_left_containers
from tgi_bench.launch.gpus import host_gpus
from tgi_bench.observation import ServerFacts
from tgi_bench.record.store import RunStore

ALL_TRIALS = {"s20-d4-b1", "s20-d4-b2", "s20-d4-b4"}


def _all_ok(run_dir: Path) -> bool:
    found = outcomes(run_dir)
    return set(found) == ALL_TRIALS and {outcome for outcome, _ in found.values()} == {"ok"}


def test_a_whole_sweep(sweeps: Sweeps) -> None:
    server = json.dumps({"variable": {"num_shard": [1, 2]}, "docker": {"shm_size": "128m"}})
    code, output = sweeps.run(sweeps.experiment(server=server))
    assert code in FINE, output
    (run_dir,) = sweeps.run_dirs()
    ends = rows(run_dir, "SELECT trial_id, outcome FROM attempts")
    assert len(ends) == 6
    assert {outcome for _, outcome in ends} == {"ok"}
    # Trials that share a deployment share its server.
    assert rows(run_dir, "SELECT count(*), sum(failure IS NULL) FROM starts") == [(2, 2)]
    with RunStore.open(run_dir, writable=False) as store:
        facts = store.facts("num_shard-2", ServerFacts)
    assert facts is not None
    assert (facts.simulated, facts.version) == (True, "0.9.4")
    details = dict(facts.details)
    assert details["Image"] == sweeps.image
    assert details["Image digest"].startswith("sha256:")
    assert details["container engine"].startswith("Docker ")
    assert dict(facts.arguments or ())["num_shard"] == "Some(2)"
    log = (run_dir / "launch" / "num_shard-2.log").read_text()
    assert "Shutting down shards" in log, "the log must be whole, to its last line"


def test_a_container_that_is_killed_in_the_middle_of_a_trial(sweeps: Sweeps) -> None:
    process = sweeps.start(sweeps.experiment(runs=60))
    wait_for(lambda: steps_written(sweeps) >= 8)
    (victim,) = sweeps.live()
    victim.kill()
    code, output = sweeps.finish(process)
    assert code == 1, output
    (run_dir,) = sweeps.run_dirs()
    found = outcomes(run_dir)
    assert set(found) == ALL_TRIALS
    (dead,) = [reason for outcome, reason in found.values() if outcome != "ok"]
    assert "killed (signal 9)" in dead
    assert rows(run_dir, "SELECT count(*) FROM starts") == [(2,)], "later trials need a new server"


def test_a_container_whose_memory_runs_out_in_the_middle_of_a_trial(sweeps: Sweeps) -> None:
    """Its limit says nothing of the device: the larger batches are made, on another container."""
    docker = {"shm_size": "2g", "options": {"mem_limit": "500m"}}
    experiment = sweeps.experiment(server=json.dumps({"docker": docker}), runs=60)
    process = sweeps.start(experiment)
    wait_for(lambda: steps_written(sweeps) >= 8)
    (victim,) = sweeps.live()
    # What lies in /dev/shm is the container's, and no process's that could be killed for it.
    with suppress(APIError):
        victim.exec_run(["sh", "-c", "head -c 600m /dev/zero > /dev/shm/full"])
    code, output = sweeps.finish(process)
    assert code == 1, output
    (run_dir,) = sweeps.run_dirs()
    found = outcomes(run_dir)
    assert set(found) == ALL_TRIALS
    ((outcome, reason),) = [end for end in found.values() if end[0] != "ok"]
    assert outcome == "host_out_of_memory", reason
    assert "the container ran out of memory of the host (its limit is 500 MiB)" in reason
    assert re.match(r"(prefill|decode step \d) of batch size \d: ", reason)


def test_a_container_that_is_paused_is_said_to_be(sweeps: Sweeps) -> None:
    process = sweeps.start(sweeps.experiment(runs=60), "--set", "batches.step_timeout_s=2")
    wait_for(lambda: steps_written(sweeps) >= 8)
    (victim,) = sweeps.live()
    victim.pause()
    code, output = sweeps.finish(process)
    assert code == 1, output
    (run_dir,) = sweeps.run_dirs()
    ((outcome, reason),) = [end for end in outcomes(run_dir).values() if end[0] != "ok"]
    assert outcome == "timeout"
    assert f"its container is paused (`docker unpause {victim.name}` wakes it)" in reason


@pytest.mark.parametrize(
    ("docker", "cause"),
    [
        ({"options": {"entrypoint": ["sleep", "600"]}}, "invalid time interval|exit code 1"),
        ({"options": {"mem_limit": "24m"}}, "out of memory of the host.*limit is 24 MiB"),
        (
            {"options": {"entrypoint": ["sh", "-c", "head -c 200000 /dev/urandom; exit 3"]}},
            "exit code 3",
        ),
        ({"options": {"entrypoint": ["/no/such/program"]}}, "did not start the container.*no/such"),
        ({"network": "none"}, "leaves no way to reach"),
        ({"network": "no-such-network"}, "no-such-network"),
        ({"options": {"tty": True}}, "server.docker.options.tty"),
        ({"options": {"no_such_option": 1}}, "no_such_option"),
    ],
    ids=[
        "exits",
        "memory",
        "garbage",
        "program",
        "none",
        "network",
        "tty",
        "option",
    ],
)
def test_a_server_that_does_not_start(
    sweeps: Sweeps, docker: dict[str, object], cause: str
) -> None:
    """Each ends by itself, however long a busy machine takes for it."""
    _does_not_start(sweeps, {"docker": docker}, cause)


def test_a_server_that_is_never_ready(sweeps: Sweeps) -> None:
    docker = {"options": {"entrypoint": ["sh", "-c", "sleep 600"]}}
    cause = r"not ready within 1.5 s \(server.timeouts.load_s\)"
    _does_not_start(sweeps, {"docker": docker, "timeouts": {"load_s": 1.5}}, cause)


def _does_not_start(sweeps: Sweeps, keys: dict[str, object], cause: str) -> None:
    server = json.dumps(keys)
    code, output = sweeps.run(sweeps.experiment(server=server))
    assert code == 1, output
    (run_dir,) = sweeps.run_dirs()
    ((failure,),) = rows(run_dir, "SELECT failure FROM starts")
    assert _matches(cause, str(failure)), failure
    assert "\n" not in str(failure)
    assert {outcome for outcome, _ in outcomes(run_dir).values()} == {"launch_failed"}


def _matches(pattern: str, text: str) -> bool:
    return re.search(pattern, text) is not None


def test_an_image_that_is_missing(sweeps: Sweeps) -> None:
    missing = "localhost:1/nobody/nothing:0.9.4"
    experiment = sweeps.experiment(server=json.dumps({"image": missing}))
    code, _ = sweeps.run(experiment, "--no-pull")
    assert code == 1
    code, _ = sweeps.run(experiment)
    assert code == 1
    failures = [str(rows(run, "SELECT failure FROM starts")[0][0]) for run in sweeps.run_dirs()]
    assert any("not on the engine, and --no-pull" in failure for failure in failures)
    assert any("cannot be pulled" in failure for failure in failures)


def test_an_engine_without_gpus(sweeps: Sweeps) -> None:
    if host_gpus() or "nvidia" in sweeps.client.info().get("Runtimes", {}):
        pytest.skip("this engine can give GPUs to containers")
    code, _ = sweeps.run(sweeps.experiment(server=json.dumps({"docker": {"gpus": 1}})))
    assert code == 1
    (run_dir,) = sweeps.run_dirs()
    ((failure,),) = rows(run_dir, "SELECT failure FROM starts")
    assert "NVIDIA Container Toolkit" in str(failure)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("when", ["starting", "measuring"])
def test_an_interrupted_sweep_leaves_nothing(
    sweeps: Sweeps, number: signal.Signals, when: str
) -> None:
    process = sweeps.start(sweeps.experiment(runs=60))
    if when == "starting":
        wait_for(lambda: sweeps.containers())
    else:
        wait_for(lambda: steps_written(sweeps) >= 8)
    process.send_signal(number)
    code, output = sweeps.finish(process)
    assert code == 130, output
    assert sweeps.containers() == []


def test_a_second_interrupt_does_not_wait_for_a_container_that_does_not_stop(
    sweeps: Sweeps,
) -> None:
    script = "trap '' TERM; text-generation-launcher \"$@\" & while :; do sleep 1; done"
    docker = {"options": {"entrypoint": ["sh", "-c", script, "entry"]}}
    process = sweeps.start(sweeps.experiment(server=json.dumps({"docker": docker}), runs=60))
    wait_for(lambda: steps_written(sweeps) >= 8)
    process.send_signal(signal.SIGINT)
    wait_for(lambda: _stopping(sweeps))
    process.send_signal(signal.SIGINT)
    code, output = sweeps.finish(process)
    assert code == 130, output
    assert "Traceback" not in output
    assert sweeps.containers() == []


def _stopping(sweeps: Sweeps) -> bool:
    """Whether its container was sent a signal."""
    names = sweeps.containers()
    events = sweeps.client.events(
        since=int(time.time()) - 60, until=int(time.time()), decode=True, filters={"event": "kill"}
    )
    return any(event["Actor"]["Attributes"]["name"] in names for event in events)


def test_a_secret_stays_one(sweeps: Sweeps) -> None:
    value = f"hf_{secrets.token_hex(16)}"
    script = (
        'echo "in the middle: $HF_TOKEN."; printf %s "$HUGGING_FACE_HUB_TOKEN";'
        ' echo "$HF_TOKEN" >&2; exec text-generation-launcher "$@"'
    )
    docker = {"options": {"entrypoint": ["sh", "-c", script, "entry"]}}
    server = json.dumps({"env": ["HF_TOKEN"], "docker": docker})
    process = sweeps.start(sweeps.experiment(server=server, runs=30), environ={"HF_TOKEN": value})
    wait_for(lambda: steps_written(sweeps) >= 8)
    (container,) = sweeps.live()
    inspected = sweeps.client.api.inspect_container(str(container.id))
    told = inspected["Config"].pop("Env")
    assert f"HF_TOKEN={value}" in told, "the server must get it"
    assert f"HUGGING_FACE_HUB_TOKEN={value}" in told, "0.9.4 reads the older name"
    code, output = sweeps.finish(process)
    assert code in FINE, output
    assert value not in json.dumps(inspected)
    assert value not in output
    for file in sweeps.folder.rglob("*"):
        assert not file.is_file() or value.encode() not in file.read_bytes(), file
    (run_dir,) = sweeps.run_dirs()
    log = (run_dir / "launch" / "default.log").read_text()
    assert log.count("[redacted]") == 3


def test_two_sweeps_at_once(sweeps: Sweeps) -> None:
    first = sweeps.start(sweeps.experiment("first", runs=30))
    wait_for(lambda: steps_written(sweeps) >= 1)
    second = sweeps.start(sweeps.experiment("second", runs=30))
    wait_for(lambda: len(sweeps.live()) == 2)
    alive = set(sweeps.containers())
    assert not alive & {left.name for left in end_left_containers()}
    assert set(sweeps.containers()) == alive
    assert sweeps.finish(first)[0] in FINE
    assert sweeps.finish(second)[0] in FINE
    assert all(_all_ok(run_dir) for run_dir in sweeps.run_dirs())


def test_what_a_killed_sweep_left_is_found_by_its_label(sweeps: Sweeps) -> None:
    process = sweeps.start(sweeps.experiment(runs=60))
    wait_for(lambda: steps_written(sweeps) >= 1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    (name,) = sweeps.containers()
    (folder,) = sweeps.temporary.iterdir()
    run_id = sweeps.run_dirs()[0].name
    said = sweeps.clean()
    assert f"removed the container {name} that the killed sweep of {run_id} had left" in said
    assert f"removed the socket folder {folder}" in said
    assert sweeps.containers() == []

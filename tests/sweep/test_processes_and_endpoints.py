"""Whole sweeps with the launchers `process` and `attach`."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.launch.deployments import launch
from tests.launch.test_program import FAKE, _options, _serve
from tests.sweep.real_servers import ROOT, SERVE, ends, experiment, tgi_bench, the_run
from tgi_bench.observation import StepObservation
from tgi_bench.record.store import RunStore

CRASH = """
import os, runpy, signal, sys, threading, time
# Its shards end while the sweep's first trial runs.
def crash():
    while not os.path.exists({marker!r}):
        time.sleep(0.005)
    print("Method Decode: CUDA out of memory. Tried to allocate 1.00 GiB", flush=True)
    print("Error: ShardFailed", flush=True)
    os.killpg(os.getpid(), signal.SIGKILL)
"""


def test_a_sweep_of_processes(tmp_path: Path) -> None:
    file = experiment(tmp_path, command=SERVE, variable={"num_shard": [1, 2]})
    done = tgi_bench(tmp_path, "sweep", str(file))
    assert done.returncode in (0, 3), done.stdout + done.stderr
    run_dir = the_run(tmp_path)
    assert ends(run_dir) == {f"num_shard-{n}/s16-d3-b{b}": "ok" for n in (1, 2) for b in (1, 2)}
    report = (run_dir / "report.md").read_text()
    assert "**Simulated.** The server says of itself that it simulates" in report
    assert re.search(r"^\| /info +\| \{", report, re.MULTILINE)
    assert "text-generation-launcher --model-id" in (run_dir / "num_shard-1.md").read_text()
    assert "arguments in effect are those requested: as printed by 2 servers" in report


def test_one_that_fails_leaves_the_others_alone(tmp_path: Path) -> None:
    stub = (
        "import os, sys\n"
        "if sys.argv[sys.argv.index('--num-shard') + 1] == '2':\n"
        "    print('Error: NotEnoughCUDADevices(\"only 1 found\")')\n"
        "    sys.exit(1)\n"
        f"os.execv({sys.executable!r}, {SERVE!r} + sys.argv[1:])"
    )
    file = experiment(
        tmp_path, command=[sys.executable, "-c", stub], variable={"num_shard": [2, 1]}
    )
    done = tgi_bench(tmp_path, "sweep", str(file))
    assert done.returncode == 1
    assert "NOT STARTED num_shard-2: too few GPUs: only 1 found (exit code 1)" in done.stdout
    assert "  | Error: NotEnoughCUDADevices" in done.stdout
    found = ends(the_run(tmp_path))
    assert [found[f"num_shard-2/s16-d3-b{b}"] for b in (1, 2)] == ["launch_failed"] * 2
    assert [found[f"num_shard-1/s16-d3-b{b}"] for b in (1, 2)] == ["ok"] * 2


def test_an_attached_server_is_driven_and_goes_on(tmp_path: Path) -> None:
    with launch(_serve(num_shard=1), _options(tmp_path)) as server:
        url, socket = server.endpoint.url, str(server.endpoint.master_socket)
        file = experiment(tmp_path, url=url, sockets=socket)
        done = tgi_bench(tmp_path, "sweep", str(file), "--launcher", "attach")
        assert done.returncode in (0, 3), done.stdout + done.stderr
        assert set(ends(the_run(tmp_path)).values()) == {"ok"}
        report = (the_run(tmp_path) / "report.md").read_text()
        assert "| Found by asking" in report
        assert server.alive()


def test_shards_alone_are_driven_and_say_how_many_they_are(tmp_path: Path) -> None:
    """Without server.url: no router is asked. num_shard is what the sockets say."""
    with launch(_serve(num_shard=2), _options(tmp_path)) as server:
        file = experiment(tmp_path, sockets=str(server.endpoint.master_socket))
        done = tgi_bench(tmp_path, "sweep", str(file), "--launcher", "attach")
        assert done.returncode in (0, 3), done.stdout + done.stderr
        assert server.alive()
    run_dir = the_run(tmp_path)
    assert set(ends(run_dir).values()) == {"ok"}
    document = json.loads(tgi_bench(tmp_path, "report", str(run_dir), "--format", "json").stdout)
    assert document["origin"] == "simulated"
    (shown,) = document["deployments"]
    assert shown["num_shard"] == 2
    assert shown["server"]["shards"]["device_types"] == ["simulated", "simulated"]
    page = (run_dir / "num_shard-2.md").read_text()
    assert "num_shard as its sockets say." in page
    assert "The shard at /" in page
    assert "None" not in page.partition("# Experiment Generation")[0].partition("# Arg")[0]
    assert "- num_shard: 2\n" in page
    rows = (run_dir / "report.md").read_text()
    assert re.search(r"\| gRPC shards +\| generate.v1, simulated, torch\S*: 2 ranks", rows)


def test_loads_of_shards_alone_are_refused(tmp_path: Path) -> None:
    file = experiment(tmp_path, sockets="/tmp/no-such-socket")
    file.write_text(file.read_text() + "load: {concurrency: 1, requests: 1}\n")
    done = tgi_bench(tmp_path, "sweep", str(file), "--launcher", "attach")
    assert done.returncode == 2
    said = "server.url: is missing: a load is sent over HTTP, and server.sockets takes batches only"
    assert said in done.stderr


def test_num_shard_of_loads_is_what_the_sockets_say(tmp_path: Path) -> None:
    with launch(_serve(num_shard=2), _options(tmp_path)) as server:
        url, socket = server.endpoint.url, str(server.endpoint.master_socket)
        text = experiment(tmp_path, url=url, sockets=socket).read_text().partition("batches:")[0]
        file = tmp_path / "real.yaml"
        file.write_text(text + "load: {concurrency: 1, requests: 3}\n")
        done = tgi_bench(tmp_path, "sweep", str(file), "--launcher", "attach")
        assert done.returncode in (0, 3), done.stdout + done.stderr
    document = tgi_bench(tmp_path, "report", str(the_run(tmp_path)), "--format", "json")
    assert json.loads(document.stdout)["deployments"][0]["num_shard"] == 2


def test_without_sockets_batches_are_refused_and_say_why(tmp_path: Path) -> None:
    file = experiment(tmp_path, command=[sys.executable, str(FAKE)], engine="vllm")
    text = file.read_text().replace("version: 0.9.4", "version: 0.11.0")
    file.write_text(text)
    planned = tgi_bench(tmp_path, "plan", str(file))
    assert f"process {sys.executable} {FAKE}, vLLM 0.11.0" in planned.stdout
    assert "vLLM has no gRPC shards: its batches will end `refused`" in planned.stdout
    done = tgi_bench(tmp_path, "sweep", str(file))
    assert done.returncode == 3, done.stdout + done.stderr
    assert set(ends(the_run(tmp_path)).values()) == {"refused"}
    page = (the_run(tmp_path) / "num_shard-1.md").read_text()
    assert "vllm serve bigscience/bloomz-1b1" in page
    document = tgi_bench(tmp_path, "report", str(the_run(tmp_path)), "--format", "json")
    (server,) = json.loads(document.stdout)["deployments"]
    assert server["engine"] == "vllm"
    assert server["server"]["details"]["Model served"] == "served-name"


def test_a_server_that_dies_in_the_middle_of_a_trial(tmp_path: Path) -> None:
    """The trial says what its log says; the next trial gets a new server."""
    marker = tmp_path / "now"
    stub = tmp_path / "dying.py"
    stub.write_text(
        CRASH.format(marker=str(marker))
        + "threading.Thread(target=crash, daemon=True).start()\n"
        + f"sys.argv = {SERVE[2:]!r} + sys.argv[1:]\n"
        "sys.argv[0] = 'tgi-bench'\n"
        "from tgi_bench.cli.main import main as run\n"
        "run()\n"
    )
    file = experiment(tmp_path, command=[sys.executable, str(stub)])
    text = file.read_text().replace("runs: 3", "runs: 400")
    file.write_text(text)
    sweep = subprocess.Popen(
        [sys.executable, "-m", "tgi_bench.cli.main", "sweep", str(file)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        _wait_for_steps(tmp_path)
        marker.touch()
        output, _ = sweep.communicate(timeout=100)
    finally:
        sweep.kill()
    with RunStore.open(the_run(tmp_path), writable=False) as store:
        found = store.ends()
    first = found["default/s16-d3-b1"]
    assert first.outcome.value == "out_of_memory", output
    told = "; CUDA out of memory. Tried to allocate 1.00 GiB (killed (signal 9))"
    assert first.reason.endswith(told)
    assert found["default/s16-d3-b2"].outcome.value == "skipped"


def test_a_rank_that_is_killed_is_no_rank_that_ran_out_of_memory(tmp_path: Path) -> None:
    """The reason names the step, the batch size, the rank and the log's line; the larger batch,
    which a kill says nothing of, is made on another server."""
    file = experiment(tmp_path, command=SERVE, constant={"num_shard": 2})
    file.write_text(file.read_text().replace("runs: 3", "runs: 150"))
    sweep = subprocess.Popen(
        [sys.executable, "-m", "tgi_bench.cli.main", "sweep", str(file)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        _wait_for_steps(tmp_path)
        os.kill(_rank_process(the_run(tmp_path).name), signal.SIGKILL)
        output, _ = sweep.communicate(timeout=100)
    finally:
        sweep.kill()
    with RunStore.open(the_run(tmp_path), writable=False) as store:
        found = store.ends()
    first = found["default/s16-d3-b1"]
    assert first.outcome.value == "shard_died", output
    where = r"(?:prefill|decode step [12]) of batch size 1: "
    line = r"; shard (\d) was killed \(signal 9\)(?: \(exit code 1\))?"
    match = re.fullmatch(
        rf"{where}shard_rank (\d): (?:UNAVAILABLE|CANCELLED): .+{line}", first.reason
    )
    assert match is not None, first.reason
    assert match[1] == match[2]
    assert "memory" not in output
    assert found["default/s16-d3-b2"].outcome.value == "ok"


def _rank_process(run_id: str) -> int:
    """A process of the run whose parent is of the run too: a rank of its server."""
    of_run = set(_of_run(run_id))
    for pid in of_run:
        fields = (Path("/proc") / pid / "stat").read_text().rpartition(")")[2].split()
        if fields[1] in of_run:
            return int(pid)
    raise AssertionError("the run has no rank")


def _wait_for_steps(tmp_path: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        runs = list((tmp_path / "results" / "real").glob("*/run.db"))
        if runs:
            with RunStore.open(runs[0], writable=False) as store:
                if tuple(store.seen("default/s16-d3-b1", StepObservation)):
                    return
        time.sleep(0.02)
    raise AssertionError("no step was recorded")


def test_how_to_make_it_again_is_what_was_typed(tmp_path: Path) -> None:
    """A path outside the working folder too: without it nothing is found again."""
    kept = tmp_path / "kept here"
    file = experiment(tmp_path, url="http://127.0.0.1:9", timeouts={"probe_s": 0.1})
    words = ["--set", "batches.runs=3", "--launcher", "attach", "--no-pull"]
    done = tgi_bench(tmp_path, "sweep", file.name, *words, "--results", str(kept))
    assert done.returncode == 1, done.stdout + done.stderr
    (run_dir,) = (kept / "real").iterdir()
    page = (run_dir / "report.md").read_text()
    found = re.search(r"# How to make it again\n\n```bash\n(.*)\n(.*)\n```", page)
    assert found is not None
    assert shlex.split(found[1])[:3] == ["tgi-bench", "sweep", "real.yaml"]
    assert shlex.split(found[1])[-3:] == ["--results", str(kept), "--no-pull"]
    assert {"batches.runs=3", "server.launcher=attach"} <= set(shlex.split(found[1]))
    assert shlex.split(found[2]) == ["tgi-bench", "report", str(run_dir)]
    again = tgi_bench(tmp_path, *shlex.split(found[1])[1:])
    assert again.returncode == 1
    assert len(list((kept / "real").iterdir())) == 2


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "tgi-bench: `text-generation-launcher` is not on the PATH: install it, or say in"),
        ({"command": SERVE, "env": ["NOT_SET"]}, "tgi-bench: server.env: NOT_SET not set in the"),
    ],
)
def test_what_cannot_start_is_refused_before_anything(
    tmp_path: Path, keys: dict[str, object], message: str
) -> None:
    done = tgi_bench(tmp_path, "sweep", str(experiment(tmp_path, **keys)))
    assert done.returncode == 2
    assert done.stderr.startswith(message)
    assert not (tmp_path / "results").exists()


def test_a_sweep_that_is_killed_leaves_nothing_after_clean_and_is_resumed(tmp_path: Path) -> None:
    file = experiment(tmp_path, command=SERVE, constant={"num_shard": 2})
    file.write_text(file.read_text().replace("runs: 3", "runs: 60"))
    with subprocess.Popen(
        [sys.executable, "-m", "tgi_bench.cli.main", "sweep", str(file)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
    ) as sweep:
        _wait_for_steps(tmp_path)
        run_dir = the_run(tmp_path)
        sweep.kill()
    nowhere = {"DOCKER_HOST": "unix:///nonexistent/docker.sock"}
    assert tgi_bench(tmp_path, "clean", environ=nowhere).returncode == 0
    assert _of_run(run_dir.name) == []
    done = tgi_bench(tmp_path, "sweep", str(file), "--resume")
    assert done.returncode in (0, 3), done.stdout + done.stderr
    assert ends(run_dir) == {f"default/s16-d3-b{b}": "ok" for b in (1, 2)}
    assert _of_run(run_dir.name) == []


def _of_run(run_id: str) -> list[str]:
    """Processes that carry the mark of a run."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            environ = (folder / "environ").read_bytes() if folder.name.isdecimal() else b""
        except OSError:
            continue
        if f"TGI_BENCH_RUN={run_id}".encode() in environ:
            found.append(folder.name)
    return found

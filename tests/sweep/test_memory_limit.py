"""A sweep under a memory limit that the kernel enforces: a kill with evidence, which is no out of
memory of the device."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sweep.real_servers import ROOT, experiment, the_run
from tests.sweep.test_processes_and_endpoints import _wait_for_steps
from tgi_bench.record.store import RunStore

LIMIT = "500000000"
HOGGING = """
import os, sys, threading, time
def hog():
    while True:
        time.sleep(0.01)
        try:
            os.unlink({marker!r})
        except FileNotFoundError:
            continue
        data = []
        while True:
            data.append(bytearray(os.urandom(1) * 10_000_000))
with open("/proc/self/oom_score_adj", "w") as score:
    score.write("1000")  # it, and not the sweep, is what the kernel ends
threading.Thread(target=hog, daemon=True).start()
sys.argv = ["tgi-bench", "serve", "--tgi-version", "0.9.4", *sys.argv[1:]]
from tgi_bench.cli.main import main
main()
"""


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A memory cgroup of the test's own, with its limit."""
    v1, v2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    root, limit = (v1, "memory.limit_in_bytes") if v1.is_dir() else (v2, "memory.max")
    folder = root / f"tgi-bench-test-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
        (folder / limit).write_text(LIMIT)
    except OSError as error:
        if folder.is_dir():
            folder.rmdir()
        pytest.skip(f"SKIPPED, NO MEMORY LIMIT WAS TESTED: no cgroup can be made: {error}")
    yield folder
    folder.rmdir()


@pytest.mark.long
def test_a_server_that_the_kernel_killed_for_want_of_memory(tmp_path: Path, cgroup: Path) -> None:
    marker, stub = tmp_path / "now", tmp_path / "hogging.py"
    stub.write_text(HOGGING.format(marker=str(marker)))
    file = experiment(tmp_path, command=[sys.executable, str(stub)])
    file.write_text(file.read_text().replace("runs: 3", "runs: 200"))
    words = f"echo $$ > {cgroup}/cgroup.procs; exec {sys.executable} -m tgi_bench.cli.main"
    sweep = subprocess.Popen(
        ["sh", "-c", f"{words} sweep {file}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        _wait_for_steps(tmp_path)
        marker.touch()
        output, _ = sweep.communicate(timeout=200)
    finally:
        sweep.kill()
        sweep.wait()
    assert sweep.returncode == 1, output
    run_dir = the_run(tmp_path)
    with RunStore.open(run_dir, writable=False) as store:
        found = store.ends()
    first = found["default/s16-d3-b1"]
    assert first.outcome.value == "host_out_of_memory", output
    assert "killed (signal 9)" in first.reason
    assert "oom_kill of its cgroup rose by " in first.reason
    assert found["default/s16-d3-b2"].outcome.value == "ok"
    page = (run_dir / "num_shard-1.md").read_text()
    assert "host OOM" in page
    assert "raise the limit of its container (server.docker.options.mem_limit) or cgroup" in page

"""A disk that fills up ends a sweep in one sentence, with exit code 1, to be resumed."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sweep import experiments, loads
from tests.sweep.experiments import assert_whole, only_run
from tests.sweep.processes import ROOT, Tool
from tgi_bench.record.store import RunStore

ENDED = (0, 3)
GO_ON = "make room, then the same command and --resume"
NAMESPACE = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "-r", "--mount"]
LOADS: tuple[dict[str, object], ...] = (
    {"name": "a", "concurrency": 2, "requests": 20, "warmup": 0},
    {"name": "b", "concurrency": 2, "requests": 400, "warmup": 0},
)


@pytest.fixture(scope="module")
def namespace() -> list[str]:
    """What a command is run with that may mount: root may, others where the kernel lets them."""
    mount = [*NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt"]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"SKIPPED, NO FULL DISK WAS TESTED: no mount here: {done.stderr.strip()}")
    return NAMESPACE


@pytest.mark.parametrize(
    ("kind", "line", "secret", "spare"),
    [
        ("batches", "run  ", False, 0),
        ("batches", "[2/8]", False, 20_000),
        ("batches", "[2/8]", True, 0),
        ("batches", "starting num_shard-2", False, 0),
        ("batches", "starting num_shard-2", True, 8_000),
        ("loads", "[1/2]", False, 20_000),
    ],
)
def test_nothing_is_lost_on_a_full_disk(
    namespace: list[str], tmp_path: Path, kind: str, line: str, secret: bool, spare: int
) -> None:
    """secret: the server's log is written by a thread of the sweep, not by the server."""
    file = experiments.write(tmp_path) if kind == "batches" else loads.write(tmp_path, *LOADS)
    script = [sys.executable, "-m", "tests.sweep.full_disk", str(tmp_path), str(file)]
    done = subprocess.run(
        [*namespace, *script, line, str(spare)],
        cwd=ROOT,
        env={**os.environ, **({"HF_TOKEN": "hf_abcdefghijklmn"} if secret else {})},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    came = json.loads(done.stdout)
    assert came["code"] == 1, came
    assert "Traceback" not in came["said"] + came["resumed"]
    last = came["said"].splitlines()[-1]
    assert last.endswith(GO_ON), came["said"]
    assert "No space left" in last or "full" in last or "I/O" in last
    assert came["said"].count(GO_ON) == 1
    assert came["left"] == {}
    run_dir = only_run(tmp_path / "kept", "small" if kind == "batches" else "loads")
    if kind == "batches":
        assert_whole(run_dir)
    with RunStore.open(run_dir, writable=False) as store:
        assert store.finished()
        assert {end.outcome.value for end in store.ends().values()} == {"ok"}, came
    assert (run_dir / "report.md").exists()


@pytest.mark.parametrize("most_bytes", [100_000, 300_000])
def test_a_file_that_may_not_grow(tool: Tool, most_bytes: int) -> None:
    """RLIMIT_FSIZE, where nothing can be mounted: of its own, so the server ends early too."""
    file = experiments.write(tool.folder)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
    try:
        done = tool.sweep(file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    resumed = tool.sweep(file, "--resume")
    if most_bytes == 100_000:  # less than the empty tables take: there is no run yet
        assert "cannot be written" in done.stderr
        assert resumed.returncode == 2
        assert list((tool.results / "small").iterdir()) == []
        return
    assert done.stdout.splitlines()[-1].endswith(GO_ON)
    assert resumed.returncode in ENDED, resumed.stderr
    assert_whole(only_run(tool.results))

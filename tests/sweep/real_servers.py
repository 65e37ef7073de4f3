"""tgi-bench as a user runs it, and experiments whose servers are processes and endpoints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tgi_bench.record.store import RunStore

ROOT = Path(__file__).parents[2]
SERVE = [sys.executable, "-m", "tgi_bench.cli.main", "serve", "--tgi-version", "0.9.4"]

EXPERIMENT = """
experiment: real
model: bigscience/bloomz-1b1
server:
  launcher: process
  version: 0.9.4
  {server}
batches: {{sequence_length: 16, decode_length: 3, batch_size: [1, 2], runs: 3}}
"""


def experiment(tmp_path: Path, **server: object) -> Path:
    """An experiment file; server: keys below `server`."""
    keys = "\n  ".join(f"{name}: {json.dumps(value)}" for name, value in server.items())
    file = tmp_path / "real.yaml"
    file.write_text(EXPERIMENT.format(server=keys), encoding="utf-8")
    return file


def tgi_bench(
    tmp_path: Path, *words: str, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """One command, run to its end in `tmp_path`."""
    return subprocess.run(
        [sys.executable, "-m", "tgi_bench.cli.main", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(environ or {})},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def the_run(tmp_path: Path) -> Path:
    """The folder of the only run."""
    (run_dir,) = (tmp_path / "results" / "real").iterdir()
    return run_dir


def ends(run_dir: Path) -> dict[str, str]:
    """Each trial's outcome."""
    with RunStore.open(run_dir, writable=False) as store:
        return {trial: end.outcome.value for trial, end in store.ends().items()}

"""How long the command line takes to answer, as a process of its own."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from tests.bench.figures import Figure

RUNS = 15
ROOT = Path(__file__).parents[2]


def run() -> tuple[Figure, ...]:
    """Medians over RUNS processes each."""
    return (
        _timed("`tgi-bench --help`", ["--help"]),
        _timed("`tgi-bench plan`", ["plan", str(ROOT / "experiments" / "bloomz.yaml")]),
    )


def _timed(name: str, arguments: list[str]) -> Figure:
    command = [str(Path(sys.executable).parent / "tgi-bench"), *arguments]
    took = []
    for _ in range(RUNS):
        began = time.monotonic()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        took.append(time.monotonic() - began)
    return Figure(
        name, 0.4, statistics.median(took), "s", f"p50 of {RUNS}, highest {max(took):.3f}"
    )

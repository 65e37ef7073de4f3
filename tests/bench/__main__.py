"""`make bench`: our own figures against their goals. No test: noise must not turn CI red."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from tests.bench import (
    bad_input,
    client_overhead,
    containers,
    load,
    start_up,
    sweep_overhead,
    telemetry,
    torch_step,
)
from tests.bench.figures import Bench

BENCHES: tuple[Bench, ...] = (
    client_overhead.run,
    start_up.run,
    sweep_overhead.run,
    containers.run,
    bad_input.run,
    load.run,
    telemetry.run,
    torch_step.run,
)


def main() -> None:
    """Print a row for each figure."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("Figure", "Goal", "Measured", "", "Detail"):
        table.add_column(name, justify="right" if name in ("Goal", "Measured") else "left")
    for bench in BENCHES:
        for figure in bench():
            table.add_row(*figure.cells())
    console = Console()
    console = console if console.is_terminal else Console(width=160)
    console.print(table)


if __name__ == "__main__":
    main()

"""`tgi-bench clean`: what killed sweeps have left is ended."""

from __future__ import annotations

from tgi_bench.cli.echo import echo
from tgi_bench.launch.left_behind import end_left


def run() -> None:
    """End it and say so."""
    left = end_left(containers=True)
    for line in left.sentences():
        echo(line)
    if not left.sentences():
        echo("nothing was left")
    if left.not_asked:
        echo(f"containers were not looked for: {left.not_asked}")

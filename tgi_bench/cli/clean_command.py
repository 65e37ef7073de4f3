"""`tgi-bench clean`: what killed sweeps have left is ended."""

from __future__ import annotations

import click

from tgi_bench.launch.left_behind import end_left


def run() -> None:
    """End it and say so."""
    left = end_left(containers=True)
    for line in left.sentences():
        click.echo(line)
    if not left.sentences():
        click.echo("nothing was left")
    if left.not_asked:
        click.echo(f"containers were not looked for: {left.not_asked}")

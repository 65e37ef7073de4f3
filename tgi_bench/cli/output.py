"""Lines that need no layout, and what the process's exit code says."""

from __future__ import annotations

import click

from tgi_bench.inert import printable

FAILED = 1
BAD_INPUT = 2
INVALID = 3
MISSED = 4
INTERRUPTED = 130


def echo(text: str = "", nl: bool = True, err: bool = False) -> None:
    """Print it; whatever it quotes, of a server too, does nothing to the terminal."""
    click.echo(printable(text), nl=nl, err=err)

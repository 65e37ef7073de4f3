"""Lines that need no layout, to the standard output or to that of errors."""

from __future__ import annotations

import click

from tgi_bench.inert import printable


def echo(text: str = "", nl: bool = True, err: bool = False) -> None:
    """Print it; whatever it quotes, of a server too, does nothing to the terminal."""
    click.echo(printable(text), nl=nl, err=err)

"""The standard output as rich sees it."""

from __future__ import annotations

from rich.console import Console

_WIDTH_OF_A_FILE = 400


def standard_output() -> Console:
    """As wide as the terminal; wide enough for every table where it is a file or a pipe."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDTH_OF_A_FILE)

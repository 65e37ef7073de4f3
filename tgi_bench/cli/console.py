"""The standard output as rich sees it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from tgi_bench.inert import printable

_WIDTH_OF_A_FILE = 400


class InertConsole(Console):
    """Text that is printed is text: no markup, no emoji names, no escape sequences of its own.

    Colours and the moves of a live display are rich's and stay.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"highlight": False, "markup": False, "emoji": False, **options})

    def render_str(self, text: str, **options: Any) -> Text:
        """Before it is laid out, so that its columns are as wide as they look."""
        return super().render_str(printable(text), **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """And after it, whatever made the text."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)


def standard_output() -> Console:
    """As wide as the terminal; wide enough for every table where it is a file or a pipe."""
    console = InertConsole()
    return console if console.is_terminal else InertConsole(width=_WIDTH_OF_A_FILE)

"""Units of figures: how a value is written for people, and what its key ends with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tgi_bench.analysis.samples import Figure
from tgi_bench.report.durations import duration
from tgi_bench.report.words import UNDEFINED

Value = None | bool | int | float | str | Figure


@dataclass(frozen=True, slots=True)
class Unit:
    """How a value is written for people, and what its key ends with.

    suffix: of the key. scale: how many of the value's own unit make one of that which is shown.
    form: format of the number; below_one: instead, of less than one; after: what follows it.
    screen: the number as the screen has it, where that is shorter.
    none: of a value that is undefined; "": UNDEFINED on a page, an empty cell in CSV.
    blanks: a word's _ is a blank on pages and on the screen.
    right: how its column is aligned. figure: False where it says what a row is of, which a row
    without figures says too.
    """

    suffix: str = ""
    scale: float = 1
    form: str = ""
    below_one: str = ""
    after: str = ""
    screen: Callable[[float], str] | None = None
    none: str = ""
    blanks: bool = False
    right: bool = True
    figure: bool = True

    def text(self, value: Value) -> str:
        """ "12.30 ms [11.90, 12.80]": of a Figure with the ends of its interval, where known."""
        match value:
            case None:
                return self.none or UNDEFINED
            case str():
                return value.replace("_", " ") if self.blanks else value
            case Figure(middle, float() | int() as low, float() | int() as high):
                ends = (self._number(end, middle) for end in (low, high))
                return f"{self.text(middle)} [{', '.join(ends)}]"
            case Figure(middle):
                return self.text(middle)
        return f"{self._number(value, value)}{self.after}"

    def short(self, value: Value) -> str:
        """As the screen has it: no interval."""
        number = value.value if isinstance(value, Figure) else value
        if self.screen is None or number is None or isinstance(number, str):
            return self.text(number)
        return self.screen(number)

    def _number(self, value: float, beside: float) -> str:
        """With as many decimals as the value that it stands beside."""
        small = self.below_one and abs(beside) < self.scale
        shown = value if self.scale == 1 else value / self.scale
        return f"{shown:{self.below_one if small else self.form}}"


NAME = Unit(right=False, figure=False)
OUTCOME = replace(NAME, blanks=True)
ASKED = Unit(figure=False)
WORD = Unit(right=False)
PLAIN = Unit()
NUMBER = Unit(form=",")
COUNT = replace(NUMBER, none="0")
SHARE = Unit(form=".2%")
CHANGE = Unit(form="+.1%")
MICROSECONDS = Unit("_ns", 1e3, ".1f", after=" µs")
MS = Unit("_ns", 1e6, ".2f", after=" ms", screen=lambda ns: duration(ns / 1e9))
MS_ALONE = replace(MS, form=".4g", after="")
S_ALONE = replace(MS_ALONE, scale=1e9)
SECONDS = replace(MS, scale=1e9, form=".1f", after=" s")
FINE_MS = replace(MS, below_one=".3f")
RATE = Unit(form=".2f", screen=lambda rate: f"{rate:.1f}")
TOKENS_PER_S = replace(RATE, suffix="_tokens_per_s", after=" tokens/s")
GIB = Unit("_bytes", 2**30, ".2f", after=" GiB")

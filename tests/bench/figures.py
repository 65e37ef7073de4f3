"""One row of `make bench`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """name: what is measured. goal, measured: in `unit`; met where measured <= goal."""

    name: str
    goal: float
    measured: float
    unit: str
    detail: str = ""

    @property
    def word(self) -> str:
        """met or missed."""
        return "met" if self.measured <= self.goal else "missed"

    def cells(self) -> tuple[str, ...]:
        """The row."""
        return (
            self.name,
            f"{self.goal:g} {self.unit}".rstrip(),
            f"{self.measured:.3g} {self.unit}".rstrip(),
            self.word,
            self.detail,
        )


Bench = Callable[[], tuple[Figure, ...]]

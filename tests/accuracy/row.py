"""One row of `make accuracy`, and its layouts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from tgi_bench.estimate.fitting import Point, Prediction, mean_absolute_error, predictions
from tgi_bench.estimate.setup import UNCALIBRATED

Entry = dict[str, str | float | int | None]
"""One row of the JSON document."""


@dataclass(frozen=True, slots=True)
class Row:
    """What is held out, and how far off the estimate is on it.

    table, figure, split: words. points: predicted ones.
    best_known: of the issue that set the goals, in words.
    goal, ours, uncalibrated: mean of |estimated / measured - 1|, percent; for memory cells the
    percentage of cells told wrong. uncalibrated: None where nothing is fitted.
    why: where the goal is missed, the reason found; notes otherwise.
    """

    table: str
    figure: str
    split: str
    points: int
    best_known: str
    goal: float
    uncalibrated: float | None
    ours: float
    why: str

    @property
    def met(self) -> bool:
        return self.ours <= self.goal

    @property
    def verdict(self) -> str:
        return "met" if self.met else "missed"


def percent(predicted: Sequence[Prediction]) -> float:
    """Mean of |estimated / measured - 1|, percent."""
    return 100 * mean_absolute_error(predicted)


def uncalibrated_percent(points: Sequence[Point]) -> float:
    """The same of the uncalibrated estimate."""
    values = UNCALIBRATED.values()
    return percent(predictions(points, values))


def table(rows: Sequence[Row]) -> str:
    """Markdown; percentages with two decimals."""
    head = (
        "| Table | Figure | Held out | Points | Best known | Goal | Uncalibrated | Ours | |\n"
        "|---|---|---|---:|---:|---:|---:|---:|---|\n"
    )
    lines = []
    for row in rows:
        raw = "-" if row.uncalibrated is None else f"{row.uncalibrated:.2f}"
        lines.append(
            f"| {row.table} | {row.figure} | {row.split} | {row.points} | {row.best_known} "
            f"| {row.goal:g} | {raw} | {row.ours:.2f} | {row.verdict} |\n"
        )
    return head + "".join(lines)


def notes(rows: Sequence[Row]) -> str:
    """One line a row that has something to say."""
    return "".join(
        f"- {row.table}, {row.figure}, {row.split} ({row.verdict}): {row.why}\n"
        for row in rows
        if row.why
    )


def document(rows: Sequence[Row]) -> str:
    """The same as JSON."""
    entries = [
        {
            **asdict(row),
            "ours": round(row.ours, 2),
            "uncalibrated": None if row.uncalibrated is None else round(row.uncalibrated, 2),
            "verdict": row.verdict,
        }
        for row in rows
    ]
    return json.dumps(entries, indent=2) + "\n"

"""The bigcode table: a whole generate of 100 tokens, float32 and bfloat16 with the same constants.

Splits, fixed: fitted on batch sizes 1, 16, 256 and the largest of each dtype, predicted on all
others; fitted on batch sizes up to 256, predicted beyond.
"""

from __future__ import annotations

from tests.accuracy.row import Row, percent, uncalibrated_percent
from tests.accuracy.tables import GenerateRow, bigcode
from tgi_bench.estimate.fitting import Point, fit, predictions

NAMES = ("dispatch_s", "kernel_s", "kv_bandwidth_efficiency", "compute_efficiency")
TABLE = "bigcode"
FOUR = {"float32": (1, 16, 256, 896), "bfloat16": (1, 16, 256, 1792)}
LARGEST_FITTED = 256


def cells() -> tuple[GenerateRow, ...]:
    return tuple(row for row in bigcode() if row.tokens_per_s is not None)


def by_batch_size() -> list[int]:
    """A label for each of `cells`."""
    return [row.batch_size for row in cells()]


def _without_kernel_s(train: list[Point], test: list[Point]) -> float:
    names = tuple(name for name in NAMES if name != "kernel_s")
    return percent(predictions(test, fit(train, names).values))


def _row(split: str, train: list[Point], test: list[Point], goal: tuple[float, str]) -> Row:
    values = fit(train, NAMES).values
    return Row(
        table=TABLE,
        figure="latency of a generate",
        split=split,
        points=len(test),
        best_known=goal[1],
        goal=goal[0],
        uncalibrated=uncalibrated_percent(test),
        ours=percent(predictions(test, values)),
        why=(
            f"{len(train)} points, {len(NAMES)} constants for both dtypes: {', '.join(NAMES)}. "
            "kernel_s and the price of copying elements of 2 bytes were added after seeing this "
            f"table; without kernel_s the error is {_without_kernel_s(train, test):.1f}."
        ),
    )


def rows() -> list[Row]:
    four = [row.point for row in cells() if row.batch_size in FOUR[row.dtype]]
    others = [row.point for row in cells() if row.batch_size not in FOUR[row.dtype]]
    small = [row.point for row in cells() if row.batch_size <= LARGEST_FITTED]
    large = [row.point for row in cells() if row.batch_size > LARGEST_FITTED]
    return [
        _row("all but four batch sizes", four, others, (3, "3.1")),
        _row(f"batch sizes beyond {LARGEST_FITTED}", small, large, (8, "13.9")),
    ]

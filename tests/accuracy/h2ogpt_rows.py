"""The h2oGPT table: milliseconds a token at batch size 1, 16, 8 and 4 bits, 1 to 8 devices.

Splits, fixed: one GPU left out, all of it; and one GPU left out but for its 16-bit row of one
device, which says how fast its host dispatches operations.
"""

from __future__ import annotations

from dataclasses import replace

from tests.accuracy.row import Row, percent, uncalibrated_percent
from tests.accuracy.tables import TokenRow, h2ogpt
from tgi_bench.estimate.fitting import Point, Prediction, estimated_s, fit, held_out, predictions

COUNTS = ("int8_operations", "four_bit_operations", "split_operations")
NAMES = ("dispatch_s", *COUNTS)
TABLE = "h2oGPT"


def gpus() -> list[str]:
    return list(dict.fromkeys(row.accelerator for row in h2ogpt()))


def _anchor(gpu: str) -> TokenRow:
    [row] = [row for row in h2ogpt() if (row.accelerator, row.bits, row.devices) == (gpu, 16, 1)]
    return row


def _dispatch_s(gpu: str) -> float:
    """The dispatch_s with which the GPU's 16-bit row of one device is estimated as measured.

    A host-bound step is a straight line in dispatch_s, through two of its points here.
    """
    point = _anchor(gpu).point
    low_s, high_s = 100e-6, 200e-6
    low, high = (float(estimated_s([point], {"dispatch_s": s})[0]) for s in (low_s, high_s))
    dispatch_s = low_s + (point.measured_s - low) * (high_s - low_s) / (high - low)
    [check] = estimated_s([point], {"dispatch_s": dispatch_s})
    assert abs(check / point.measured_s - 1) < 1e-9, f"{gpu}: the step is not host-bound"
    return dispatch_s


def _anchored(row: TokenRow, dispatch_s: float) -> Point:
    """The row's point with its host's dispatch_s in place."""
    point = row.point
    constants = replace(point.setup.constants, dispatch_s=dispatch_s)
    return replace(point, setup=replace(point.setup, constants=constants))


def _whole_gpu() -> Row:
    points = [row.point for row in h2ogpt()]
    predicted = held_out(points, NAMES, [row.accelerator for row in h2ogpt()])
    speeds = ", ".join(f"{gpu} {1e3 * _anchor(gpu).token_s:.0f}" for gpu in gpus())
    return Row(
        table=TABLE,
        figure="time a token",
        split="one GPU, all of it",
        points=len(points),
        best_known="6.4",
        goal=5,
        uncalibrated=uncalibrated_percent(points),
        ours=percent(predicted),
        why=(
            "every row is bound by the host, which the table does not name: at 16 bits "
            f"({speeds} ms) an A100 is slower than an RTX 4090 of half its memory bandwidth, and "
            "nothing of a GPU tells how fast its host is."
        ),
    )


def _but_one_row() -> Row:
    predicted: list[Prediction] = []
    points: list[Point] = []
    speed = {gpu: _dispatch_s(gpu) for gpu in gpus()}
    for gpu in gpus():
        train = [
            _anchored(row, speed[row.accelerator]) for row in h2ogpt() if row.accelerator != gpu
        ]
        tested = [row for row in h2ogpt() if row.accelerator == gpu and row != _anchor(gpu)]
        test = [_anchored(row, speed[gpu]) for row in tested]
        predicted += predictions(test, fit(train, COUNTS).values)
        points += [row.point for row in tested]
    return Row(
        table=TABLE,
        figure="time a token",
        split="one GPU but its 16-bit row of one device",
        points=len(points),
        best_known="6.4",
        goal=5,
        uncalibrated=uncalibrated_percent(points),
        ours=percent(predicted),
        why=(
            "that row gives the host's dispatch_s; the counts of operations come from other GPUs. "
            "That 8 bits wait for the device in every linear layer was added after seeing this "
            "table."
        ),
    )


def rows() -> list[Row]:
    return [_whole_gpu(), _but_one_row()]

"""The TGI table of bloomz-7b1-mt: prefill and decode steps of num_shard 2, 4 and 8, float16.

Splits, fixed: one num_shard left out; one batch size left out. One set of constants for prefill and
decode together. num_shard 1 is left out of the times: it ran another class, with its layers split
over the devices in turn.

What was tried on decode and is not here, by hand and once each (one num_shard / one batch size left
out, percent): ten other forms of four or five free constants (a sum in place of the maximum, a soft
maximum, terms that sharding does not divide) gave 4.5 to 12 / 4.2 to 6.3 and none met both goals;
the KV cache's rate of the bigcode table as prior gave 6.8 / 5.0. The first of the two rows is met
by a margin smaller than these differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.accuracy.row import Row, percent, uncalibrated_percent
from tests.accuracy.tables import TgiRow, tgi
from tgi_bench.estimate.fitting import (
    PADDED_NAMES,
    Point,
    Prediction,
    fit,
    held_out,
    predictions,
)
from tgi_bench.estimate.grid import Phase
from tgi_bench.estimate.setup import UNCALIBRATED
from tgi_bench.estimate.step_time import decode_time

NAMES = PADDED_NAMES

OTHER_SETS = (
    ("dispatch_s", "kv_bandwidth_efficiency", "rank_skew_s", "compute_efficiency"),
    ("dispatch_s", "kv_bandwidth_efficiency", "choice_dispatch_s", "compute_efficiency"),
)
"""With prompt_position_s the other sets of five that were tried before NAMES were settled."""

NOISE = 0.064
"""In-cell spread of the table, (max - min) / 2 / mean: 6.2 % in prefill, 6.6 % in decode."""

PHASES: tuple[Phase, ...] = ("prefill", "decode")
TABLE = "TGI"


def cells() -> tuple[TgiRow, ...]:
    return tuple(
        row
        for row in tgi()
        if row.num_shard > 1 and row.quantize is None and row.prefill_s is not None
    )


def points() -> list[Point]:
    """Prefill of all cells, then decode of all cells."""
    return [row.point(phase) for phase in PHASES for row in cells()]


def by_num_shard() -> list[int]:
    """A label for each of `points`."""
    return [row.num_shard for row in cells()] * len(PHASES)


def by_batch_size() -> list[int]:
    """A label for each of `points`."""
    return [row.batch_size for row in cells()] * len(PHASES)


Pairs = list[tuple[TgiRow, Prediction]]


def _of(phase: Phase, predicted: Sequence[Prediction]) -> Pairs:
    first = PHASES.index(phase) * len(cells())
    return list(zip(cells(), predicted[first : first + len(cells())], strict=True))


@dataclass(frozen=True, slots=True)
class _Goal:
    phase: Phase
    split: str
    goal: float
    best_known: str


def _row(goal: _Goal, pairs: Pairs, why: str) -> Row:
    return Row(
        table=TABLE,
        figure=goal.phase,
        split=goal.split,
        points=len(pairs),
        best_known=goal.best_known,
        goal=goal.goal,
        uncalibrated=uncalibrated_percent([row.point(goal.phase) for row, _ in pairs]),
        ours=percent([one for _, one in pairs]),
        why=why,
    )


def _usual(pairs: Pairs) -> Pairs:
    return [(row, one) for row, one in pairs if not row.outlier]


def _named(pairs: Pairs) -> str:
    return " and ".join(
        f"num_shard {row.num_shard} at batch size {row.batch_size} ({100 * one.error:+.0f} %)"
        for row, one in pairs
    )


def _decode_why(pairs: Pairs) -> str:
    """What stands between the figure and its goal: computed, so that it cannot go stale."""
    values = fit(points(), NAMES, NOISE).values
    in_sample = percent([one for _, one in _of("decode", predictions(points(), values))])
    constants = replace(UNCALIBRATED, **values)
    device_bound = []
    for row, one in pairs:
        sizes = row.point("decode").sizes
        setup = replace(row.setup, constants=constants)
        if decode_time(setup, sizes.batch_size, sizes.prompt_tokens).bound != "host":
            device_bound.append((row, one))
    return (
        "rank_skew_s was added after seeing this table; in sample the same constants give "
        f"{in_sample:.1f}, the cells' own spread is 6.6. Of {len(pairs)} cells the device is the "
        f"bound of {_named(device_bound)} only, so that nothing else tells the KV cache's rate. "
        "Without the "
        f"outlier (num_shard 8 at batch size 16): {percent([one for _, one in _usual(pairs)]):.1f}."
    )


def _decode_with(names: tuple[str, ...]) -> float:
    """Decode's error with one num_shard left out, under another set of constants."""
    predicted = held_out(points(), names, by_num_shard(), NOISE)
    return percent([one for _, one in _of("decode", predicted)])


def rows() -> list[Row]:
    shards = held_out(points(), NAMES, by_num_shard(), NOISE)
    others = [_decode_with((*names, "prompt_position_s")) for names in OTHER_SETS]
    sets = (
        "the five constants are the best of three sets that were tried; the others give "
        f"{others[0]:.1f} and {others[1]:.1f}, and the bigcode table's KV rate as prior 6.8, so "
        "that this row is met by less than the choice of a form makes out; "
    )
    batches = held_out(points(), NAMES, by_batch_size(), NOISE)
    decode, decode_batch = _of("decode", shards), _of("decode", batches)
    prefill = _of("prefill", shards)
    outlier = "num_shard 8 at batch size 16 takes 3.26 times batch size 8 for twice the work"
    added = "prompt_position_s was added after seeing this table; its cause is not known."
    return [
        _row(_Goal("decode", "one num_shard", 5, "6.4"), decode, sets + _decode_why(decode)),
        _row(
            _Goal("decode", "one batch size", 4.5, "4.6"), decode_batch, _decode_why(decode_batch)
        ),
        _row(
            _Goal("prefill", "one num_shard", 10, "21"),
            prefill,
            f"{outlier}; counted here. {added}",
        ),
        _row(
            _Goal("prefill", "one num_shard, without the outlier", 10, "21"),
            _usual(prefill),
            f"{outlier}; fitted to where it is not held out, and not counted here.",
        ),
    ]

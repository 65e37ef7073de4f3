"""Which stages the checks of loads look at: of a search those that its answer rests on."""

from __future__ import annotations

from collections.abc import Sequence

from tgi_bench.analysis.load_rows import LoadRow


def accepted(rows: Sequence[LoadRow]) -> tuple[LoadRow, ...]:
    """Those that figures are taken from: of a search the steps at its answer."""
    return tuple(row for row in rows if row.load.trial.find is None or _answers(row))


def deciding(rows: Sequence[LoadRow]) -> tuple[LoadRow, ...]:
    """As accepted, with a search's steps at the next higher value, which did not meet the SLOs."""
    return tuple(row for row in rows if row.load.trial.find is None or _decides(row))


def _answers(row: LoadRow) -> bool:
    found = row.load.found
    return found is not None and found.value is not None and row.stage.asked == found.value


def _decides(row: LoadRow) -> bool:
    found = row.load.found
    misses = found is not None and found.high is not None and row.stage.asked == found.high
    return misses or _answers(row)

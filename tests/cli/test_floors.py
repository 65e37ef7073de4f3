"""At which loads the client's own error is measured beside a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar, cast

import pytest

from tests.analysis.load_samples import OPEN_STAGE, STAGE
from tests.record import samples
from tests.report.load_example import load_run
from tgi_bench.cli.sweep_command import QUICK_FLOOR_STREAMS, _floors
from tgi_bench.load_observation import ClientFloor, LoadStage
from tgi_bench.record.store import RunStore

T = TypeVar("T")


class _Stages(RunStore):
    """Of each trial the given stages, and what was measured before."""

    measured: tuple[ClientFloor, ...] = ()

    def __init__(self, *of_each: tuple[LoadStage, ...]) -> None:
        self._left = iter(of_each)

    def seen(self, trial_id: str, kind: type[T]) -> Iterator[T]:
        return iter(cast("tuple[T, ...]", next(self._left, ())))

    def of_run(self, kind: type[T]) -> tuple[T, ...]:
        return cast("tuple[T, ...]", self.measured)


def closed(*concurrencies: int) -> tuple[LoadStage, ...]:
    return tuple(replace(STAGE, index=i, concurrency=c) for i, c in enumerate(concurrencies))


@pytest.mark.parametrize(
    ("stages", "found"),
    [
        ((), ()),
        ((closed(8),), (8,)),
        ((closed(1), closed(64), closed(2)), (64,)),
        ((closed(1, 2, 64, 8, 7),), (7,)),
        ((closed(5000),), (QUICK_FLOOR_STREAMS,)),
        (((OPEN_STAGE,),), (None,)),
        ((closed(4), (OPEN_STAGE,)), (4, None)),
    ],
)
def test_streams(stages: tuple[tuple[LoadStage, ...], ...], found: tuple[int | None, ...]) -> None:
    """As many as the last stages had, which in a search are next to the answer."""
    assert _floors(load_run().plan, _Stages(*stages)) == found


def test_what_was_measured_before_a_kill_is_not_measured_again() -> None:
    store = _Stages(closed(64), (OPEN_STAGE,))
    store.measured = (samples.floor(),)
    assert _floors(load_run().plan, store) == (None,)
    again = _Stages(closed(8), (OPEN_STAGE,))
    again.measured = (replace(samples.floor(), start_lateness_ns=(1.0, 2.0, 3.0)),)
    assert _floors(load_run().plan, again) == (8,)

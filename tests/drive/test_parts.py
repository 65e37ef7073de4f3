"""Which part a request belongs to, and the window, in tables worked out by hand."""

from __future__ import annotations

from array import array

import pytest

from tgi_bench.drive.stage import Parts
from tgi_bench.load_observation import LoadPart, RequestObservation, RequestOutcome, TokenSource
from tgi_bench.trials.load import Extent

W, M, C = LoadPart.WARMUP, LoadPart.MEASURED, LoadPart.COOLDOWN
START = 1000


def extent(
    duration: int | None = None,
    requests: int | None = None,
    by_time: tuple[int, int] = (0, 0),
    by_number: tuple[int, int] = (0, 0),
) -> Extent:
    return Extent(
        duration, requests, by_time[0], by_number[0], by_time[1], by_number[1], until=None
    )


def ended(number: int, intended_ns: int, ended_ns: int, part: LoadPart = M) -> RequestObservation:
    return RequestObservation(
        stage=0,
        request_index=number,
        worker=0,
        part=part,
        conversation=number,
        turn=0,
        intended_ns=intended_ns,
        sent_ns=intended_ns,
        ended_ns=ended_ns,
        event_ns=array("q"),
        event_tokens=array("i"),
        events=0,
        shared_reads=0,
        prompt_tokens_asked=None,
        prompt_tokens=None,
        cached_tokens=None,
        output_tokens_asked=None,
        output_tokens=0,
        counted_by=TokenSource.EVENTS,
        finish_reason=None,
        status=200,
        new_connection=False,
        kernel_stamps=True,
        outcome=RequestOutcome.OK,
        reason="",
    )


@pytest.mark.parametrize(
    ("asked", "number", "intended", "part"),
    [
        (extent(duration=50), 0, 1000, M),
        (extent(duration=50), 9, 1049, M),
        (extent(duration=50, by_time=(10, 5)), 0, 1009, W),
        (extent(duration=50, by_time=(10, 5)), 0, 1010, M),
        (extent(duration=50, by_time=(10, 5)), 99, 1059, M),
        (extent(duration=50, by_time=(10, 5)), 99, 1060, C),
        (extent(requests=3, by_number=(2, 1)), 1, 99999, W),
        (extent(requests=3, by_number=(2, 1)), 2, 1000, M),
        (extent(requests=3, by_number=(2, 1)), 4, 1000, M),
        (extent(requests=3, by_number=(2, 1)), 5, 1000, C),
        (extent(duration=50, requests=3, by_time=(10, 0)), 0, 1005, W),
        (extent(duration=50, requests=3, by_time=(10, 0)), 99, 1020, M),
        (extent(duration=50, requests=3), 3, 1020, C),
    ],
)
def test_the_part_of_a_request(asked: Extent, number: int, intended: int, part: LoadPart) -> None:
    assert Parts(asked, START).of(number, intended) is part


@pytest.mark.parametrize(
    ("asked", "stopped", "window"),
    [
        (extent(duration=50), None, (1000, 1050)),
        (extent(duration=50, by_time=(10, 5)), None, (1010, 1060)),
        (extent(duration=50, by_time=(10, 5)), 1040, (1010, 1040)),
        (extent(duration=500), 1200, (1000, 1090)),  # what came last was before the stop
        (extent(duration=50), 1070, (1000, 1050)),  # stopped while the last ones ended
        (extent(duration=50, by_time=(10, 0)), 1005, (1010, 1010)),
        (extent(requests=2), None, (1000, 1090)),
        (extent(requests=2, by_number=(1, 0)), None, (1020, 1090)),
        (extent(duration=500, requests=2), None, (1000, 1090)),  # the number came first
        (extent(duration=500, requests=3), None, (1000, 1500)),  # the time did
    ],
)
def test_the_window(asked: Extent, stopped: int | None, window: tuple[int, int]) -> None:
    """Two measured requests: 1020 to 1090 and 1030 to 1040."""
    parts = Parts(asked, START)
    parts.seen(ended(0, 1001, 1002, W))
    parts.seen(ended(1, 1030, 1040))
    parts.seen(ended(2, 1020, 1090))
    parts.seen(ended(3, 1060, 9999, C))
    assert parts.measured == 2
    assert parts.window(stopped) == window


def test_the_window_of_a_load_that_measured_nothing() -> None:
    assert Parts(extent(requests=2), START).window(None) == (1000, 1000)
    assert Parts(extent(duration=50), START).window(None) == (1000, 1050)
    assert Parts(extent(duration=50), START).window(1020) == (1000, 1000)

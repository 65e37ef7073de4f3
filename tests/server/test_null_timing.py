"""The line of deadlines against a sorted list; the null server's log as a file."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tgi_bench.errors import InputError
from tgi_bench.server.null.timing import (
    DueQueue,
    ServedLog,
    ServedRequest,
    StreamPace,
    decode,
    encode,
)

TIMES = st.integers(-(2**63), 2**63 - 1)
REQUESTS = st.builds(
    ServedRequest,
    connection=st.integers(0, 2**32 - 1),
    index=st.integers(0, 2**32 - 1),
    request_id=st.binary(max_size=255),
    arrival_ns=TIMES,
    due_ns=TIMES,
    sent_ns=st.lists(TIMES, max_size=5).map(lambda times: array("q", times)),
    whole=st.booleans(),
)
LOGS = st.builds(
    ServedLog,
    interval_ns=st.integers(0, 2**62),
    cpu_ns=TIMES,
    served_ns=TIMES,
    clock_step_ns=TIMES,
    kernel_stamps=st.booleans(),
    requests=st.lists(REQUESTS, max_size=4).map(tuple),
)


@given(LOGS)
def test_what_is_written_is_read(log: ServedLog) -> None:
    assert decode(encode(log)) == log


@given(LOGS, st.data())
def test_a_log_that_is_cut_off_is_refused(log: ServedLog, data: st.DataObject) -> None:
    whole = encode(log)
    length = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(InputError, match="null server"):
        decode(whole[:length])


def test_another_file_is_refused() -> None:
    with pytest.raises(InputError, match="no log of a null server"):
        decode(b"SQLite format 3\0" + bytes(100))


def test_lateness_by_hand() -> None:
    request = ServedRequest(0, 0, b"", 90, 100, array("q", [101, 120, 145]), whole=True)
    assert ServedLog(20, 0, 0, 0, True, (request,)).lateness_ns() == [1, 0, 5]
    assert ServedLog(0, 0, 0, 0, True, (request,)).lateness_ns() == []


def test_first_due_by_hand() -> None:
    pace = StreamPace(interval_ns=20, first_ns=100, spread_ns=1000)
    # 1/phi = 0.618..., 2/phi = 1.236...
    assert [pace.first_due_ns(5, index) for index in range(3)] == [105, 105 + 618, 105 + 236]
    assert StreamPace(0, 100, 1000).first_due_ns(5, 3) == 5


def test_nothing_is_due_before_its_time() -> None:
    queue: DueQueue[str] = DueQueue()
    assert queue.next_due_ns() is None
    assert queue.pop_due(10**9) is None
    queue.push_first(10, "a")
    assert queue.next_due_ns() == 10
    assert queue.pop_due(9) is None
    assert queue.pop_due(10) == (10, "a")
    assert queue.next_due_ns() is None


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 5)), max_size=30), st.integers(1, 40))
def test_streams_come_in_the_order_of_their_deadlines(
    streams: list[tuple[int, int]], interval_ns: int
) -> None:
    """(first deadline, events) of each stream, begun whenever the last one has been pushed."""
    queue: DueQueue[tuple[int, int]] = DueQueue()
    for index, (first_ns, _) in enumerate(streams):
        queue.push_first(first_ns, (index, 0))
    taken = []
    while (found := queue.pop_due(10**9)) is not None:
        due_ns, (index, position) = found
        taken.append(due_ns)
        if position + 1 < streams[index][1]:
            queue.push_next(due_ns + interval_ns, (index, position + 1))
    expected = sorted(
        first_ns + k * interval_ns for first_ns, count in streams for k in range(count)
    )
    assert taken == expected


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("first"), st.integers(0, 50)),
            st.tuples(st.just("next"), st.integers(0, 50)),
            st.tuples(st.just("pop"), st.integers(0, 50)),
        ),
        max_size=60,
    )
)
def test_any_order_of_pushes_gives_the_earliest(steps: list[tuple[str, int]]) -> None:
    queue: DueQueue[int] = DueQueue()
    model: list[int] = []
    for what, time_ns in steps:
        if what == "pop":
            found = queue.pop_due(time_ns)
            due = [t for t in model if t <= time_ns]
            assert (None if found is None else found[0]) == (min(due) if due else None)
            if found is not None:
                model.remove(found[0])
        else:
            model.append(time_ns)
            (queue.push_first if what == "first" else queue.push_next)(time_ns, 0)
        assert queue.next_due_ns() == (min(model) if model else None)

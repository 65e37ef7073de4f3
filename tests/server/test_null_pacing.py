"""The line of deadlines against a sorted list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tgi_bench.server.null.pacing import DueQueue, Pace


def test_first_due_by_hand() -> None:
    pace = Pace(interval_ns=20, first_ns=100, spread_ns=1000)
    # 1/phi = 0.618..., 2/phi = 1.236...
    assert [pace.first_due_ns(5, index) for index in range(3)] == [105, 105 + 618, 105 + 236]
    assert Pace(0, 100, 1000).first_due_ns(5, 3) == 5


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

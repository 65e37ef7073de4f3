"""Which requests enter the next batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tgi_bench.server.router.body import RequestError
from tgi_bench.server.router.inference import BatchRoom, Need, QueuedRequest, WaitingQueue
from tgi_bench.server.router.validation import ValidRequest
from tgi_bench.wire.messages import Stopping, TokenChoice

PADDED = Need(padded=True, block_size=1)
FLASH = Need(padded=False, block_size=16)


def entry(number: int, inputs: int, new: int) -> QueuedRequest:
    stopping = Stopping(new)
    return QueuedRequest(
        number, ValidRequest("x", inputs, inputs, TokenChoice(), stopping, False, 0)
    )


def queue(empty: Need, *shapes: tuple[int, int]) -> tuple[WaitingQueue, list[int]]:
    sizes: list[int] = []
    waiting = WaitingQueue(empty, sizes.append)
    for number, (inputs, new) in enumerate(shapes):
        waiting.append(entry(number, inputs, new))
    return waiting, sizes


@pytest.mark.parametrize(
    ("empty", "prefill", "total"),
    [
        # 3 requests padded to 10 prompt tokens; 5 + 6 + 7 new ones.
        (PADDED, 30, 48),
        # 10 + 4 + 2 prompt tokens; blocks of 16: 15 -> 16, 10 -> 16, 9 -> 16.
        (FLASH, 16, 48),
    ],
)
def test_what_a_batch_takes(empty: Need, prefill: int, total: int) -> None:
    need = empty
    for number, (inputs, new) in enumerate(((10, 5), (4, 6), (2, 7))):
        need = need.plus(entry(number, inputs, new).request)
    assert (need.prefill_tokens, need.total_tokens) == (prefill, total)


@pytest.mark.parametrize(
    ("empty", "room", "taken"),
    [
        (PADDED, BatchRoom(1000, 1000), 4),
        (PADDED, BatchRoom(20, 1000), 2),  # 2 x 10; the third would make 3 x 10
        (FLASH, BatchRoom(20, 1000), 3),  # 10 + 5 + 5; the fourth passes 20
        (PADDED, BatchRoom(1000, 31), 2),  # 20 + 2 x 5 <= 31 < 45
        (FLASH, BatchRoom(1000, 48), 3),
        (FLASH, BatchRoom(1000, 47), 2),
        (PADDED, BatchRoom(1000, 1000, max_size=3), 3),
        (PADDED, BatchRoom(1000, 1000, max_size=0), 0),
        (PADDED, BatchRoom(1000, 1000, min_size=5), 0),
        (PADDED, BatchRoom(1000, 31, min_size=3), 0),
        (PADDED, BatchRoom(1000, 31, min_size=0), 2),
        (PADDED, BatchRoom(9, 1000), 0),
    ],
)
def test_admission(empty: Need, room: BatchRoom, taken: int) -> None:
    waiting, sizes = queue(empty, (10, 5), (5, 5), (5, 5), (5, 5))
    found = waiting.next_batch(room)
    if not taken:
        assert found is None
        assert sizes[-1] == 4
        return
    assert found is not None
    batch, entries = found
    assert [request.id for request in batch.requests] == list(range(taken))
    assert [e.id for e in entries] == list(range(taken))
    assert batch.size == taken
    assert all(e.started_ns is not None for e in entries)
    assert sizes[-1] == 4 - taken


def test_a_request_that_does_not_fit_holds_up_smaller_ones() -> None:
    waiting, _ = queue(PADDED, (10, 90), (1, 1))
    assert waiting.next_batch(BatchRoom(1000, 50)) is None


def test_who_has_left_is_not_batched() -> None:
    waiting, sizes = queue(PADDED, (1, 1))
    gone = entry(7, 1, 1)
    waiting.append(gone)
    gone.gone = True
    found = waiting.next_batch(BatchRoom(1000, 1000))
    assert found is not None
    assert [request.id for request in found[0].requests] == [0]
    assert sizes[-1] == 0


def test_batches_have_ids_of_their_own() -> None:
    waiting, _ = queue(PADDED, (1, 1), (1, 1))
    ids = []
    for _ in range(2):
        found = waiting.next_batch(BatchRoom(1000, 1000, max_size=1))
        assert found is not None
        ids.append(found[0].id)
    assert ids == [0, 1]


@given(
    shapes=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), max_size=12),
    prefill=st.integers(1, 200),
    total=st.integers(1, 400),
    padded=st.booleans(),
)
def test_no_batch_passes_a_limit_and_order_is_kept(
    shapes: list[tuple[int, int]], prefill: int, total: int, padded: bool
) -> None:
    empty = PADDED if padded else FLASH
    waiting, _ = queue(empty, *shapes)
    found = waiting.next_batch(BatchRoom(prefill, total))
    if found is None:
        return
    need = empty
    for taken in found[1]:
        need = need.plus(taken.request)
    assert need.prefill_tokens <= prefill
    assert need.total_tokens <= total
    assert found[0].max_tokens == need.total_tokens
    assert [e.id for e in found[1]] == list(range(len(found[1])))


def test_a_closed_queue_fails_what_waits_and_what_comes() -> None:
    waiting = WaitingQueue(PADDED, lambda _: None)
    entries = [entry(0, 1, 1), entry(1, 1, 1)]
    waiting.append(entries[0])
    waiting.close()
    waiting.append(entries[1])
    for failed in entries:
        event = failed.events.get_nowait()
        assert isinstance(event, RequestError)
        assert event.body == {
            "error": "Incomplete generation",
            "error_type": "incomplete_generation",
        }
    assert waiting.next_batch(BatchRoom(1000, 1000)) is None

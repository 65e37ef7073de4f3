"""A step's answers joined over ranks, by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tgi_bench.drive.shares import Answer, Joined, Shares


def one(*ids: int, tokens: int = 1, ends: bool = False) -> list[Answer]:
    return [(request_id, tokens, ends) for request_id in ids]


@pytest.mark.parametrize(
    "answered",
    [
        [one(0, 1, 2, 3)],
        [one(0, 2), one(1, 3)],
        [one(3), one(0), one(2, 1)],
        [one(), one(), one(0, 1, 2, 3)],
    ],
    ids=["one rank", "by place", "any share", "one of three"],
)
def test_any_share_will_do(answered: Sequence[Sequence[Answer]]) -> None:
    assert Shares(range(4)).join(answered) == Joined(4, None)


def test_ids_need_not_count_from_0() -> None:
    """By id modulo the ranks, as the flash class shares from 2.4.0 on: both are of rank 1."""
    assert Shares((5, 9)).join([one(), one(5, 9)]) == Joined(2, None)


def test_several_tokens_of_a_request_are_all_counted() -> None:
    assert Shares(range(2)).join([one(0, tokens=3), one(1, tokens=2)]) == Joined(5, None)


@pytest.mark.parametrize(
    ("answered", "new_tokens", "fault"),
    [
        (
            [one()],
            0,
            "no rank answered for requests 0, 1 (shard_rank 0 answered for no request)",
        ),
        (
            [one(0), one()],
            1,
            "no rank answered for request 1 (shard_rank 0 answered for request 0; shard_rank 1 "
            "answered for no request)",
        ),
        (
            [one(0, 0, 1)],
            2,
            "more than one answer for request 0: from shard_rank 0 and shard_rank 0",
        ),
        (
            [one(0, 1), one(0, 1)],
            2,
            "more than one answer for requests 0, 1: from shard_rank 0 and shard_rank 1",
        ),
        ([one(0), one(1, 4)], 2, "an answer for request 4, not of the batch, from shard_rank 1"),
        (
            [one(0), one(4, 0)],
            1,
            "no rank answered for request 1 (shard_rank 0 answered for request 0; shard_rank 1 "
            "answered for requests 4, 0); more than one answer for request 0: from shard_rank 0 "
            "and shard_rank 1; an answer for request 4, not of the batch, from shard_rank 1",
        ),
    ],
)
def test_missing_double_and_unknown_answers_are_told_apart(
    answered: Sequence[Sequence[Answer]], new_tokens: int, fault: str
) -> None:
    assert Shares(range(2)).join(answered) == Joined(new_tokens, fault)


def test_a_request_that_ended_is_not_missing() -> None:
    shares = Shares(range(2))
    assert shares.join([one(0, ends=True), one(1)]) == Joined(2, None)
    assert shares.join([one(), one(1)]) == Joined(1, None)
    assert shares.join([one(), one()]).fault == (
        "no rank answered for request 1 (shard_rank 0 answered for no request; shard_rank 1 "
        "answered for no request)"
    )


def test_tokens_after_its_end_are_none_of_a_request() -> None:
    """A padded class goes on with a request that nobody filters out."""
    shares = Shares(range(2))
    shares.join([one(0, ends=True), one(1)])
    assert shares.join([one(0, ends=True), one(1)]) == Joined(1, None)


def test_many_are_counted_and_not_listed() -> None:
    fault = Shares(range(20)).join([one()]).fault
    assert fault is not None
    assert fault.startswith("no rank answered for requests 0, 1, 2, 3, 4, 5, 6, 7 and 12 more (")

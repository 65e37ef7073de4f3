"""Which requests of a batch each rank answered for, joined over the ranks of a server.

Every rank of a real server is sent the whole batch and computes all of it, but answers with the
generations of its own share: by place in the batch, or by request id. Which share is no contract,
so that only the union over the ranks tells what a step made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tgi_bench.wire import messages as m

Answer: TypeAlias = tuple[int, int, bool]
"""The request's id, its new tokens in this step, and whether it ended with them."""

_LISTED = 8


@dataclass(frozen=True, slots=True)
class Joined:
    """What all ranks together made in one step.

    new_tokens: of requests that had not ended before, each counted once. fault: what is wrong
    with the answers, in one sentence; None where every request has one.
    """

    new_tokens: int
    fault: str | None


class Shares:
    """The requests of one batch, from step to step."""

    def __init__(self, request_ids: Iterable[int]) -> None:
        self._asked = tuple(request_ids)
        self._ended: set[int] = set()

    def join(self, answered: Sequence[Sequence[Answer]]) -> Joined:
        """The next step; `answered` by shard_rank.

        A request that has ended need not be answered for any more; a padded class goes on with
        it, and its tokens are none of the answer's.
        """
        ranks_of: dict[int, list[int]] = {}
        tokens_of: dict[int, int] = {}
        ending = set()
        for rank, answers in enumerate(answered):
            for request_id, tokens, ends in answers:
                ranks_of.setdefault(request_id, []).append(rank)
                tokens_of.setdefault(request_id, tokens)
                if ends:
                    ending.add(request_id)
        new_tokens = sum(
            tokens_of.get(request_id, 0)
            for request_id in self._asked
            if request_id not in self._ended
        )
        fault = self._fault(ranks_of, answered)
        self._ended |= ending
        return Joined(new_tokens, fault)

    def _fault(
        self, ranks_of: Mapping[int, Sequence[int]], answered: Sequence[Sequence[Answer]]
    ) -> str | None:
        asked = set(self._asked)
        faults = []
        missing = [i for i in self._asked if i not in ranks_of and i not in self._ended]
        if missing:
            did = "; ".join(
                f"shard_rank {rank} answered for {_ids([answer[0] for answer in answers])}"
                for rank, answers in enumerate(answered)
            )
            faults.append(f"no rank answered for {_ids(missing)} ({did})")
        twice = {i: ranks for i, ranks in ranks_of.items() if i in asked and len(ranks) > 1}
        for ranks, ids in _by_ranks(twice):
            faults.append(f"more than one answer for {_ids(ids)}: from {_ranks(ranks)}")
        unknown = {i: ranks for i, ranks in ranks_of.items() if i not in asked}
        for ranks, ids in _by_ranks(unknown):
            faults.append(f"an answer for {_ids(ids)}, not of the batch, from {_ranks(ranks)}")
        return "; ".join(faults) or None


def answers_of(reply: m.StepReply) -> tuple[Answer, ...]:
    """What one rank answered for; cheap, for it is done between two steps."""
    return tuple(
        (g.request_id, len(g.tokens), g.generated_text is not None) for g in reply.generations
    )


def _by_ranks(
    ranks_of: Mapping[int, Sequence[int]],
) -> list[tuple[tuple[int, ...], list[int]]]:
    """Ids that the same ranks answered for, together."""
    ids: dict[tuple[int, ...], list[int]] = {}
    for request_id, ranks in ranks_of.items():
        ids.setdefault(tuple(ranks), []).append(request_id)
    return list(ids.items())


def _ids(ids: Sequence[int]) -> str:
    if not ids:
        return "no request"
    listed = ", ".join(str(request_id) for request_id in ids[:_LISTED])
    more = f" and {len(ids) - _LISTED} more" if len(ids) > _LISTED else ""
    return f"request{'s' if len(ids) > 1 else ''} {listed}{more}"


def _ranks(ranks: Sequence[int]) -> str:
    return " and ".join(f"shard_rank {rank}" for rank in ranks)

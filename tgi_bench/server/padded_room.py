"""What TGI's padded classes set aside for a batch, in tokens: CachedBatch.max_tokens.

A batch carries the number along; it is not counted anew at every step. From 0.9.0 on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """A batch that is to be joined. contexts: tokens of each row, prompt and generated."""

    room_tokens: int
    contexts: Sequence[int]


def of_prompts(prompts: Sequence[int], new_tokens: Sequence[int]) -> int:
    """After prefill: every row at the longest prompt and the new tokens of all rows."""
    return len(prompts) * (max(prompts) + sum(new_tokens))


def of_kept(contexts: Sequence[int], left_tokens: Sequence[int]) -> int:
    """After a filter: every row at the longest context, and the tokens that are still to come."""
    return len(contexts) * max(contexts) + sum(left_tokens)


def of_joined(parts: Sequence[Part]) -> int:
    """The rooms of all parts, with every row at the longest context."""
    longest = max(max(part.contexts) for part in parts)
    return sum(
        part.room_tokens + (longest - max(part.contexts)) * len(part.contexts) for part in parts
    )

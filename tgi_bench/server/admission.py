"""What a shard refuses before it computes anything, whichever engine it has."""

from __future__ import annotations

from tgi_bench.server.behaviour import Behaviour
from tgi_bench.server.choice import check_choice
from tgi_bench.wire.messages import Batch, Protocol, Warmup, WarmupReply


def longest_prompt(batch: Batch, behaviour: Behaviour) -> int:
    """The most prompt tokens that a request of the batch may keep.

    Raises what a shard raises for a batch that is none: IndexError, ValueError, TypeError, and
    NotImplementedError, which is a RuntimeError, where a request has no text.
    """
    requests = batch.requests
    if not requests:
        raise IndexError("list index out of range")
    if behaviour.protocol is Protocol.V3 and not all(r.text for r in requests):
        raise NotImplementedError("Request without a text chunk")
    for request in requests:
        check_choice(request.choice, behaviour)
    longest = max(r.truncate for r in requests)
    if longest < 1:
        raise TypeError(  # in the words of torch 2.13
            "new_zeros(): argument 'size' failed to unpack the object at pos 2 with error "
            '"type must be tuple of ints,but got Tensor"'
        )
    return longest


def check_size(batch: Batch, longest: int) -> None:
    """RuntimeError where the batch's size is not that of its requests, of which the longest prompt
    has so many tokens."""
    asked, there = batch.size, len(batch.requests)
    if asked != there:
        raise RuntimeError(
            f"The expanded size of the tensor ({asked}) must match the existing size ({there}) at "
            f"non-singleton dimension 0.  Target sizes: [{asked}, {longest}].  "
            f"Tensor sizes: [{there}, {longest}]"
        )


def padded_warmup(warmup: Warmup, behaviour: Behaviour) -> WarmupReply:
    """What a padded class answers: no room, and from 3.0.0 on the limits that it was asked for.

    Where it was asked for none they are those of the batch.
    """
    if not behaviour.names_limits_in_warmup:
        return WarmupReply(None)
    total = warmup.max_total_tokens or sum(r.truncate for r in warmup.batch.requests)
    return WarmupReply(None, warmup.max_input_tokens or total - 1, total)

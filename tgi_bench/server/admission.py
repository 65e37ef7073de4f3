"""What a shard refuses before it computes anything, whichever engine it has."""

from __future__ import annotations

from tgi_bench.server.behaviour import Behaviour
from tgi_bench.server.choice import check_choice
from tgi_bench.wire.messages import Batch, Protocol


def longest_prompt(batch: Batch, behaviour: Behaviour) -> int:
    """The most prompt tokens that a request of the batch keeps.

    Raises what a shard raises for a batch that is none: IndexError, ValueError, TypeError, and
    RuntimeError where its size is not that of its requests.
    """
    requests = batch.requests
    if not requests:
        raise IndexError("list index out of range")
    if behaviour.protocol is Protocol.V3 and not all(r.text for r in requests):
        raise ValueError("Request without a text chunk")
    for request in requests:
        check_choice(request.choice)
    longest = max(r.truncate for r in requests)
    if longest < 1:
        raise TypeError(
            "new_zeros(): argument 'size' (position 1) must be tuple of ints, "
            "but found element of type float at pos 2"
        )
    if batch.size != len(requests):
        raise RuntimeError(
            f"The size of tensor a ({batch.size}) must match the size of tensor b "
            f"({len(requests)}) at non-singleton dimension 0"
        )
    return longest

"""What a shard asks of the engine that computes its steps; what every engine refuses before it
computes anything, and what TGI's padded classes set aside for a batch: CachedBatch.max_tokens.

A batch carries that number along; it is not counted anew at every step. From 0.9.0 on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tgi_bench.server.behaviour import Behaviour
from tgi_bench.server.config import EngineConfig
from tgi_bench.wire import messages as m
from tgi_bench.wire.messages import Batch, TokenChoice, Warmup, WarmupReply


class Engine(Protocol):
    """Batches between steps, and the steps on them. Its methods block.

    RuntimeError: out of memory, and what else ends a shard of 2.0 and later. ValueError,
    LookupError, TypeError, AssertionError: what a shard answers and survives.
    """

    @property
    def description(self) -> str | None:
        """What it runs, in one sentence for the log; None where there is nothing to say."""

    def info(self) -> m.Info:
        """What the shard says of itself."""

    def warmup(self, warmup: m.Warmup) -> m.WarmupReply:
        """One prefill of the batch, of which nothing stays; and what memory is left for."""

    def prefill(self, batch: m.Batch) -> m.StepReply:
        """The first token of every request. A failure leaves nothing behind."""

    def decode(self, batches: Iterable[m.CachedBatch]) -> m.StepReply:
        """One more token for every request of the batches, which are joined into the first.

        Batches are taken out of the cache before anything else: a failed step loses them.
        """

    def filter_batch(self, batch_id: int, request_ids: Iterable[int]) -> m.CachedBatch:
        """Keep these requests of a batch, in this order. A failure loses the batch."""

    def clear_cache(self, batch_id: int | None) -> None:
        """Forget a batch, known or not; None forgets all."""


def engine_of(config: EngineConfig, behaviour: Behaviour, shard_rank: int) -> Engine:
    """The engine of one rank with its weights loaded; for the rank's own process.

    Raises RuntimeError where they do not fit and InputError for what cannot be run.
    """
    if config.torch_model is None:
        from tgi_bench.server.simulated_engine import SimulatedEngine

        return SimulatedEngine(config, behaviour)
    # It imports torch: only where it is asked for.
    from tgi_bench.server.transformers_engine import TransformersEngine
    from tgi_bench.torch_engine.loading import load
    from tgi_bench.torch_engine.spec import Rank

    rank = Rank(shard_rank, config.num_shard, config.master_port)
    return TransformersEngine(load(config.torch_model, rank), behaviour)


def longest_prompt(batch: Batch, behaviour: Behaviour) -> int:
    """The most prompt tokens that a request of the batch may keep.

    Raises what a shard raises for a batch that is none: IndexError, ValueError, TypeError, and
    NotImplementedError, which is a RuntimeError, where a request has no text.
    """
    requests = batch.requests
    if not requests:
        raise IndexError("list index out of range")
    if behaviour.protocol is m.Protocol.V3 and not all(r.text for r in requests):
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


def check_choice(choice: TokenChoice, behaviour: Behaviour) -> None:
    """ValueError for parameters that a shard refuses, in the words of its library.

    Zeros are refused, and proto3's zeros are what a client sends that sets nothing.
    """
    temperature = choice.temperature
    if not temperature > 0 and not behaviour.explains_temperature:
        raise ValueError(f"`temperature` has to be a strictly positive float, but is {temperature}")
    if not temperature > 0:
        hint = (
            " If you're looking for greedy decoding strategies, set `do_sample=False`."
            if temperature == 0
            else ""
        )
        raise ValueError(
            f"`temperature` (={temperature}) has to be a strictly positive float, otherwise "
            f"your next token scores will be invalid.{hint}"
        )
    for name, share in (("top_p", choice.top_p), ("typical_p", choice.typical_p)):
        if not 0 < share <= 1:
            raise ValueError(f"`{name}` has to be a float > 0 and < 1, but is {share}")
    if not choice.repetition_penalty > 0:
        raise ValueError(
            f"`penalty` has to be a strictly positive float, but is {choice.repetition_penalty}"
        )


def padded_warmup(warmup: Warmup, behaviour: Behaviour) -> WarmupReply:
    """What a padded class answers: no room, and from 3.0.0 on the limits that it was asked for.

    Where it was asked for none they are those of the batch.
    """
    if not behaviour.names_limits_in_warmup:
        return WarmupReply(None)
    total = warmup.max_total_tokens or sum(r.truncate for r in warmup.batch.requests)
    return WarmupReply(None, warmup.max_input_tokens or total - 1, total)


@dataclass(frozen=True, slots=True)
class PaddedPart:
    """A batch that is to be joined. contexts: tokens of each row, prompt and generated."""

    room_tokens: int
    contexts: Sequence[int]


def room_of_prompts(prompts: Sequence[int], new_tokens: Sequence[int]) -> int:
    """After prefill: every row at the longest prompt and the new tokens of all rows."""
    return len(prompts) * (max(prompts) + sum(new_tokens))


def room_of_kept(contexts: Sequence[int], left_tokens: Sequence[int]) -> int:
    """After a filter: every row at the longest context, and the tokens that are still to come."""
    return len(contexts) * max(contexts) + sum(left_tokens)


def room_of_joined(parts: Sequence[PaddedPart]) -> int:
    """The rooms of all parts, with every row at the longest context."""
    longest = max(max(part.contexts) for part in parts)
    return sum(
        part.room_tokens + (longest - max(part.contexts)) * len(part.contexts) for part in parts
    )

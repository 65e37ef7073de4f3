"""What a shard asks of the engine that computes its steps; and what every engine does alike: what
it refuses before it computes anything, the batches that it keeps, what it answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from tgi_bench.server.behaviour import Behaviour
from tgi_bench.wire import messages as m

BLOCK_TOKENS = 16
"""Tokens of one block of a KV cache (paged attention)."""


class StepEngine(Protocol):
    """Batches between steps, and the steps on them. Its methods block.

    RuntimeError: out of memory, and what else ends a shard of 2.0 and later. ValueError,
    LookupError, TypeError, AssertionError: what a shard answers and survives.
    """

    @property
    def description(self) -> str | None:
        """What it runs, in one sentence for the log; None where there is nothing to say."""

    def info(self) -> m.ShardInfo:
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


class AnsweredRequest(Protocol):
    """One request between its prefill and its last token.

    prompt_tokens: after truncation. generated_tokens: so far. finish_reason: None while it goes on.
    """

    @property
    def request(self) -> m.Request: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def generated_tokens(self) -> int: ...
    @property
    def finish_reason(self) -> m.FinishReason | None: ...

    def generated_text(self) -> m.GeneratedText | None:
        """The whole answer; None while the request goes on."""


A = TypeVar("A", bound=AnsweredRequest)
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class HeldBatch(Generic[A, R]):
    """Requests that are decoded together, in the order of their replies. Never empty.

    padded_room: tokens that TGI's padded classes set aside for it, CachedBatch.max_tokens; a batch
    carries the number along, it is not counted anew at every step. rows: what the engine keeps
    beside, in the same order.
    """

    id: int
    answers: tuple[A, ...]
    padded_room: int
    rows: R

    @property
    def contexts(self) -> tuple[int, ...]:
        """Tokens of each request, prompt and generated: what its next decode step attends to."""
        return tuple(a.prompt_tokens + a.generated_tokens for a in self.answers)


def prefilled(batch_id: int, answers: Sequence[A], rows: R) -> HeldBatch[A, R]:
    """A batch whose prompts are prefilled: room for every row at the longest prompt and the new
    tokens of all rows."""
    longest = max(a.prompt_tokens for a in answers)
    new_tokens = sum(a.request.stopping.max_new_tokens for a in answers)
    return HeldBatch(batch_id, tuple(answers), len(answers) * (longest + new_tokens), rows)


def joined(parts: Sequence[HeldBatch[A, R]], rows: R) -> HeldBatch[A, R]:
    """All requests under the first one's id: the rooms of all parts, with every row at the longest
    context."""
    longest = max(max(part.contexts) for part in parts)
    room = sum(
        part.padded_room + (longest - max(part.contexts)) * len(part.answers) for part in parts
    )
    return HeldBatch(parts[0].id, tuple(a for part in parts for a in part.answers), room, rows)


class HeldBatches(Generic[A, R]):
    """What one rank holds between steps: batches by their ids."""

    def __init__(self, behaviour: Behaviour, reserved: Callable[[A], int] | None = None) -> None:
        """reserved: tokens of the KV pool that are a request's own; None: the class pads."""
        self._behaviour = behaviour
        self._reserved = reserved
        self._batches: dict[int, HeldBatch[A, R]] = {}

    def __iter__(self) -> Iterator[HeldBatch[A, R]]:
        return iter(self._batches.values())

    def keep(self, held: HeldBatch[A, R]) -> m.CachedBatch:
        """Hold a batch; what a caller is told of it."""
        self._batches[held.id] = held
        size = len(held.answers)
        room = held.padded_room
        if self._reserved is not None:
            room = sum(map(self._reserved, held.answers))
        return m.CachedBatch(
            id=held.id,
            request_ids=tuple(a.request.id for a in held.answers),
            size=size,
            max_tokens=room,
            current_tokens=size if self._behaviour.sends_current_tokens else None,
        )

    def take(self, batches: Iterable[m.CachedBatch]) -> list[HeldBatch[A, R]]:
        """The batches of a decode step, which are held no longer."""
        taken = [self._take(batch.id) for batch in batches]
        if not taken:
            raise ValueError("Must provide at least one batch")
        return taken

    def take_filtered(
        self, batch_id: int, request_ids: Iterable[int]
    ) -> tuple[HeldBatch[A, R], list[int] | None]:
        """A batch with these requests only, in this order, held no longer; and their places.

        None: all of them, which changes nothing, not even their order. Else its room has every row
        at the longest context, and the tokens that are still to come: fewer than none for a
        request that has ended and was not filtered out.
        """
        held = self._take(batch_id)
        places = {a.request.id: place for place, a in enumerate(held.answers)}
        kept = [places[request_id] for request_id in request_ids]
        if not kept:
            raise ValueError("Batch must have at least one request")
        if len(kept) == len(held.answers):
            return held, None
        held = replace(held, answers=tuple(held.answers[place] for place in kept))
        left = sum(a.request.stopping.max_new_tokens - a.generated_tokens for a in held.answers)
        return replace(held, padded_room=len(kept) * max(held.contexts) + left), kept

    def clear(self, batch_id: int | None) -> None:
        """Forget a batch, held or not; None forgets all."""
        if batch_id is None:
            self._batches.clear()
        else:
            self._batches.pop(batch_id, None)

    def reply(
        self,
        held: HeldBatch[A, R],
        generations: tuple[m.Generation, ...],
        durations: m.Durations | None,
    ) -> m.StepReply:
        """A step's answer. The batch is kept whole until every request has ended: one that has is
        filtered out by the caller, or goes on."""
        goes_on = any(a.finish_reason is None for a in held.answers)
        return m.StepReply(generations, self.keep(held) if goes_on else None, durations)

    def _take(self, batch_id: int) -> HeldBatch[A, R]:
        held = self._batches.pop(batch_id, None)
        if held is None:
            raise ValueError(f"Batch ID {batch_id} not found in cache.")
        return held


def admitted(
    batch: m.Batch, behaviour: Behaviour, answer_of: Callable[[m.Request, int], A]
) -> tuple[A, ...]:
    """The batch's requests with their prompts cut, or the error that a shard raises for what is no
    batch: IndexError, ValueError, TypeError, RuntimeError.

    answer_of: takes a request and the most prompt tokens that one of the batch may keep.
    """
    longest = _longest_prompt(batch, behaviour)
    answers = tuple(answer_of(request, longest) for request in batch.requests)
    asked, there = batch.size, len(answers)
    if asked != there:
        longest = max(a.prompt_tokens for a in answers)
        raise RuntimeError(
            f"The expanded size of the tensor ({asked}) must match the existing size ({there}) at "
            f"non-singleton dimension 0.  Target sizes: [{asked}, {longest}].  "
            f"Tensor sizes: [{there}, {longest}]"
        )
    return answers


def _longest_prompt(batch: m.Batch, behaviour: Behaviour) -> int:
    requests = batch.requests
    if not requests:
        raise IndexError("list index out of range")
    if behaviour.protocol is m.Protocol.V3 and not all(r.text for r in requests):
        raise NotImplementedError("Request without a text chunk")
    for request in requests:
        _check_choice(request.choice, behaviour)
    longest = max(r.truncate for r in requests)
    if longest < 1:
        raise TypeError(  # in the words of torch 2.13
            "new_zeros(): argument 'size' failed to unpack the object at pos 2 with error "
            '"type must be tuple of ints,but got Tensor"'
        )
    return longest


def _check_choice(choice: m.TokenChoice, behaviour: Behaviour) -> None:
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


def info_of(behaviour: Behaviour, padded: bool, dtype: str, device_type: str) -> m.ShardInfo:
    """What a shard says of itself.

    Paged attention in blocks of 16, which TGI's padded classes name too although they have none:
    no engine here has the prefix cache or the chunking that flashinfer would stand for.
    """
    named = behaviour.names_attention
    return m.ShardInfo(
        requires_padding=padded,
        dtype=dtype,
        device_type=device_type,
        speculate=0,
        support_chunking=False if named else None,
        use_prefix_caching=False if named else None,
        attention_impl="paged" if named else None,
        block_size=BLOCK_TOKENS if named else None,
    )


def padded_warmup(warmup: m.Warmup, behaviour: Behaviour) -> m.WarmupReply:
    """What a padded class answers: no room, and from 3.0.0 on the limits that it was asked for.

    Where it was asked for none they are those of the batch.
    """
    if not behaviour.names_limits_in_warmup:
        return m.WarmupReply(None)
    total = warmup.max_total_tokens or sum(r.truncate for r in warmup.batch.requests)
    return m.WarmupReply(None, warmup.max_input_tokens or total - 1, total)


def warmup_reply(
    warmup: m.Warmup, behaviour: Behaviour, room: int, prefill_tokens: int
) -> m.WarmupReply:
    """What a class answers that has room for so many tokens after a prefill of prefill_tokens.

    RuntimeError where it has none; the limits, from 3.0.0 on, are no more than the room.
    """
    if not room:
        raise RuntimeError(
            f"Not enough memory to handle {prefill_tokens} prefill tokens. "
            "You need to decrease `--max-batch-prefill-tokens`"
        )
    if not behaviour.names_limits_in_warmup:
        return m.WarmupReply(room)
    total = min(warmup.max_total_tokens or room, room)
    return m.WarmupReply(room, min(warmup.max_input_tokens or total - 1, total - 1), total)


def generation(
    answer: AnsweredRequest,
    token: m.Token,
    top: tuple[m.Token, ...],
    prompt: tuple[m.Token, ...],
) -> m.Generation:
    """One request's share of a step. top: alternatives; prompt: its tokens where they are told."""
    return m.Generation(
        request_id=answer.request.id,
        tokens=(token,),
        generated_text=answer.generated_text(),
        prefill_tokens=prompt,
        top_tokens=(top,) if top else (),
    )


def step_durations(
    behaviour: Behaviour, total_ns: int, decode_ns: int, concat_ns: int | None
) -> m.Durations | None:
    """A step's own time; None where the version does not say. decode_ns: choosing tokens.

    concat_ns: joining batches, None where none were. What is left is the forward pass.
    """
    if not behaviour.sends_durations:
        return None
    forward_ns = max(1, total_ns - decode_ns - (concat_ns or 0))
    return m.Durations(forward_ns, decode_ns, total_ns, concat_ns)

"""The engine that computes with a model of transformers, as TGI's padded CausalLM class does.

It imports torch. Every rank of a tensor-parallel model gets the same calls and answers the same.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch

from tgi_bench.server.behaviour import Behaviour
from tgi_bench.server.engine import (
    PaddedPart,
    check_size,
    longest_prompt,
    padded_warmup,
    room_of_joined,
    room_of_kept,
    room_of_prompts,
)
from tgi_bench.server.sequences import BLOCK_TOKENS
from tgi_bench.torch_engine.choosing import Chooser, Chosen, Manner, Row, choose, prompt_logprobs
from tgi_bench.torch_engine.model import LoadedModel, PaddedBatch, guarded, joined
from tgi_bench.torch_engine.tokenizers import IncrementalText
from tgi_bench.wire import messages as m
from tgi_bench.wire.messages import FinishReason, GeneratedText, Request, Token, TokenChoice

_COPIES = 2
"""Bytes set aside for one of KV cache: it grows by concatenation, layer by layer, and leaves
gaps that an allocator cannot fill."""


@dataclass(slots=True)
class _Held:
    """A batch between steps; answers are in the order of the rows.

    room_tokens: set aside for it (`room_of_prompts`).
    """

    id: int
    batch: PaddedBatch
    answers: list[Answering]
    room_tokens: int

    @property
    def contexts(self) -> tuple[int, ...]:
        """Tokens of each row, prompt and generated."""
        return tuple(len(answer.ids) for answer in self.answers)


@dataclass(frozen=True, slots=True)
class _Timed:
    """When a step began and its forward pass ended. concat_ns: None where nothing was joined."""

    start_ns: int
    forward_end_ns: int
    concat_ns: int | None = None


class TransformersEngine:
    """Steps of one model. See `server.engine.Engine` for what its methods promise."""

    def __init__(self, model: LoadedModel, behaviour: Behaviour) -> None:
        self._model = model
        self._behaviour = behaviour
        self._cache: dict[int, _Held] = {}

    @property
    def description(self) -> str | None:
        """The model, its weights, its device, and who computes."""
        model = self._model
        versions = ", ".join(f"{name} {version}" for name, version in model.versions)
        return (
            f"Model {model.architecture}: {model.parameters} parameters, "
            f"{model.weight_type.value} weights, {model.attention} attention, "
            f"on {model.device_name}; {versions}"
        )

    def info(self) -> m.Info:
        """Paged attention in blocks of 16, as TGI's padded class says although it has none."""
        named = self._behaviour.names_attention
        return m.Info(
            requires_padding=True,
            dtype=str(self._model.network.dtype),
            device_type=self._model.device.type,
            speculate=0,
            support_chunking=False if named else None,
            use_prefix_caching=False if named else None,
            attention_impl="paged" if named else None,
            block_size=BLOCK_TOKENS if named else None,
        )

    def warmup(self, warmup: m.Warmup) -> m.WarmupReply:
        """One prefill of the batch; then the tokens that the memory it leaves can hold.

        (free - what the prefill took beside its KV cache) / (KV bytes of a token * _COPIES).
        None where the system does not say what is free. TGI's padded class never says.
        """
        self._model.synchronise()
        self._model.reset_peak()
        before = self._model.peak_bytes()
        reply = self.prefill(warmup.batch)
        tokens = 0
        if reply.cached is not None:
            tokens = sum(self._cache[warmup.batch.id].batch.lengths)
        self._cache.clear()
        free, after = self._model.free_bytes(), self._model.peak_bytes()
        if free is None:
            return padded_warmup(warmup, self._behaviour)
        kv = self._model.kv_bytes_per_token
        grown = 0 if before is None or after is None else after - before
        room = max(0, free - max(0, grown - tokens * kv)) // (kv * _COPIES)
        if not room:
            raise RuntimeError(
                f"Not enough memory to handle {warmup.max_prefill_tokens} prefill tokens. "
                "You need to decrease `--max-batch-prefill-tokens`"
            )
        if not self._behaviour.names_limits_in_warmup:
            return m.WarmupReply(room)
        total = min(warmup.max_total_tokens or room, room)
        return m.WarmupReply(room, min(warmup.max_input_tokens or total - 1, total - 1), total)

    def prefill(self, batch: m.Batch) -> m.StepReply:
        """The first token of every request."""
        start_ns = time.monotonic_ns()
        answers = self._admitted(batch)
        always = self._behaviour.always_sends_prefill_tokens
        asked = [always or answer.request.prefill_logprobs for answer in answers]
        padded = self._model.padded([answer.ids for answer in answers])
        logits = self._model.prefill(padded, all_logits=any(asked))
        told: list[tuple[m.Token, ...]] = [() for _ in answers]
        if any(asked):
            told = guarded(lambda: self._prompts(logits, answers, asked))
            logits = logits[:, -1]
        self._model.synchronise()
        timed = _Timed(start_ns, time.monotonic_ns())
        room = room_of_prompts(
            [answer.prompt_tokens for answer in answers],
            [answer.request.stopping.max_new_tokens for answer in answers],
        )
        return self._step(_Held(batch.id, padded, answers, room), logits, timed, told)

    def decode(self, batches: Iterable[m.CachedBatch]) -> m.StepReply:
        """One more token for every request."""
        start_ns = time.monotonic_ns()
        taken = [self._take(batch.id) for batch in batches]
        if not taken:
            raise ValueError("Must provide at least one batch")
        held, concat_ns = taken[0], None
        if len(taken) > 1:
            rows = guarded(lambda: joined([part.batch for part in taken]))
            self._model.synchronise()
            room = room_of_joined([PaddedPart(part.room_tokens, part.contexts) for part in taken])
            held = _Held(held.id, rows, [a for part in taken for a in part.answers], room)
            concat_ns = max(1, time.monotonic_ns() - start_ns)
        logits = self._model.decode(held.batch)
        self._model.synchronise()
        return self._step(held, logits, _Timed(start_ns, time.monotonic_ns(), concat_ns), None)

    def filter_batch(self, batch_id: int, request_ids: Iterable[int]) -> m.CachedBatch:
        """Keep these requests of a batch, in this order; all of them: change nothing."""
        held = self._take(batch_id)
        rows = {answer.request.id: row for row, answer in enumerate(held.answers)}
        kept = [rows[request_id] for request_id in request_ids]
        if not kept:
            raise ValueError("Batch must have at least one request")
        if len(kept) < len(held.answers):
            with torch.inference_mode():
                guarded(lambda: held.batch.keep(kept))
            held.answers = [held.answers[row] for row in kept]
            held.room_tokens = room_of_kept(held.contexts, [a.left for a in held.answers])
        self._cache[batch_id] = held
        return self._cached(held)

    def clear_cache(self, batch_id: int | None) -> None:
        """Forget a batch, known or not; None forgets all."""
        if batch_id is None:
            self._cache.clear()
        else:
            self._cache.pop(batch_id, None)

    def _take(self, batch_id: int) -> _Held:
        held = self._cache.pop(batch_id, None)
        if held is None:
            raise ValueError(f"Batch ID {batch_id} not found in cache.")
        return held

    def _admitted(self, batch: m.Batch) -> list[Answering]:
        """The batch's requests with their prompts cut, or the error that a shard raises."""
        longest = longest_prompt(batch, self._behaviour)
        answers = [Answering.of(r, longest, self._model) for r in batch.requests]
        check_size(batch, max(answer.prompt_tokens for answer in answers))
        for answer in answers:
            self._model.check([answer.ids], answer.request.stopping.max_new_tokens)
        return answers

    def _prompts(
        self, logits: torch.Tensor, answers: Sequence[Answering], asked: Sequence[bool]
    ) -> list[tuple[m.Token, ...]]:
        """The prompt tokens of each request that asked, the first without a probability."""
        told: list[tuple[m.Token, ...]] = []
        for row, answer in enumerate(answers):
            if not asked[row]:
                told.append(())
                continue
            own = logits[row, -len(answer.ids) :]
            found = (math.nan, *prompt_logprobs(own, answer.ids))
            told.append(tuple(map(answer.token, answer.ids, found)))
        return told

    def _step(
        self,
        held: _Held,
        logits: torch.Tensor,
        timed: _Timed,
        prompts: list[tuple[m.Token, ...]] | None,
    ) -> m.StepReply:
        """Choose tokens, tell them, keep the batch.

        It is kept whole until every request has ended: one that has is filtered out by the
        caller, or goes on. forward_ns: to the end of the forward pass, joining left out.
        decode_ns: the rest.
        """
        rows = [Row(a.chooser, a.ids, a.request.top_n_tokens) for a in held.answers]
        ids, chosen = guarded(lambda: choose(logits, rows))
        held.batch.ids = ids.to(self._model.device)
        told = prompts or [()] * len(rows)
        generations = tuple(map(_generation, held.answers, chosen, told))
        cached = None
        if any(answer.finish_reason is None for answer in held.answers):
            self._cache[held.id] = held
            cached = self._cached(held)
        return m.StepReply(generations, cached, self._durations(timed))

    def _durations(self, timed: _Timed) -> m.Durations | None:
        if not self._behaviour.sends_durations:
            return None
        end_ns = time.monotonic_ns()
        forward_ns = timed.forward_end_ns - timed.start_ns - (timed.concat_ns or 0)
        return m.Durations(
            forward_ns=max(1, forward_ns),
            decode_ns=max(1, end_ns - timed.forward_end_ns),
            total_ns=end_ns - timed.start_ns,
            concat_ns=timed.concat_ns,
        )

    def _cached(self, held: _Held) -> m.CachedBatch:
        size = len(held.answers)
        return m.CachedBatch(
            id=held.id,
            request_ids=tuple(answer.request.id for answer in held.answers),
            size=size,
            max_tokens=held.room_tokens,
            current_tokens=size if self._behaviour.sends_current_tokens else None,
        )


def _generation(answer: Answering, chosen: Chosen, prompt: tuple[m.Token, ...]) -> m.Generation:
    token = answer.append(chosen)
    top = tuple(answer.token(token_id, logprob) for token_id, logprob in chosen.top)
    return m.Generation(
        request_id=answer.request.id,
        tokens=(token,),
        generated_text=answer.generated_text(),
        prefill_tokens=prompt,
        top_tokens=(top,) if top else (),
    )


_STOP_CHARACTERS = 300
"""How much of an answer's end TGI compares with stop sequences."""


@dataclass(slots=True)
class Answering:
    """A request between its prefill and its last token.

    ids: the prompt after truncation, then the new tokens. prompt_tokens: of the first.
    finish_reason: None while it goes on.
    """

    request: Request
    model: LoadedModel
    ids: list[int]
    chooser: Chooser
    text: IncrementalText
    prompt_tokens: int
    end_ids: frozenset[int]
    finish_reason: FinishReason | None = None
    _end: str = field(default="")

    @classmethod
    def of(cls, request: Request, longest: int, model: LoadedModel) -> Answering:
        """longest: the most prompt tokens of its batch, for a request that does not say."""
        limit = request.truncate if request.truncate > 0 else longest
        special = request.add_special_tokens
        # An empty prompt still has one token: a model's beginning of sequence.
        ids = list(model.tokenizer.ids(request.text, limit, special)) or [0]
        return cls(
            request=request,
            model=model,
            ids=ids,
            chooser=Chooser(_manner(request.choice), model.device),
            text=IncrementalText(model.tokenizer, ids),
            prompt_tokens=len(ids),
            end_ids=frozenset() if request.stopping.ignore_eos_token else model.end_ids,
        )

    @property
    def generated_tokens(self) -> int:
        """New tokens so far."""
        return len(self.ids) - self.prompt_tokens

    @property
    def left(self) -> int:
        """New tokens that are still to come; below 0 where it has ended and was not filtered
        out."""
        return self.request.stopping.max_new_tokens - self.generated_tokens

    def token(self, token_id: int, logprob: float) -> Token:
        """A token by itself, as a prompt's and an alternative's are told."""
        tokenizer = self.model.tokenizer
        special = token_id in tokenizer.special_ids
        return Token(token_id, logprob, tokenizer.text([token_id]), special)

    def append(self, chosen: Chosen) -> Token:
        """Take the next token. Length ends a request before the end of sequence does, and that
        before a stop sequence."""
        self.ids.append(chosen.token)
        text = self.text.added(chosen.token)
        stopping = self.request.stopping
        if self.generated_tokens >= stopping.max_new_tokens:
            self.finish_reason = FinishReason.LENGTH
        elif chosen.token in self.end_ids:
            self.finish_reason = FinishReason.EOS_TOKEN
        elif stopping.stop_sequences:
            self._end = (self._end + text)[-_STOP_CHARACTERS:]
            if self._end.endswith(stopping.stop_sequences):
                self.finish_reason = FinishReason.STOP_SEQUENCE
        special = chosen.token in self.model.tokenizer.special_ids
        return Token(chosen.token, chosen.logprob, text, special)

    def generated_text(self) -> GeneratedText | None:
        """The whole answer; None while the request goes on. seed: None where none was used."""
        if self.finish_reason is None:
            return None
        prompt, new = self.ids[: self.prompt_tokens], self.ids[self.prompt_tokens :]
        manner = self.chooser.manner
        return GeneratedText(
            text=IncrementalText.answer(self.model.tokenizer, prompt, new),
            generated_tokens=self.generated_tokens,
            finish_reason=self.finish_reason,
            seed=manner.seed if manner.samples else None,
        )


def _manner(choice: TokenChoice) -> Manner:
    return Manner(
        temperature=choice.temperature,
        top_k=choice.top_k,
        top_p=choice.top_p,
        typical_p=choice.typical_p,
        do_sample=choice.do_sample,
        seed=choice.seed,
        repetition_penalty=choice.repetition_penalty,
        frequency_penalty=choice.frequency_penalty,
        watermark=choice.watermark,
    )

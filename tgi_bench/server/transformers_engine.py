"""The engine that computes with a model of transformers, as TGI's padded CausalLM class does.

It imports torch. Every rank of a tensor-parallel model gets the same calls and answers the same.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field

import torch

from tgi_bench.server.behaviour import Behaviour
from tgi_bench.server.engine import (
    HeldBatch,
    HeldBatches,
    admitted,
    generation,
    info_of,
    joined,
    padded_warmup,
    prefilled,
    step_durations,
    warmup_reply,
)
from tgi_bench.torch_engine.choosing import (
    ChoiceRow,
    Chooser,
    Chosen,
    Manner,
    choose,
    prompt_logprobs,
)
from tgi_bench.torch_engine.model import LoadedModel, PaddedBatch, guarded, joined_rows
from tgi_bench.torch_engine.tokenizers import IncrementalText
from tgi_bench.wire import messages as m

_COPIES = 2
"""Bytes set aside for one of KV cache: it grows by concatenation, layer by layer, and leaves
gaps that an allocator cannot fill."""


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
        self._held: HeldBatches[ComputedAnswer, PaddedBatch] = HeldBatches(behaviour)

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

    def info(self) -> m.ShardInfo:
        """What the shard says of itself."""
        network = self._model.network
        return info_of(self._behaviour, True, str(network.dtype), self._model.device.type)

    def warmup(self, warmup: m.Warmup) -> m.WarmupReply:
        """One prefill of the batch; then the tokens that the memory it leaves can hold.

        (free - what the prefill took beside its KV cache) / (KV bytes of a token * _COPIES).
        None where the system does not say what is free. TGI's padded class never says.
        """
        self._model.synchronise()
        self._model.reset_peak()
        before = self._model.peak_bytes()
        self.prefill(warmup.batch)
        tokens = sum(sum(h.rows.lengths) for h in self._held if h.id == warmup.batch.id)
        self._held.clear(None)
        free, after = self._model.free_bytes(), self._model.peak_bytes()
        if free is None:
            return padded_warmup(warmup, self._behaviour)
        kv = self._model.kv_bytes_per_token
        grown = 0 if before is None or after is None else after - before
        room = max(0, free - max(0, grown - tokens * kv)) // (kv * _COPIES)
        return warmup_reply(warmup, self._behaviour, room, warmup.max_prefill_tokens)

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
        return self._step(prefilled(batch.id, answers, padded), logits, timed, told)

    def decode(self, batches: Iterable[m.CachedBatch]) -> m.StepReply:
        """One more token for every request."""
        start_ns = time.monotonic_ns()
        taken = self._held.take(batches)
        held, concat_ns = taken[0], None
        if len(taken) > 1:
            rows = guarded(lambda: joined_rows([part.rows for part in taken]))
            self._model.synchronise()
            held = joined(taken, rows)
            concat_ns = max(1, time.monotonic_ns() - start_ns)
        logits = self._model.decode(held.rows)
        self._model.synchronise()
        return self._step(held, logits, _Timed(start_ns, time.monotonic_ns(), concat_ns), None)

    def filter_batch(self, batch_id: int, request_ids: Iterable[int]) -> m.CachedBatch:
        """Keep these requests of a batch, in this order; all of them: change nothing."""
        held, kept = self._held.take_filtered(batch_id, request_ids)
        if kept is not None:
            with torch.inference_mode():
                guarded(lambda: held.rows.keep(kept))
        return self._held.keep(held)

    def clear_cache(self, batch_id: int | None) -> None:
        """Forget a batch, known or not; None forgets all."""
        self._held.clear(batch_id)

    def _admitted(self, batch: m.Batch) -> tuple[ComputedAnswer, ...]:
        """The batch's requests with their prompts cut, or the error that a shard raises."""
        answers = admitted(batch, self._behaviour, self._answer)
        for answer in answers:
            self._model.check([answer.ids], answer.request.stopping.max_new_tokens)
        return answers

    def _answer(self, request: m.Request, longest: int) -> ComputedAnswer:
        return ComputedAnswer.of(request, longest, self._model)

    def _prompts(
        self, logits: torch.Tensor, answers: Sequence[ComputedAnswer], asked: Sequence[bool]
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
        held: HeldBatch[ComputedAnswer, PaddedBatch],
        logits: torch.Tensor,
        timed: _Timed,
        prompts: list[tuple[m.Token, ...]] | None,
    ) -> m.StepReply:
        """Choose tokens, tell them, keep the batch.

        forward_ns: to the end of the forward pass, joining left out. decode_ns: the rest.
        """
        rows = [ChoiceRow(a.chooser, a.ids, a.request.top_n_tokens) for a in held.answers]
        ids, chosen = guarded(lambda: choose(logits, rows))
        held.rows.ids = ids.to(self._model.device)
        told = prompts or [()] * len(rows)
        generations = tuple(map(_generation, held.answers, chosen, told))
        end_ns = time.monotonic_ns()
        durations = step_durations(
            self._behaviour,
            total_ns=end_ns - timed.start_ns,
            decode_ns=max(1, end_ns - timed.forward_end_ns),
            concat_ns=timed.concat_ns,
        )
        return self._held.reply(held, generations, durations)


def _generation(
    answer: ComputedAnswer, chosen: Chosen, prompt: tuple[m.Token, ...]
) -> m.Generation:
    token = answer.append(chosen)
    top = tuple(answer.token(token_id, logprob) for token_id, logprob in chosen.top)
    return generation(answer, token, top, prompt)


_STOP_CHARACTERS = 300
"""How much of an answer's end TGI compares with stop sequences."""


@dataclass(slots=True)
class ComputedAnswer:
    """A request between its prefill and its last token.

    ids: the prompt after truncation, then the new tokens. prompt_tokens: of the first.
    finish_reason: None while it goes on.
    """

    request: m.Request
    model: LoadedModel
    ids: list[int]
    chooser: Chooser
    text: IncrementalText
    prompt_tokens: int
    end_ids: frozenset[int]
    finish_reason: m.FinishReason | None = None
    _end: str = field(default="")

    @classmethod
    def of(cls, request: m.Request, longest: int, model: LoadedModel) -> ComputedAnswer:
        """longest: the most prompt tokens of its batch, for a request that does not say."""
        limit = request.truncate if request.truncate > 0 else longest
        special = request.add_special_tokens
        # An empty prompt still has one token: a model's beginning of sequence.
        ids = list(model.tokenizer.ids(request.text, limit, special)) or [0]
        return cls(
            request=request,
            model=model,
            ids=ids,
            chooser=Chooser(Manner(**asdict(request.choice)), model.device),
            text=IncrementalText(model.tokenizer, ids),
            prompt_tokens=len(ids),
            end_ids=frozenset() if request.stopping.ignore_eos_token else model.end_ids,
        )

    @property
    def generated_tokens(self) -> int:
        """New tokens so far."""
        return len(self.ids) - self.prompt_tokens

    def token(self, token_id: int, logprob: float) -> m.Token:
        """A token by itself, as a prompt's and an alternative's are told."""
        tokenizer = self.model.tokenizer
        special = token_id in tokenizer.special_ids
        return m.Token(token_id, logprob, tokenizer.text([token_id]), special)

    def append(self, chosen: Chosen) -> m.Token:
        """Take the next token. Length ends a request before the end of sequence does, and that
        before a stop sequence."""
        self.ids.append(chosen.token)
        text = self.text.added(chosen.token)
        stopping = self.request.stopping
        if self.generated_tokens >= stopping.max_new_tokens:
            self.finish_reason = m.FinishReason.LENGTH
        elif chosen.token in self.end_ids:
            self.finish_reason = m.FinishReason.EOS_TOKEN
        elif stopping.stop_sequences:
            self._end = (self._end + text)[-_STOP_CHARACTERS:]
            if self._end.endswith(stopping.stop_sequences):
                self.finish_reason = m.FinishReason.STOP_SEQUENCE
        special = chosen.token in self.model.tokenizer.special_ids
        return m.Token(chosen.token, chosen.logprob, text, special)

    def generated_text(self) -> m.GeneratedText | None:
        """The whole answer; None while the request goes on. seed: None where none was used."""
        if self.finish_reason is None:
            return None
        prompt, new = self.ids[: self.prompt_tokens], self.ids[self.prompt_tokens :]
        manner = self.chooser.manner
        return m.GeneratedText(
            text=IncrementalText.answer(self.model.tokenizer, prompt, new),
            generated_tokens=self.generated_tokens,
            finish_reason=self.finish_reason,
            seed=manner.seed if manner.samples else None,
        )

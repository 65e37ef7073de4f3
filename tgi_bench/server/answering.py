"""One request that the transformers engine is answering: its tokens, its text, its end."""

from __future__ import annotations

from dataclasses import dataclass, field

from tgi_bench.torch_engine.choosing import Chooser, Chosen, Manner
from tgi_bench.torch_engine.model import LoadedModel
from tgi_bench.torch_engine.tokenizers import IncrementalText
from tgi_bench.wire.messages import FinishReason, GeneratedText, Request, Token, TokenChoice

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

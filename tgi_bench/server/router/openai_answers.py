"""The JSON of the OpenAI routes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from tgi_bench.server.behaviour import Behaviour
from tgi_bench.server.router.details import finish_reason, logprob
from tgi_bench.server.router.inference import Sequence
from tgi_bench.server.router.openai_requests import OpenAiRequest
from tgi_bench.server.router.waiting import NewToken
from tgi_bench.wire.messages import FinishReason, Token

_COMPLETION = "text_completion"


@dataclass(slots=True)
class Usage:
    """Tokens of a request, over all its prompts."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def json(self) -> dict[str, object]:
        """With their sum."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }


@dataclass(frozen=True, slots=True)
class Answers:
    """Formats the answers to one request. created: Unix time, s, of the first."""

    asked: OpenAiRequest
    behaviour: Behaviour
    model: str
    fingerprint: str
    created: int = field(default_factory=lambda: int(time.time()))

    def completion(self, sequences: Iterable[Sequence]) -> dict[str, object]:
        """A whole answer of /v1/completions."""
        sequences = tuple(sequences)
        choices: list[dict[str, object]] = [
            {
                "index": index,
                "text": sequence.end.text,
                "logprobs": None,
                "finish_reason": self._reason(sequence.end.finish_reason),
            }
            for index, sequence in enumerate(sequences)
        ]
        return self._whole(_COMPLETION, choices, sequences)

    def chat(self, sequence: Sequence) -> dict[str, object]:
        """A whole answer of /v1/chat/completions."""
        alternatives = sequence.top_tokens or ((),) * len(sequence.tokens)
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": sequence.end.text},
            "logprobs": self._logprobs(zip(sequence.tokens, alternatives, strict=True)),
            "finish_reason": self._reason(sequence.end.finish_reason),
        }
        kind = "chat.completion" if self.behaviour.chat_has_its_object else _COMPLETION
        return self._whole(kind, [choice], (sequence,))

    def completion_chunk(self, index: int, new: NewToken, usage: Usage) -> dict[str, object]:
        """One token of /v1/completions. index: which prompt. usage: of that prompt so far, which
        the last token tells, asked for or not, with the reason, where this version does."""
        last = new.end is not None and self.behaviour.openai_streams_tell_usage
        choice = {
            "index": index,
            "text": new.token.text,
            "logprobs": None,
            "finish_reason": finish_reason(new.end.finish_reason) if new.end and last else "",
        }
        chunk = self._chunk(_COMPLETION, [choice])
        return {**chunk, "usage": usage.json} if last else chunk

    def chat_chunk(self, new: NewToken) -> dict[str, object]:
        """One token of /v1/chat/completions: every delta names the role, as TGI's do."""
        choice = {
            "index": 0,
            "delta": {"role": "assistant", "content": new.token.text},
            "logprobs": self._logprobs(((new.token, new.top_tokens),)),
            "finish_reason": None if new.end is None else self._reason(new.end.finish_reason),
        }
        chunk = self._chunk(self._chat_kind, [choice])
        return {**chunk, "usage": None} if self.behaviour.openai_streams_tell_usage else chunk

    def usage_chunk(self, usage: Usage) -> dict[str, object]:
        """The last chunk of a chat where include_usage asks for it: no choices."""
        return {**self._chunk(self._chat_kind, []), "usage": usage.json}

    @property
    def _chat_kind(self) -> str:
        return "chat.completion.chunk" if self.behaviour.chat_has_its_object else _COMPLETION

    def _whole(
        self, kind: str, choices: list[dict[str, object]], sequences: tuple[Sequence, ...]
    ) -> dict[str, object]:
        usage = Usage(
            sum(sequence.input_tokens for sequence in sequences),
            sum(sequence.end.generated_tokens for sequence in sequences),
        )
        return {**self._chunk(kind, choices), "usage": usage.json}

    def _chunk(self, kind: str, choices: list[dict[str, object]]) -> dict[str, object]:
        return {
            "object": kind,
            "id": "",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        }

    def _reason(self, reason: FinishReason) -> str:
        if reason is FinishReason.EOS_TOKEN and self.behaviour.openai_says_stop:
            return "stop"
        return finish_reason(reason)

    def _logprobs(
        self, tokens: Iterable[tuple[Token, tuple[Token, ...]]]
    ) -> dict[str, object] | None:
        if not self.asked.logprobs:
            return None
        return {
            "content": [
                {
                    **_openai_token(token),
                    "top_logprobs": [_openai_token(other) for other in alternatives],
                }
                for token, alternatives in tokens
            ]
        }


def _openai_token(token: Token) -> dict[str, object]:
    return {"token": token.text, "logprob": logprob(token)}

"""The OpenAI routes, /chat_tokenize among them: their bodies to GenerateRequests, their JSON.

Ignored as TGI ignores them: `n`, `best_of`, `user`, `logit_bias`, `model` (no adapter is
loaded). Refused: `suffix` as TGI does; tools and response formats, which the simulated
engine cannot follow, in the words of a TGI started with --disable-grammar-support.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from aiohttp import web

from tgi_bench.server.behaviour import Behaviour
from tgi_bench.server.router.body import Fields, RequestError, invalid, unprocessable
from tgi_bench.server.router.deployment import EventWriter, RoutedDeployment, json_answer, read_body
from tgi_bench.server.router.generate import finish_reason, headers, logprob, token_spans
from tgi_bench.server.router.inference import NewToken, WholeAnswer
from tgi_bench.server.router.validation import GenerateRequest, Parameters
from tgi_bench.wire.messages import FinishReason, Token

PRESENCE_OFFSET = 2.0
"""TGI takes presence_penalty + 2 as repetition_penalty."""


@dataclass(frozen=True, slots=True)
class OpenAiRequest:
    """One request: as many prompts as the client sent (chat: one).

    model: None where the client named none. include_usage: a last chunk with token counts.
    """

    prompts: tuple[GenerateRequest, ...]
    model: str | None
    stream: bool
    include_usage: bool
    logprobs: bool


def read_chat(body: Fields, behaviour: Behaviour) -> OpenAiRequest:
    """The body of /v1/chat/completions. Raises BodyError and RequestError."""
    messages = body.mappings("messages")
    if not body.has("messages"):
        raise unprocessable("missing field `messages`")
    logprobs = body.flag("logprobs")
    # top_logprobs is read also without logprobs, so that a wrong type is still refused.
    top_logprobs = body.count("top_logprobs")
    if top_logprobs is not None and not logprobs:
        raise invalid("`logprobs` must be true when `top_logprobs` is set")
    constrained = bool(body.mappings("tools")) or body.mapping("response_format") is not None
    presence = body.number("presence_penalty")
    parameters = _parameters(
        body,
        behaviour,
        repetition_penalty=None if presence is None else presence + PRESENCE_OFFSET,
        top_n_tokens=top_logprobs,
        grammar=constrained,
    )
    return _request(body, (GenerateRequest(chat_prompt(messages), parameters),), logprobs)


def read_completions(
    body: Fields, behaviour: Behaviour, max_client_batch_size: int
) -> OpenAiRequest:
    """The body of /v1/completions. Raises BodyError and RequestError."""
    if not body.has("prompt"):
        raise unprocessable("missing field `prompt`")
    prompts = body.texts("prompt")
    if body.text("suffix") is not None:
        raise invalid("Suffix is not supported and can be achieved by preprocessing the prompt.")
    if len(prompts) > max_client_batch_size:
        raise invalid(
            f"Number of prompts exceeds the maximum allowed batch size of {max_client_batch_size}"
        )
    if not prompts:
        raise invalid("`inputs` cannot be empty")
    parameters = _parameters(
        body,
        behaviour,
        repetition_penalty=body.number("repetition_penalty"),
        top_n_tokens=None,
        grammar=False,
    )
    return _request(body, tuple(GenerateRequest(text, parameters) for text in prompts), False)


def chat_prompt(messages: tuple[Fields, ...]) -> str:
    """The simulated chat template: a line "role: content" a message, then "assistant:".

    It is no model's: a real model's template adds tokens of its own.
    """
    lines = [f"{message.required_text('role')}: {_content(message)}\n" for message in messages]
    return "".join(lines) + "assistant:"


def _content(message: Fields) -> str:
    """A message's text: a string, or the text parts of a list."""
    if isinstance(message.values.get("content"), list):
        return "".join(part.text("text") or "" for part in message.mappings("content"))
    return message.text("content") or ""


def _parameters(
    body: Fields,
    behaviour: Behaviour,
    *,
    repetition_penalty: float | None,
    top_n_tokens: int | None,
    grammar: bool,
) -> Parameters:
    temperature = body.number("temperature")
    greedy = temperature == 0.0
    new_tokens = body.count("max_tokens")
    if new_tokens is None:
        new_tokens = body.count("max_completion_tokens")
    return Parameters(
        temperature=None if greedy else temperature,
        repetition_penalty=repetition_penalty,
        frequency_penalty=body.number("frequency_penalty"),
        top_p=body.number("top_p"),
        do_sample=not greedy,
        max_new_tokens=behaviour.default_max_new_tokens if new_tokens is None else new_tokens,
        stop=body.texts("stop"),
        details=True,
        seed=body.seed("seed"),
        top_n_tokens=top_n_tokens,
        grammar=grammar,
    )


def _request(body: Fields, prompts: tuple[GenerateRequest, ...], logprobs: bool) -> OpenAiRequest:
    options = body.mapping("stream_options")
    return OpenAiRequest(
        prompts=prompts,
        model=body.text("model"),
        stream=body.flag("stream"),
        include_usage=options is not None and options.flag("include_usage"),
        logprobs=logprobs,
    )


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
class OpenAiAnswers:
    """Formats the answers to one request. created: Unix time, s, of the first."""

    asked: OpenAiRequest
    behaviour: Behaviour
    model: str
    fingerprint: str
    created: int = field(default_factory=lambda: int(time.time()))

    def completion(self, sequences: Iterable[WholeAnswer]) -> dict[str, object]:
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

    def chat(self, sequence: WholeAnswer) -> dict[str, object]:
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

    def chat_chunk(self, index: int, new: NewToken, _: Usage) -> dict[str, object]:
        """One token of /v1/chat/completions: every delta names the role, as TGI's do."""
        choice = {
            "index": index,
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
        self, kind: str, choices: list[dict[str, object]], sequences: tuple[WholeAnswer, ...]
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


class OpenAiRoutes:
    """The OpenAI dialect."""

    def __init__(self, deployment: RoutedDeployment) -> None:
        self._at = deployment

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions."""
        asked = read_chat(await read_body(request), self._at.behaviour)
        answers = self._answers(asked)
        if asked.stream:
            return await self._stream(request, asked, answers.chat_chunk, answers.usage_chunk)
        sequence, _ = await self._at.inference.generate(asked.prompts[0])
        told = headers(self._at, asked.prompts[0], sequence)
        return json_answer(answers.chat(sequence), headers=told)

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/completions: one choice a prompt."""
        limit = self._at.config.limits.max_client_batch_size
        asked = read_completions(await read_body(request), self._at.behaviour, limit)
        answers = self._answers(asked)
        if asked.stream:
            return await self._stream(request, asked, answers.completion_chunk)
        sequences = await self._whole(asked.prompts)
        slowest = max(sequences, key=lambda sequence: sequence.timing.total_ns)
        told = headers(self._at, asked.prompts[0], slowest)
        del told["x-compute-time"]  # TGI sums it up and forgets to say it
        return json_answer(answers.completion(sequences), headers=told)

    async def models(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/models: the one model."""
        model = self._at.config.engine.model_id
        entry = {"id": model, "object": "model", "created": 0, "owned_by": model}
        return json_answer({"object": "list", "data": [entry]})

    async def chat_tokenize(self, request: web.Request) -> web.StreamResponse:
        """POST /chat_tokenize: the templated text of a chat request and its tokens."""
        asked = read_chat(await read_body(request), self._at.behaviour)
        text = asked.prompts[0].inputs
        spans = token_spans(self._at.tokenizer, text)
        return json_answer({"tokenize_response": spans, "templated_text": text})

    def _answers(self, asked: OpenAiRequest) -> OpenAiAnswers:
        return OpenAiAnswers(
            asked=asked,
            behaviour=self._at.behaviour,
            model=self._at.config.engine.model_id,
            fingerprint=self._at.fingerprint,
        )

    async def _whole(self, prompts: tuple[GenerateRequest, ...]) -> tuple[WholeAnswer, ...]:
        """All prompts at once. The first failure is raised; the others are given up."""
        tasks = [asyncio.create_task(self._at.inference.generate(prompt)) for prompt in prompts]
        try:
            return tuple(best for best, _ in await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _stream(
        self,
        request: web.Request,
        asked: OpenAiRequest,
        chunk: Callable[[int, NewToken, Usage], dict[str, object]],
        last: Callable[[Usage], dict[str, object]] | None = None,
    ) -> web.StreamResponse:
        """Events of several prompts are mixed; `index` says whose each is.

        last: the chunk after the others where include_usage asks for it; None: this route has none.
        """
        characters = sum(len(prompt.inputs) for prompt in asked.prompts)
        writer = await EventWriter.open(request, self._at.framing, characters)
        tells_usage = asked.include_usage and self._at.behaviour.openai_streams_tell_usage

        async def one(index: int, prompt: GenerateRequest) -> None:
            usage = Usage()
            try:
                async with writer.tokens(self._at.inference, prompt) as stream:
                    usage.prompt_tokens = stream.input_tokens
                    async for new in stream.events:
                        usage.completion_tokens += 1
                        await writer.json(chunk(index, new, usage))
                if last is not None and tells_usage:
                    await writer.json(last(usage))
            except RequestError as failure:
                await writer.json(self._failure(failure))
            except ConnectionResetError:
                # The client has left: the next write below says so to the web framework.
                return

        async with asyncio.TaskGroup() as group:
            for index, prompt in enumerate(asked.prompts):
                group.create_task(one(index, prompt))
        if self._at.behaviour.openai_streams_say_done:
            await writer.text("[DONE]")
        return await writer.close()

    def _failure(self, failure: RequestError) -> dict[str, object]:
        """The status is 422 whatever the cause, as TGI's is."""
        if self._at.behaviour.openai_stream_errors_are_objects:
            return {"error": {"message": str(failure), "http_status_code": 422}}
        return failure.body

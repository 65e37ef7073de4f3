"""POST /, /generate, /generate_stream and /tokenize, and their JSON: tokens, details, headers."""

from __future__ import annotations

import math
from collections.abc import Iterable

from aiohttp import web

from tgi_bench.server.behaviour import Behaviour
from tgi_bench.server.router.body import RequestError, invalid
from tgi_bench.server.router.deployment import EventWriter, RoutedDeployment, json_answer, read_body
from tgi_bench.server.router.inference import NewToken, WholeAnswer
from tgi_bench.server.router.validation import GenerateRequest, read_generate
from tgi_bench.torch_engine.tokenizers import TextTokenizer
from tgi_bench.wire.messages import FinishReason, GeneratedText, Token

_REASONS = {
    FinishReason.LENGTH: "length",
    FinishReason.EOS_TOKEN: "eos_token",
    FinishReason.STOP_SEQUENCE: "stop_sequence",
}


def finish_reason(reason: FinishReason) -> str:
    """TGI's name of a reason."""
    return _REASONS[reason]


def logprob(token: Token) -> float | None:
    """None: the first prompt token has none (NaN on the wire)."""
    return None if math.isnan(token.logprob) else token.logprob


def generated(token: Token) -> dict[str, object]:
    """A new token."""
    return {
        "id": token.id,
        "text": token.text,
        "logprob": logprob(token),
        "special": token.special,
    }


def answer_text(request: GenerateRequest, end: GeneratedText) -> str:
    """The answer, with the prompt before it where return_full_text asks for it."""
    return request.inputs + end.text if request.parameters.return_full_text else end.text


def whole_answer(
    request: GenerateRequest, best: WholeAnswer, others: Iterable[WholeAnswer]
) -> dict[str, object]:
    """The answer of /generate."""
    body: dict[str, object] = {"generated_text": answer_text(request, best.end)}
    if not (request.parameters.details or request.parameters.decoder_input_details):
        return body
    details = _sequence_details(best)
    alternatives = [
        {"generated_text": answer_text(request, other.end), **_sequence_details(other)}
        for other in others
    ]
    if alternatives:
        details["best_of_sequences"] = alternatives
    body["details"] = details
    return body


def _sequence_details(sequence: WholeAnswer) -> dict[str, object]:
    details: dict[str, object] = {
        "finish_reason": finish_reason(sequence.end.finish_reason),
        "generated_tokens": sequence.end.generated_tokens,
        "seed": sequence.end.seed,
        "prefill": [
            {"id": token.id, "text": token.text, "logprob": logprob(token)}
            for token in sequence.prefill
        ],
        "tokens": [generated(token) for token in sequence.tokens],
    }
    if sequence.top_tokens:
        details["top_tokens"] = [
            [generated(token) for token in alternatives] for alternatives in sequence.top_tokens
        ]
    return details


def stream_event(
    request: GenerateRequest, new: NewToken, position: tuple[int, int], behaviour: Behaviour
) -> dict[str, object]:
    """One event of /generate_stream. position: the token's index from 1, the prompt's tokens."""
    index, input_tokens = position
    event: dict[str, object] = {}
    if behaviour.stream_index:
        event["index"] = index
    event["token"] = generated(new.token)
    if new.top_tokens:
        event["top_tokens"] = [generated(token) for token in new.top_tokens]
    event["generated_text"] = None if new.end is None else answer_text(request, new.end)
    event["details"] = None
    if new.end is not None and request.parameters.details:
        details: dict[str, object] = {
            "finish_reason": finish_reason(new.end.finish_reason),
            "generated_tokens": new.end.generated_tokens,
            "seed": new.end.seed,
        }
        if behaviour.input_length_in_details:
            details["input_length"] = input_tokens
        event["details"] = details
    return event


def headers(at: RoutedDeployment, request: GenerateRequest, best: WholeAnswer) -> dict[str, str]:
    """Headers of an answer that is not streamed. Durations are whole ms, truncated, but
    x-compute-time: seconds. x-time-per-token counts the prefill step."""
    timing = best.timing
    tokens = best.end.generated_tokens
    told = {
        "x-compute-type": at.framing.compute_type,
        "x-compute-time": str(timing.total_ns / 1e9),
        "x-compute-characters": str(len(request.inputs)),
        "x-total-time": str(timing.total_ns // 1_000_000),
        "x-validation-time": str(timing.validation_ns // 1_000_000),
        "x-queue-time": str(timing.queue_ns // 1_000_000),
        "x-inference-time": str(timing.inference_ns // 1_000_000),
        "x-time-per-token": str(int(timing.per_token_ns(tokens) / 1e6)),
    }
    if at.behaviour.token_count_headers:
        told["x-prompt-tokens"] = str(best.input_tokens)
        told["x-generated-tokens"] = str(tokens)
    return told


def token_spans(tokenizer: TextTokenizer, text: str) -> list[dict[str, object]]:
    """A text's tokens as /tokenize and /chat_tokenize tell them."""
    return [
        {"id": span.id, "text": span.text, "start": span.start, "stop": span.stop}
        for span in tokenizer.encode(text)
    ]


class GenerateRoutes:
    """TGI's own routes."""

    def __init__(self, deployment: RoutedDeployment) -> None:
        self._at = deployment

    async def compatible(self, request: web.Request) -> web.StreamResponse:
        """POST /: `stream` in the body chooses; an answer that is not streamed is a list."""
        body = await read_body(request)
        asked = read_generate(body, self._at.behaviour)
        if body.flag("stream"):
            return await self._stream(request, asked)
        answer, told = await self._whole(asked)
        return json_answer([answer], headers=told)

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """POST /generate."""
        asked = read_generate(await read_body(request), self._at.behaviour)
        answer, told = await self._whole(asked)
        return json_answer(answer, headers=told)

    async def generate_stream(self, request: web.Request) -> web.StreamResponse:
        """POST /generate_stream."""
        asked = read_generate(await read_body(request), self._at.behaviour)
        return await self._stream(request, asked)

    async def tokenize(self, request: web.Request) -> web.StreamResponse:
        """POST /tokenize: a bare list; start and stop are characters."""
        inputs = (await read_body(request)).required_text("inputs")
        if not inputs:
            raise invalid("`inputs` cannot be empty")
        return json_answer(token_spans(self._at.tokenizer, inputs))

    async def _whole(self, asked: GenerateRequest) -> tuple[dict[str, object], dict[str, str]]:
        best, others = await self._at.inference.generate(asked)
        return whole_answer(asked, best, others), headers(self._at, asked, best)

    async def _stream(self, request: web.Request, asked: GenerateRequest) -> web.StreamResponse:
        """Always 200: a failure is the last event. No [DONE] follows."""
        writer = await EventWriter.open(request, self._at.framing, len(asked.inputs))
        try:
            async with writer.tokens(self._at.inference, asked) as stream:
                index = 0
                async for new in stream.events:
                    index += 1
                    position = (index, stream.input_tokens)
                    await writer.json(stream_event(asked, new, position, self._at.behaviour))
        except RequestError as failure:
            await writer.json(failure.body)
        return await writer.close()

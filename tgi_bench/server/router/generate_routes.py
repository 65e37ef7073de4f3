"""POST /, /generate, /generate_stream, /tokenize and /chat_tokenize."""

from __future__ import annotations

from contextlib import aclosing

from aiohttp import web

from tgi_bench.server.router.deployment import Deployment, json_answer, read_body
from tgi_bench.server.router.details import headers, stream_event, whole_answer
from tgi_bench.server.router.failure import RequestError, invalid
from tgi_bench.server.router.openai_requests import read_chat
from tgi_bench.server.router.sse import EventWriter
from tgi_bench.server.router.validation import GenerateRequest, read_generate


class GenerateRoutes:
    """TGI's own routes."""

    def __init__(self, deployment: Deployment) -> None:
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
        return json_answer(self._spans(inputs))

    async def chat_tokenize(self, request: web.Request) -> web.StreamResponse:
        """POST /chat_tokenize: the templated text of a chat request and its tokens."""
        asked = read_chat(await read_body(request), self._at.behaviour)
        text = asked.prompts[0].inputs
        return json_answer({"tokenize_response": self._spans(text), "templated_text": text})

    def _spans(self, text: str) -> list[dict[str, object]]:
        return [
            {"id": span.id, "text": span.text, "start": span.start, "stop": span.stop}
            for span in self._at.tokenizer.encode(text)
        ]

    async def _whole(self, asked: GenerateRequest) -> tuple[dict[str, object], dict[str, str]]:
        best, others = await self._at.inference.generate(asked)
        return whole_answer(asked, best, others), headers(
            asked, best, self._at.behaviour, self._at.framing.compute_type
        )

    async def _stream(self, request: web.Request, asked: GenerateRequest) -> web.StreamResponse:
        """Always 200: a failure is the last event. No [DONE] follows."""
        writer = await EventWriter.open(request, self._at.framing, len(asked.inputs))
        try:
            with self._at.inference.open_stream(asked) as stream:
                async with aclosing(stream.events) as events:
                    index = 0
                    async for new in writer.patient(events):
                        index += 1
                        position = (index, stream.input_tokens)
                        await writer.json((stream_event(asked, new, position, self._at.behaviour),))
        except RequestError as failure:
            await writer.json((failure.body,))
        return await writer.close()

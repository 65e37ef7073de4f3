"""POST /v1/completions and /v1/chat/completions; GET /v1/models."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from aiohttp import web

from tgi_bench.server.router.deployment import Deployment, json_answer, read_body
from tgi_bench.server.router.details import headers
from tgi_bench.server.router.failure import RequestError
from tgi_bench.server.router.inference import Sequence
from tgi_bench.server.router.openai_answers import Answers, Usage
from tgi_bench.server.router.openai_requests import (
    OpenAiRequest,
    read_chat,
    read_completions,
)
from tgi_bench.server.router.sse import EventWriter
from tgi_bench.server.router.validation import GenerateRequest


class OpenAiRoutes:
    """The OpenAI dialect."""

    def __init__(self, deployment: Deployment) -> None:
        self._at = deployment

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions."""
        asked = read_chat(await read_body(request), self._at.behaviour)
        answers = self._answers(asked)
        if asked.stream:
            return await self._stream_chat(request, asked, answers)
        sequence, _ = await self._at.inference.generate(asked.prompts[0])
        return json_answer(
            answers.chat(sequence),
            headers=self._headers(asked.prompts[0], sequence),
        )

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/completions: one choice a prompt."""
        limit = self._at.config.limits.max_client_batch_size
        asked = read_completions(await read_body(request), self._at.behaviour, limit)
        answers = self._answers(asked)
        if asked.stream:
            return await self._stream_completions(request, asked, answers)
        sequences = await self._whole(asked.prompts)
        slowest = max(sequences, key=lambda sequence: sequence.timing.total_ns)
        told = self._headers(asked.prompts[0], slowest)
        del told["x-compute-time"]  # TGI sums it up and forgets to say it
        return json_answer(answers.completion(sequences), headers=told)

    def _headers(self, prompt: GenerateRequest, sequence: Sequence) -> dict[str, str]:
        at = self._at
        return headers(prompt, sequence, at.behaviour, at.framing.compute_type)

    async def models(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/models: the one model."""
        model = self._at.config.engine.model_id
        entry = {"id": model, "object": "model", "created": 0, "owned_by": model}
        return json_answer({"object": "list", "data": [entry]})

    def _answers(self, asked: OpenAiRequest) -> Answers:
        return Answers(
            asked=asked,
            behaviour=self._at.behaviour,
            model=self._at.config.engine.model_id,
            fingerprint=self._at.fingerprint,
        )

    async def _whole(self, prompts: tuple[GenerateRequest, ...]) -> tuple[Sequence, ...]:
        """All prompts at once. The first failure is raised; the others are given up."""
        tasks = [asyncio.create_task(self._at.inference.generate(prompt)) for prompt in prompts]
        try:
            return tuple(best for best, _ in await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _stream_chat(
        self, request: web.Request, asked: OpenAiRequest, answers: Answers
    ) -> web.StreamResponse:
        prompt = asked.prompts[0]
        writer = await EventWriter.open(request, self._at.framing, len(prompt.inputs))
        usage = Usage()
        try:
            with self._at.inference.open_stream(prompt) as stream:
                usage.prompt_tokens = stream.input_tokens
                async with aclosing(stream.events) as events:
                    async for new in writer.patient(events):
                        usage.completion_tokens += 1
                        await writer.json((answers.chat_chunk(new),))
            if asked.include_usage and self._at.behaviour.openai_streams_tell_usage:
                await writer.json((answers.usage_chunk(usage),))
        except RequestError as failure:
            await writer.json((self._failure(failure),))
        return await self._done(writer)

    async def _done(self, writer: EventWriter) -> web.StreamResponse:
        if self._at.behaviour.openai_streams_say_done:
            await writer.text("[DONE]")
        return await writer.close()

    def _failure(self, failure: RequestError) -> dict[str, object]:
        """The status is 422 whatever the cause, as TGI's is."""
        if self._at.behaviour.openai_stream_errors_are_objects:
            return {"error": {"message": str(failure), "http_status_code": 422}}
        return failure.body

    async def _stream_completions(
        self, request: web.Request, asked: OpenAiRequest, answers: Answers
    ) -> web.StreamResponse:
        """Events of several prompts are mixed; `index` says whose each is."""
        characters = sum(len(prompt.inputs) for prompt in asked.prompts)
        writer = await EventWriter.open(request, self._at.framing, characters)

        async def one(index: int, prompt: GenerateRequest) -> None:
            usage = Usage()
            try:
                with self._at.inference.open_stream(prompt) as stream:
                    usage.prompt_tokens = stream.input_tokens
                    async with aclosing(stream.events) as events:
                        async for new in writer.patient(events):
                            usage.completion_tokens += 1
                            await writer.json((answers.completion_chunk(index, new, usage),))
            except RequestError as failure:
                await writer.json((self._failure(failure),))
            except ConnectionResetError:
                # The client has left: the next write below says so to the web framework.
                return

        async with asyncio.TaskGroup() as group:
            for index, prompt in enumerate(asked.prompts):
                group.create_task(one(index, prompt))
        return await self._done(writer)

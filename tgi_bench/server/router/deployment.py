"""What every route needs of the running deployment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web

from tgi_bench.server.behaviour import Behaviour
from tgi_bench.server.config import ServerConfig
from tgi_bench.server.router.body import Fields, parse
from tgi_bench.server.router.failure import BodyError
from tgi_bench.server.router.inference import Inference
from tgi_bench.server.router.metrics import Metrics
from tgi_bench.server.router.shard_client import ShardClient
from tgi_bench.server.router.sse import Framing
from tgi_bench.torch_engine.tokenizers import TextTokenizer
from tgi_bench.wire.messages import Info


@dataclass(frozen=True, slots=True)
class Deployment:
    """One deployment behind its router.

    info: of rank 0. batch_total_tokens: the room of a running batch, in effect.
    """

    config: ServerConfig
    behaviour: Behaviour
    client: ShardClient
    info: Info
    batch_total_tokens: int
    inference: Inference
    tokenizer: TextTokenizer
    metrics: Metrics
    framing: Framing

    @property
    def fingerprint(self) -> str:
        """system_fingerprint of the OpenAI routes."""
        return f"{self.config.version_text}-{self.config.engine.engine}"


def json_answer(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """A whole answer, as TGI's web framework writes it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return web.Response(
        body=text.encode(), status=status, headers=headers, content_type="application/json"
    )


async def read_body(request: web.Request) -> Fields:
    """A request's JSON. Raises BodyError."""
    try:
        payload = await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise BodyError(413, "Failed to buffer the request body: length limit exceeded") from error
    return parse(payload, request.content_type)

"""The router: an HTTP server over the shards of one deployment."""

from __future__ import annotations

import asyncio
import hmac
from contextlib import AsyncExitStack, suppress

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from tgi_bench.errors import InputError, LaunchError
from tgi_bench.estimate.tables import model_shape
from tgi_bench.server.behaviour import Behaviour
from tgi_bench.server.config import EngineConfig, ServerConfig
from tgi_bench.server.log import ROUTER, Log
from tgi_bench.server.router.batching import Batcher, WarmUp, batch_rules
from tgi_bench.server.router.body import BodyError, FailureKind, RequestError, ShardCallError
from tgi_bench.server.router.deployment import KEEP_ALIVE_S, Framing, RoutedDeployment, json_answer
from tgi_bench.server.router.generate import GenerateRoutes
from tgi_bench.server.router.inference import Inference
from tgi_bench.server.router.metrics import Metrics
from tgi_bench.server.router.openai import OpenAiRoutes
from tgi_bench.server.router.shard_client import ShardClient
from tgi_bench.server.router.validation import Validator
from tgi_bench.torch_engine.tokenizers import TextTokenizer, WordTokenizer

SHUTDOWN_S = 2.0
"""How long requests that are under way may go on after `stop`."""


class Router:
    """One deployment's HTTP side. `start` once, then `stop` once."""

    def __init__(self, config: ServerConfig, log: Log, keep_alive_s: float = KEEP_ALIVE_S) -> None:
        """keep_alive_s: silence in a stream after which a comment is sent."""
        self._config = config
        self._log = log
        self._behaviour = Behaviour(config.tgi_version)
        self._framing = Framing(self._behaviour.sse_prefix, config.engine.engine, keep_alive_s)
        self._port: int | None = None
        self._cleanup = AsyncExitStack()

    @property
    def port(self) -> int:
        """The port that answers; of the config, or the one the system chose for port 0."""
        if self._port is None:
            raise RuntimeError("the router is not started")
        return self._port

    async def start(self) -> None:
        """Connect, warm up, bind.

        Raises LaunchError where the shards do not answer or the limits contradict what
        they say, and OSError where the address is taken. Nothing is left open then.
        """
        async with AsyncExitStack() as opened:
            deployment = await self._open(opened)
            runner = web.AppRunner(
                application(deployment),
                access_log=None,
                # A client that leaves must free its place in the batch.
                handler_cancellation=True,
                shutdown_timeout=SHUTDOWN_S,
            )
            opened.push_async_callback(runner.cleanup)
            await runner.setup()
            self._log.info(ROUTER, "Connected")  # TGI's router says so before it binds
            site = web.TCPSite(runner, self._config.hostname, self._config.port)
            await site.start()
            self._port = int(runner.addresses[0][1])
            self._cleanup = opened.pop_all()
        self._log.info(ROUTER, f"Listening on {self._config.hostname}:{self._port}")

    async def stop(self) -> None:
        """Take no more requests, let those under way go on for SHUTDOWN_S, disconnect."""
        await self._cleanup.aclose()

    def _report_crash(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self._log.error(ROUTER, f"Batching crashed: {task.exception()!r}")

    async def _open(self, opened: AsyncExitStack) -> RoutedDeployment:
        config, behaviour = self._config, self._behaviour
        try:
            client = await ShardClient.connect(behaviour.protocol, config.uds_path(0))
            opened.push_async_callback(client.close)
            info = await client.info()
            await client.clear_cache(None)
        except ShardCallError as failure:
            raise LaunchError(f"the shards do not answer: {failure}") from failure
        tokenizer = await asyncio.to_thread(_tokenizer, config.engine)
        warm_up = WarmUp(client, behaviour, config.limits, info.requires_padding)
        total = await warm_up.total_tokens(self._log)
        metrics = Metrics(behaviour, config.limits)
        if metrics.batch_total_limit is not None:
            metrics.batch_total_limit.set(total)
        batcher = Batcher(client, batch_rules(info, total, config.limits), metrics, self._log)
        validator = Validator(config.limits, behaviour, tokenizer)
        permits = config.limits.max_concurrent_requests
        inference = Inference(validator, batcher.waiting, metrics, permits)
        task = asyncio.create_task(batcher.run())
        task.add_done_callback(self._report_crash)
        opened.push_async_callback(_ended, task)
        return RoutedDeployment(
            config=config,
            behaviour=behaviour,
            client=client,
            info=info,
            batch_total_tokens=total,
            inference=inference,
            tokenizer=tokenizer,
            metrics=metrics,
            framing=self._framing,
        )


def _tokenizer(engine: EngineConfig) -> TextTokenizer:
    """The engine's; raises LaunchError where it cannot be read. It may take seconds."""
    if engine.torch_model is None:
        return WordTokenizer(model_shape(engine.model_id).vocab)
    from tgi_bench.torch_engine.architecture import model_config
    from tgi_bench.torch_engine.tokenizers import tokenizer_of

    spec = engine.torch_model
    try:
        return tokenizer_of(spec.model, model_config(spec), spec.weights.random)
    except InputError as error:
        raise LaunchError(str(error)) from error


def application(deployment: RoutedDeployment) -> web.Application:
    """The routes that this version has; every other is 404."""
    config, behaviour = deployment.config, deployment.behaviour
    app = web.Application(
        client_max_size=config.limits.payload_limit_bytes,
        middlewares=[_authorized(config.api_key), _failures],
    )
    app.on_response_prepare.append(_own_headers)
    server = ServerRoutes(deployment)
    generate = GenerateRoutes(deployment)
    openai = OpenAiRoutes(deployment)
    for path in ("/", "/health", "/ping"):
        app.router.add_get(path, server.health)
    app.router.add_get("/info", server.info)
    app.router.add_get("/metrics", server.metrics)
    app.router.add_post("/", generate.compatible)
    app.router.add_post("/generate", generate.generate)
    app.router.add_post("/generate_stream", generate.generate_stream)
    if behaviour.tokenize_route:
        app.router.add_post("/tokenize", generate.tokenize)
    if behaviour.chat_tokenize_route:
        app.router.add_post("/chat_tokenize", openai.chat_tokenize)
    if behaviour.chat_route:
        app.router.add_post("/v1/chat/completions", openai.chat)
    if behaviour.completions_route:
        app.router.add_post("/v1/completions", openai.completions)
    if behaviour.models_route:
        app.router.add_get("/v1/models", openai.models)
    return app


async def _own_headers(_: web.Request, response: web.StreamResponse) -> None:
    """Those that TGI's web framework adds to every answer; it does not name itself."""
    response.headers.pop("Server", None)
    response.headers["access-control-allow-origin"] = "*"
    response.headers["vary"] = (
        "origin, access-control-request-method, access-control-request-headers"
    )


@web.middleware
async def _failures(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A failure before the first byte of an answer, as its status and body."""
    try:
        return await handler(request)
    except RequestError as failure:
        return json_answer(failure.body, status=failure.kind.value.status)
    except BodyError as error:
        return web.Response(status=error.status, text=str(error))
    except web.HTTPException as error:
        # No such route, or not by this method: TGI's web framework says no word.
        allowed = {name: value for name, value in error.headers.items() if name == "Allow"}
        return web.Response(status=error.status, headers=allowed)


def _authorized(api_key: str | None) -> Middleware:
    """With a key, POST needs it: 401 and no body without."""
    wanted = None if api_key is None else f"Bearer {api_key}".encode()

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if (
            wanted is not None
            and request.method == "POST"
            and not hmac.compare_digest(given, wanted)
        ):
            return web.Response(status=401)
        return await handler(request)

    return check


async def _ended(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for it; its own error, if it had one, is raised."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


class ServerRoutes:
    """GET /health, /info and /metrics: what the server says of itself, API key or not."""

    def __init__(self, deployment: RoutedDeployment) -> None:
        self._at = deployment

    async def health(self, request: web.Request) -> web.StreamResponse:
        """GET /health: 200 and nothing once every rank has answered, else 503."""
        try:
            await self._at.client.health()
        except ShardCallError as failure:
            raise RequestError(FailureKind.UNHEALTHY, "unhealthy") from failure
        return web.Response()

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        """GET /metrics; `name[]`, as Prometheus' clients have it, asks for single ones."""
        return web.Response(
            body=self._at.metrics.render(request.query.getall("name[]", [])),
            headers={"content-type": "text/plain; charset=utf-8"},
        )

    async def info(self, request: web.Request) -> web.StreamResponse:
        """GET /info."""
        return json_answer(server_info(self._at))


def server_info(at: RoutedDeployment) -> dict[str, object]:
    """The fields of /info of this version, and `simulated` where it is. null: not known."""
    limits = at.config.limits
    input_name = "max_input_tokens" if at.behaviour.says_max_input_tokens else "max_input_length"
    told: dict[str, object] = {
        "model_id": at.config.engine.model_id,
        "model_sha": None,
        "model_pipeline_tag": None,
        "max_concurrent_requests": limits.max_concurrent_requests,
        "max_best_of": limits.max_best_of,
        "max_stop_sequences": limits.max_stop_sequences,
        input_name: limits.max_input_tokens,
        "max_total_tokens": limits.max_total_tokens,
        "validation_workers": limits.validation_workers,
        "version": at.config.version_text,
        "sha": None,
        "docker_label": at.config.engine.engine,
    }
    if at.config.engine.simulated:
        told["simulated"] = True
    else:
        # No version's /info lacks it here: `auto` says nothing of where the model came to run.
        told["model_device_type"] = at.info.device_type
    if at.behaviour.info_names_limits:
        told |= {
            "model_dtype": at.info.dtype,
            "model_device_type": at.info.device_type,
            "waiting_served_ratio": limits.waiting_served_ratio,
            "max_batch_total_tokens": at.batch_total_tokens,
            "max_waiting_tokens": limits.max_waiting_tokens,
            "max_batch_size": limits.max_batch_size,
        }
    if at.behaviour.info_names_client_batch:
        told["max_client_batch_size"] = limits.max_client_batch_size
    if at.behaviour.info_names_router:
        told["router"] = at.config.engine.engine
    return told

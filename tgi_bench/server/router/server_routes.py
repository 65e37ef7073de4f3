"""GET /health, /info and /metrics."""

from __future__ import annotations

from aiohttp import web

from tgi_bench.server.router.deployment import Deployment, json_answer
from tgi_bench.server.router.failure import Kind, RequestError, ShardCallError


class ServerRoutes:
    """What the server says of itself. None of these needs the API key."""

    def __init__(self, deployment: Deployment) -> None:
        self._at = deployment

    async def health(self, request: web.Request) -> web.StreamResponse:
        """GET /health: 200 and nothing once every rank has answered, else 503."""
        try:
            await self._at.client.health()
        except ShardCallError as failure:
            raise RequestError(Kind.UNHEALTHY, "unhealthy") from failure
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


def server_info(at: Deployment) -> dict[str, object]:
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

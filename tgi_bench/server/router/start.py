"""The router's first minutes: warm-up, and how much the running batch may hold."""

from __future__ import annotations

from dataclasses import dataclass

from tgi_bench.errors import LaunchError
from tgi_bench.server.behaviour import Behaviour
from tgi_bench.server.config import RouterLimits
from tgi_bench.server.log import ROUTER, Log
from tgi_bench.server.router.batcher import BatchRules
from tgi_bench.server.router.failure import ShardCallError
from tgi_bench.server.router.shard_client import ShardClient
from tgi_bench.wire.messages import (
    Batch,
    Info,
    Protocol,
    Request,
    Stopping,
    TokenChoice,
    Warmup,
    WarmupReply,
)

WARMUP_WORD = "_test "
FLASH_BLOCK_TOKENS = 16
"""Tokens a block of the KV cache, where a flash class does not say (before 2.4.0)."""

FALLBACK_TOTAL_TOKENS = 16000
"""Room of a running batch where neither the model nor the user says, at least."""


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The warm-up of one deployment. padded: whether its engine pads prompts."""

    client: ShardClient
    behaviour: Behaviour
    limits: RouterLimits
    padded: bool

    async def total_tokens(self, log: Log) -> int:
        """Warm up; returns the room of a running batch in tokens.

        A flash class says its room, and what the user asked for is ignored. A padded class says
        nothing in TGI; where one does here, no more than that is used. Raises LaunchError where
        the warm-up fails, with the shards' reason.
        """
        if not self.behaviour.warms_up:
            return _without_answer(self.limits)
        log.info(ROUTER, "Warming up model")
        try:
            reply = await self.client.warmup(warmup_request(self.limits, self.behaviour))
        except ShardCallError as failure:
            raise LaunchError(f"the warm-up failed: {failure}") from failure
        total = self._total(reply, log)
        log.info(ROUTER, f"Setting max batch total tokens to {total}")
        return total

    def _total(self, reply: WarmupReply, log: Log) -> int:
        supported, asked = reply.max_supported_total_tokens, self.limits.max_batch_total_tokens
        if supported is None:
            log.warn(ROUTER, "Model does not support automatic max batch total tokens")
            return _without_answer(self.limits)
        if asked is None:
            return supported
        if self.padded:
            return min(asked, supported)
        log.warn(ROUTER, "`--max-batch-total-tokens` is deprecated for Flash Attention models.")
        log.warn(ROUTER, f"Inferred max batch total tokens: {supported}")
        return supported


def warmup_request(limits: RouterLimits, behaviour: Behaviour) -> Warmup:
    """As many requests of max_input_tokens as max_batch_prefill_tokens holds; the last
    one is shorter where it does not divide."""
    requests: list[Request] = []
    left = limits.max_batch_prefill_tokens
    while left > 0:
        truncate = min(limits.max_input_tokens, left)
        new_tokens = max(limits.max_total_tokens - truncate, 1)
        requests.append(
            Request(
                id=len(requests),
                text=WARMUP_WORD * limits.max_input_tokens,
                truncate=truncate,
                choice=TokenChoice(),
                # v1 carries no limits beside the batch: its shards size nothing by it.
                stopping=Stopping(2 if behaviour.protocol is Protocol.V1 else new_tokens),
            )
        )
        left -= truncate
    return Warmup(
        batch=Batch(id=0, requests=tuple(requests), max_tokens=0, size=len(requests)),
        max_input_tokens=limits.max_input_tokens,
        max_prefill_tokens=limits.max_batch_prefill_tokens,
        max_total_tokens=limits.max_total_tokens,
    )


def _without_answer(limits: RouterLimits) -> int:
    if limits.max_batch_total_tokens is not None:
        return limits.max_batch_total_tokens
    return max(FALLBACK_TOTAL_TOKENS, limits.max_total_tokens, limits.max_batch_prefill_tokens)


def batch_rules(info: Info, total_tokens: int, limits: RouterLimits) -> BatchRules:
    """The rules of batching in effect.

    Raises LaunchError where one request that the limits allow would fit no batch: it
    would wait for ever and hold up every other.
    """
    block = 1 if info.requires_padding else info.block_size or FLASH_BLOCK_TOKENS
    largest = -(-limits.max_total_tokens // block) * block
    if largest > total_tokens:
        raise LaunchError(
            f"`max_total_tokens` must be <= `max_batch_total_tokens`. "
            f"Given: {limits.max_total_tokens} and {total_tokens}"
        )
    if limits.max_input_tokens > limits.max_batch_prefill_tokens:
        raise LaunchError(
            f"`max_batch_prefill_tokens` must be >= `max_input_tokens`. "
            f"Given: {limits.max_batch_prefill_tokens} and {limits.max_input_tokens}"
        )
    if limits.max_batch_size is not None and limits.max_batch_size < 1:
        raise LaunchError(f"`max_batch_size` must be >= 1. Given: {limits.max_batch_size}")
    return BatchRules(
        prefill_tokens=limits.max_batch_prefill_tokens,
        total_tokens=total_tokens,
        max_size=limits.max_batch_size,
        waiting_served_ratio=limits.waiting_served_ratio,
        max_waiting_tokens=limits.max_waiting_tokens,
        padded=info.requires_padding,
        block_size=block,
        chunking=info.support_chunking or False,
    )

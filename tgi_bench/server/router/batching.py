"""Warm-up, how much a batch may hold, and continuous batching: prefill what waits, join it with
what runs, decode, repeat."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from dataclasses import dataclass

from tgi_bench.errors import LaunchError
from tgi_bench.server.behaviour import Behaviour
from tgi_bench.server.config import RouterLimits
from tgi_bench.server.log import ROUTER, Log
from tgi_bench.server.router.body import ShardCallError, incomplete
from tgi_bench.server.router.inference import BatchRoom, Need, NewToken, QueuedRequest, WaitingQueue
from tgi_bench.server.router.metrics import Metrics
from tgi_bench.server.router.shard_client import ShardClient
from tgi_bench.wire.messages import (
    Batch,
    CachedBatch,
    Generation,
    Protocol,
    Request,
    ShardInfo,
    StepReply,
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


def batch_rules(info: ShardInfo, total_tokens: int, limits: RouterLimits) -> BatchRules:
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


@dataclass(frozen=True, slots=True)
class BatchRules:
    """When and how much to batch.

    total_tokens: room of a running batch. max_size: None is no limit.
    waiting_served_ratio: waiting requests per running one that interrupt decoding.
    max_waiting_tokens: decode steps after which any waiting request interrupts decoding.
    chunking: the engine takes prompts in while it decodes; both of these are ignored.
    """

    prefill_tokens: int
    total_tokens: int
    max_size: int | None
    waiting_served_ratio: float
    max_waiting_tokens: int
    padded: bool
    block_size: int
    chunking: bool


class Batcher:
    """Runs one deployment's batch. `run` is a task that ends when it is cancelled."""

    def __init__(self, client: ShardClient, rules: BatchRules, metrics: Metrics, log: Log) -> None:
        self._client = client
        self._rules = rules
        self._metrics = metrics
        self._log = log
        self._running: dict[int, QueuedRequest] = {}
        empty = Need(padded=rules.padded, block_size=rules.block_size)
        self.waiting = WaitingQueue(empty, metrics.queue_size.set)

    async def run(self) -> None:
        """Serve the queue for ever. When it ends, so does every request."""
        try:
            await self._serve_queue()
        finally:
            for entry in self._running.values():
                entry.events.put_nowait(incomplete())
            self._running.clear()
            self.waiting.close()

    async def _serve_queue(self) -> None:
        while True:
            await self.waiting.arrival()
            room = BatchRoom(
                prefill_tokens=self._rules.prefill_tokens,
                total_tokens=self._rules.total_tokens,
                max_size=self._rules.max_size,
            )
            taken = self.waiting.next_batch(room)
            if taken is not None:
                await self._serve(await self._prefill(*taken))

    async def _serve(self, running: CachedBatch | None) -> None:
        """Decode until no request is left, letting others join."""
        steps_since_prefill = 1
        while running is not None:
            self._show(running)
            batches = [running]
            exceeded = self._rules.chunking or steps_since_prefill >= self._rules.max_waiting_tokens
            taken = self.waiting.next_batch(self._room_beside(running, exceeded))
            if taken is not None:
                reason = "wait_exceeded" if exceeded else "backpressure"
                self._metrics.concats.labels(reason).inc()
                joined = await self._prefill(*taken)
                steps_since_prefill = 1
                if joined is not None:
                    batches.append(joined)
            running = await self._decode(batches)
            steps_since_prefill += 1
        self._metrics.batch_size.set(0)
        self._metrics.batch_max_tokens.set(0)

    def _show(self, running: CachedBatch) -> None:
        self._metrics.batch_size.set(running.size)
        self._metrics.batch_max_tokens.set(self._held_tokens(running))

    def _room_beside(self, running: CachedBatch, exceeded: bool) -> BatchRoom:
        ratio = self._rules.waiting_served_ratio
        limit = self._rules.max_size
        return BatchRoom(
            prefill_tokens=self._rules.prefill_tokens,
            total_tokens=self._rules.total_tokens - self._held_tokens(running),
            min_size=1 if exceeded else int(running.size * ratio),
            max_size=None if limit is None else limit - running.size,
        )

    def _held_tokens(self, running: CachedBatch) -> int:
        """Tokens set aside for the running batch.

        Counted from its requests: a shard is not bound to lower max_tokens as they leave.
        """
        need = Need(padded=self._rules.padded, block_size=self._rules.block_size)
        for request_id in running.request_ids:
            need = need.plus(self._running[request_id].request)
        return need.total_tokens

    async def _prefill(
        self, batch: Batch, entries: tuple[QueuedRequest, ...]
    ) -> CachedBatch | None:
        self._metrics.next_size.observe(batch.size)
        self._running.update((entry.id, entry) for entry in entries)
        ids = {request.id for request in batch.requests}
        return await self._step("prefill", self._client.prefill(batch), {batch.id}, ids)

    async def _decode(self, batches: list[CachedBatch]) -> CachedBatch | None:
        ids = {request_id for batch in batches for request_id in batch.request_ids}
        cached_ids = {batch.id for batch in batches}
        return await self._step("decode", self._client.decode(batches), cached_ids, ids)

    async def _step(
        self, method: str, call: Awaitable[StepReply], batch_ids: set[int], request_ids: set[int]
    ) -> CachedBatch | None:
        """One step; returns what to decode next.

        A step that fails ends its requests with its reason and leaves nothing in the cache.
        """
        self._metrics.steps.labels(method).inc()
        began = time.monotonic()
        try:
            reply = await call
            self._metrics.shard_durations(method, reply.durations)
            answered = time.monotonic()
            self._metrics.step_s.labels(method).observe(answered - began)
            self._hand_out(reply)
            cached = await self._keep_running(reply.cached)
        except ShardCallError as failure:
            self._metrics.step_failures.labels(method).inc()
            self._log.error(ROUTER, f"Server error: {failure}", method=method)
            await self._abandon(batch_ids, request_ids, failure)
            return None
        self._metrics.filtered(method, time.monotonic() - answered)
        self._metrics.step_successes.labels(method).inc()
        return cached

    def _hand_out(self, reply: StepReply) -> None:
        for generation in reply.generations:
            entry = self._running[generation.request_id]
            _push(entry, generation)
            if len(generation.tokens) > 1:
                self._metrics.skipped(len(generation.tokens) - 1)
            if generation.generated_text is not None:
                del self._running[generation.request_id]

    async def _keep_running(self, cached: CachedBatch | None) -> CachedBatch | None:
        """Drop from the cached batch what has ended and whose client has left."""
        if cached is None:
            return None
        kept = []
        for request_id in cached.request_ids:
            entry = self._running.get(request_id)
            if entry is not None and entry.gone:
                del self._running[request_id]
            elif entry is not None:
                kept.append(request_id)
        if len(kept) == len(cached.request_ids):
            return cached
        if not kept:
            await self._client.clear_cache(cached.id)
            return None
        return await self._client.filter_batch(cached.id, kept)

    async def _abandon(
        self, batch_ids: set[int], request_ids: set[int], failure: ShardCallError
    ) -> None:
        for request_id in request_ids:
            entry = self._running.pop(request_id, None)
            if entry is not None:
                entry.events.put_nowait(failure.as_request_error)
        try:
            for batch_id in sorted(batch_ids):
                await self._client.clear_cache(batch_id)
        except ShardCallError as error:
            # The shards are gone, and their cache with them: the next step says so.
            self._log.error(ROUTER, f"Server error: {error}", method="clear_cache")


def _push(entry: QueuedRequest, generation: Generation) -> None:
    """One event a token; the answer goes with the last, the prompt's tokens with the first."""
    last = len(generation.tokens) - 1
    for at, token in enumerate(generation.tokens):
        entry.events.put_nowait(
            NewToken(
                token=token,
                top_tokens=generation.top_tokens[at] if at < len(generation.top_tokens) else (),
                prefill_tokens=generation.prefill_tokens if at == 0 else (),
                end=generation.generated_text if at == last else None,
            )
        )

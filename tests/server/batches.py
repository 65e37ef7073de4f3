"""Batches that tests give to an engine."""

from __future__ import annotations

from dataclasses import replace

from tgi_bench.wire.messages import Batch, CachedBatch, Request, StepReply, Stopping, TokenChoice


def request(request_id: int = 0, words: int = 10, new: int = 3, **choice: object) -> Request:
    """As many words as tokens, no two requests with one prompt."""
    return Request(
        id=request_id,
        text=" ".join(f"w{request_id}x{i}" for i in range(words)),
        truncate=words,
        choice=replace(TokenChoice(), **choice),  # type: ignore[arg-type]
        stopping=Stopping(max_new_tokens=new, ignore_eos_token=True),
    )


def batch(batch_id: int, *requests: Request) -> Batch:
    """A batch that says its true size."""
    return Batch(id=batch_id, requests=requests, max_tokens=1000, size=len(requests))


def cached(reply: StepReply) -> CachedBatch:
    """What is to be decoded next."""
    assert reply.cached is not None
    return reply.cached

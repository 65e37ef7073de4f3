"""Batches over gRPC: the `batches:` section of an experiment, and the trials that it gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from tgi_bench.sections.section import Sampling, Seconds, Section, Seed, Size, Sizes


@dataclass(frozen=True, slots=True)
class BatchTrial:
    """`warmups` then `runs` times: one Prefill and decode_length - 1 Decodes of one batch.

    trial_id: "<deployment_id>/s<sequence_length>-d<decode_length>-b<batch_size>".
    batch_size: requests in the batch. sequence_length: prompt tokens of each request.
    decode_length: new tokens of each request, of which prefill emits the first.
    step_timeout_s: for one step. prompt_seed: of the prompts; 0 is a seed. None: each
        run has prompts of its own.
    """

    trial_id: str
    deployment_id: str
    batch_size: int
    sequence_length: int
    decode_length: int
    runs: int
    warmups: int
    sampling: Sampling
    step_timeout_s: float
    prompt_seed: int | None

    @property
    def shape(self) -> tuple[str, int, int]:
        """Trials of one shape differ in batch size only."""
        return (self.deployment_id, self.sequence_length, self.decode_length)

    def kv_tokens(self, block_tokens: int) -> int:
        """Tokens of KV cache that the batch takes up at its end, in blocks of block_tokens.

        The last new token is never written back, so a request ends with
        sequence_length + decode_length - 1 tokens, rounded up to whole blocks.
        """
        tokens = self.sequence_length + self.decode_length - 1
        return self.batch_size * (-(-tokens // block_tokens) * block_tokens)


class BatchKeys(Section):
    """Prefill and decode steps over gRPC: one trial for each sequence length and batch size."""

    sequence_length: Sizes
    """Prompt tokens of each request."""
    decode_length: Size
    """New tokens of each request; prefill emits the first, so 1 leaves no decode step."""
    batch_size: Sizes
    """Requests in a batch; run in ascending order."""
    runs: Size
    """Measured runs of each trial."""
    warmups: Annotated[int, Field(ge=0, le=2**31 - 1)] = 1
    """Runs before them that are recorded and left out of every figure."""
    sampling: Sampling = Field(default_factory=Sampling)
    """How the next token is chosen."""
    step_timeout_s: Seconds = 600.0
    """Seconds that one step may take."""
    prompt_seed: Seed | None = None
    """Seed of the prompts; 0 is a seed. Without one each run has prompts of its own."""


def batch_trials(keys: BatchKeys, deployment_ids: Sequence[str]) -> tuple[BatchTrial, ...]:
    """A trial for each deployment, sequence length and batch size; batch sizes ascend."""
    return tuple(
        BatchTrial(
            trial_id=f"{deployment_id}/s{length}-d{keys.decode_length}-b{size}",
            deployment_id=deployment_id,
            batch_size=size,
            sequence_length=length,
            decode_length=keys.decode_length,
            runs=keys.runs,
            warmups=keys.warmups,
            sampling=keys.sampling,
            step_timeout_s=keys.step_timeout_s,
            prompt_seed=keys.prompt_seed,
        )
        for deployment_id in deployment_ids
        for length in keys.sequence_length
        for size in sorted(keys.batch_size)
    )

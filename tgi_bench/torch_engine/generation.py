"""Static batches without a server: every prompt gets as many new tokens, greedily."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from tgi_bench.torch_engine.model import LoadedModel, guarded


@dataclass(frozen=True, slots=True)
class Generated:
    """One batch from its prefill to its last token. Times are monotonic ns.

    started_ns: before the first step. step_ends_ns: after each step, one per new token, when the
    device was done and the tokens were chosen; the first is prefill's. tokens: of each prompt.
    """

    started_ns: int
    step_ends_ns: tuple[int, ...]
    tokens: tuple[tuple[int, ...], ...]

    @property
    def prefill_ns(self) -> int:
        """The prefill step, which gives the first token."""
        return self.step_ends_ns[0] - self.started_ns

    @property
    def decode_ns(self) -> tuple[int, ...]:
        """Each decode step; empty for one new token."""
        ends = self.step_ends_ns
        return tuple(after - before for before, after in pairwise(ends))

    @property
    def total_ns(self) -> int:
        """All steps."""
        return self.step_ends_ns[-1] - self.started_ns


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """One forward pass. Times are monotonic ns, the device synchronised at both."""

    started_ns: int
    ended_ns: int

    @property
    def latency_ns(self) -> int:
        """The pass."""
        return self.ended_ns - self.started_ns


def generate(model: LoadedModel, prompts: Sequence[Sequence[int]], new_tokens: int) -> Generated:
    """Exactly `new_tokens` tokens for each prompt: an end of sequence ends nothing.

    Raises OutOfMemory, and ValueError for prompts that the model cannot take.
    """
    if not prompts or new_tokens < 1:
        raise ValueError(f"{len(prompts)} prompts and {new_tokens} new tokens: give at least 1")
    model.check(prompts, new_tokens)
    return guarded(lambda: _generate(model, prompts, new_tokens))


def _generate(model: LoadedModel, prompts: Sequence[Sequence[int]], new_tokens: int) -> Generated:
    chosen: list[torch.Tensor] = []
    ends: list[int] = []
    batch = model.padded(prompts)
    model.synchronise()
    started_ns = time.monotonic_ns()
    logits = model.prefill(batch)
    for step in range(new_tokens):
        if step:
            logits = model.decode(batch)
        ids = logits.argmax(dim=-1, keepdim=True)
        model.synchronise()
        ends.append(time.monotonic_ns())
        chosen.append(ids)
        batch.ids = ids.to(model.device)
    tokens = torch.cat([ids.cpu() for ids in chosen], dim=1).tolist()
    return Generated(started_ns, tuple(ends), tuple(tuple(row) for row in tokens))


def forward(model: LoadedModel, prompts: Sequence[Sequence[int]]) -> ForwardPass:
    """One pass over whole prompts with the logits of every token; no cache is kept after it.

    Raises as `generate`.
    """
    model.check(prompts, 1)

    def run() -> ForwardPass:
        batch = model.padded(prompts)
        model.synchronise()
        started_ns = time.monotonic_ns()
        model.prefill(batch, all_logits=True)
        model.synchronise()
        ended_ns = time.monotonic_ns()
        return ForwardPass(started_ns, ended_ns)

    return guarded(run)

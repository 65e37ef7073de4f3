"""What a shard asks of the engine that computes its steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tgi_bench.server.behaviour import Behaviour
from tgi_bench.server.config import EngineConfig
from tgi_bench.wire import messages as m


class Engine(Protocol):
    """Batches between steps, and the steps on them. Its methods block.

    RuntimeError: out of memory, and what else ends a shard of 2.0 and later. ValueError,
    LookupError, TypeError, AssertionError: what a shard answers and survives.
    """

    @property
    def description(self) -> str | None:
        """What it runs, in one sentence for the log; None where there is nothing to say."""

    def info(self) -> m.Info:
        """What the shard says of itself."""

    def warmup(self, warmup: m.Warmup) -> m.WarmupReply:
        """One prefill of the batch, of which nothing stays; and what memory is left for."""

    def prefill(self, batch: m.Batch) -> m.StepReply:
        """The first token of every request. A failure leaves nothing behind."""

    def decode(self, batches: Iterable[m.CachedBatch]) -> m.StepReply:
        """One more token for every request of the batches, which are joined into the first.

        Batches are taken out of the cache before anything else: a failed step loses them.
        """

    def filter_batch(self, batch_id: int, request_ids: Iterable[int]) -> m.CachedBatch:
        """Keep these requests of a batch, in this order. A failure loses the batch."""

    def clear_cache(self, batch_id: int | None) -> None:
        """Forget a batch, known or not; None forgets all."""


def engine_of(config: EngineConfig, behaviour: Behaviour, shard_rank: int) -> Engine:
    """The engine of one rank with its weights loaded; for the rank's own process.

    Raises RuntimeError where they do not fit and InputError for what cannot be run.
    """
    if config.torch_model is None:
        from tgi_bench.server.simulated_engine import SimulatedEngine

        return SimulatedEngine(config, behaviour)
    # It imports torch: only where it is asked for.
    from tgi_bench.server.transformers_engine import TransformersEngine
    from tgi_bench.torch_engine.loading import load
    from tgi_bench.torch_engine.spec import Rank

    rank = Rank(shard_rank, config.num_shard, config.master_port)
    return TransformersEngine(load(config.torch_model, rank), behaviour)

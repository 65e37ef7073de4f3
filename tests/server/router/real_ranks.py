"""The router over the embedded server's own shards, as processes."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tests.server.configs import server_config
from tests.server.ranks import served
from tests.server.router.serving import LIMITS, loop_in_thread
from tgi_bench.estimate.setup import UNCALIBRATED, Constants
from tgi_bench.server.config import EngineConfig, RouterLimits, Version
from tgi_bench.server.log import Log
from tgi_bench.server.router.app import Router

PADDED, FLASH = "bigscience/bloomz-1b1", "mistralai/Mistral-7B-v0.1"


@dataclass(frozen=True)
class Running:
    """A router over real ranks."""

    url: str
    pids: tuple[int, ...]


@contextmanager
def real(
    version: Version,
    model: str,
    limits: RouterLimits = LIMITS,
    api_key: str | None = None,
    num_shard: int = 2,
    constants: Constants = UNCALIBRATED,
) -> Iterator[Running]:
    """Rank processes and a router in a thread. Of limits, the warm-up finds the batch's."""
    limits = replace(limits, max_batch_total_tokens=None)
    engine = EngineConfig(
        "simulated", "A100-40GB-SXM", model, num_shard, None, None, 1.0, constants
    )
    with tempfile.TemporaryDirectory(prefix="tgi-") as folder:
        told = server_config(version, f"{folder}/s", engine, limits=limits)
        told = replace(told, api_key=api_key)
        with served(told) as ranks, loop_in_thread() as run:

            async def start() -> Router:
                router = Router(told, Log(False, io.StringIO()))
                await router.start()
                return router

            router = run(start())
            try:
                pids = tuple(rank.process.pid for rank in ranks)
                yield Running(f"http://127.0.0.1:{router.port}", pids)
            finally:
                run(router.stop())

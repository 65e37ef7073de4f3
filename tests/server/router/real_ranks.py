"""The router over the embedded server's own shards, as processes."""

from __future__ import annotations

import asyncio
import io
import multiprocessing
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tests.server.router.serving import LIMITS, config, until
from tgi_bench.estimate.setup import UNCALIBRATED, Constants
from tgi_bench.server import shard
from tgi_bench.server.config import EngineConfig, RouterLimits, ServerConfig, Version
from tgi_bench.server.log import Log
from tgi_bench.server.router.app import Router

PADDED, FLASH = "bigscience/bloomz-1b1", "mistralai/Mistral-7B-v0.1"


@dataclass(frozen=True)
class Running:
    """A router over real ranks."""

    url: str
    pids: tuple[int, ...]


def run_rank(told: ServerConfig, rank: int) -> None:
    """The entry of a rank's process."""
    shard.serve(shard.ShardRank(told, rank), Log(False, io.StringIO()), lambda: None)


def listens(path: str) -> bool:
    """Whether somebody answers on a unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0


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
    with tempfile.TemporaryDirectory(prefix="tgi-") as folder:
        told = replace(
            config(version, limits, f"{folder}/s"),
            api_key=api_key,
            engine=EngineConfig(
                "simulated", "A100-40GB-SXM", model, num_shard, None, None, 1.0, constants
            ),
        )
        context = multiprocessing.get_context("spawn")
        ranks = [context.Process(target=run_rank, args=(told, rank)) for rank in range(num_shard)]
        for process in ranks:
            process.start()
        try:
            for rank in range(num_shard):
                until(lambda rank=rank: listens(told.uds_path(rank)))  # type: ignore[misc]
            with routed(told) as url:
                yield Running(url, tuple(process.pid or 0 for process in ranks))
        finally:
            for process in ranks:
                process.kill()
                process.join()


@contextmanager
def routed(told: ServerConfig) -> Iterator[str]:
    """A router in a thread's loop; gives its url."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> Router:
        router = Router(told, Log(False, io.StringIO()))
        await router.start()
        return router

    try:
        router = asyncio.run_coroutine_threadsafe(start(), loop).result(20)
        try:
            yield f"http://127.0.0.1:{router.port}"
        finally:
            asyncio.run_coroutine_threadsafe(router.stop(), loop).result(20)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

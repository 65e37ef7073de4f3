"""The router over the embedded server's own shards, as processes."""

from __future__ import annotations

import asyncio
import io
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import httpx
import pytest
from text_generation import Client  # type: ignore[import-untyped]

from tests.server.router.serving import LIMITS, config, in_thread, until
from tgi_bench.server import shard
from tgi_bench.server.config import EngineConfig, ServerConfig, Version
from tgi_bench.server.log import Log
from tgi_bench.server.router.app import Router

PADDED, FLASH = "bigscience/bloomz-1b1", "mistralai/Mistral-7B-v0.1"

# The package calls pydantic's `dict`, which pydantic 2 deprecates in favour of `model_dump`.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The `dict` method is deprecated:pydantic.warnings.PydanticDeprecatedSince20"
)


@dataclass(frozen=True)
class Running:
    """A router over real ranks."""

    url: str
    pids: tuple[int, ...]


def run_rank(told: ServerConfig, rank: int) -> None:
    """The entry of a rank's process."""
    shard.serve(shard.Rank(told, rank), Log(False, io.StringIO()), lambda: None)


def listens(path: str) -> bool:
    """Whether somebody answers on a unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(path) == 0


@contextmanager
def real(version: Version, model: str) -> Iterator[Running]:
    """Two rank processes and a router in a thread."""
    limits = replace(LIMITS, max_batch_total_tokens=None)
    with tempfile.TemporaryDirectory(prefix="tgi-") as folder:
        told = replace(
            config(version, limits, f"{folder}/s"),
            engine=EngineConfig("simulated", "A100-40GB-SXM", model, 2, None, None, 1.0),
        )
        context = multiprocessing.get_context("spawn")
        ranks = [context.Process(target=run_rank, args=(told, rank)) for rank in range(2)]
        for process in ranks:
            process.start()
        try:
            for rank in range(2):
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


@pytest.mark.parametrize(
    ("version", "model"),
    [((0, 9, 4), PADDED), ((2, 0, 4), FLASH), ((3, 3, 7), PADDED), ((3, 3, 7), FLASH)],
)
def test_generate_and_stream(version: Version, model: str) -> None:
    with real(version, model) as running:
        client = Client(running.url)
        whole = client.generate("one two", max_new_tokens=5)
        assert whole.details.generated_tokens == 5
        assert whole.generated_text == "".join(token.text for token in whole.details.tokens)
        events = list(client.generate_stream("one two", max_new_tokens=5))
        # Greedy: the same prompt gives the same tokens.
        assert events[-1].generated_text == whole.generated_text
        both = client.generate("one", max_new_tokens=3, best_of=2, do_sample=True)
        assert len(both.details.best_of_sequences) == 1


def test_streams_share_their_decode_steps() -> None:
    body = {"inputs": "a b", "parameters": {"max_new_tokens": 30}}

    def ask() -> None:
        assert httpx.post(running.url + "/generate", json=body).status_code == 200

    with real((3, 3, 7), FLASH) as running:
        with ExitStack() as asking:
            for _ in range(8):
                asking.enter_context(in_thread(ask))
        text = httpx.get(running.url + "/metrics").text
    steps = next(
        float(line.split()[1])
        for line in text.splitlines()
        if line.startswith('tgi_batch_inference_count{method="decode"}')
    )
    assert 29 <= steps < 8 * 29


def test_a_killed_rank_ends_the_stream_and_health() -> None:
    body = {"inputs": "a", "parameters": {"max_new_tokens": 39}}
    with real((3, 3, 7), FLASH) as running:
        # Stopped first, so that the step is under way however slow this machine is.
        os.kill(running.pids[1], signal.SIGSTOP)
        with httpx.stream("POST", running.url + "/generate_stream", json=body) as response:
            assert response.status_code == 200
            os.kill(running.pids[1], signal.SIGKILL)
            last = [line for line in response.iter_lines() if line][-1]
        assert '"error_type":"generation"' in last
        assert httpx.get(running.url + "/health").status_code == 503

"""A router over scripted ranks, in a thread of its own: clients may block."""

from __future__ import annotations

import asyncio
import io
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx

from tests.server import configs
from tests.server.router.scripted_shard import Script, ScriptedShard
from tgi_bench.server.behaviour import Behaviour
from tgi_bench.server.config import Version
from tgi_bench.server.log import Log
from tgi_bench.server.router.app import Router

LIMITS = replace(
    configs.LIMITS,
    max_concurrent_requests=8,
    max_input_tokens=20,
    max_total_tokens=40,
    max_batch_prefill_tokens=80,
    max_batch_total_tokens=400,
    waiting_served_ratio=0.3,
    payload_limit_bytes=20_000,
)


Run = Callable[[Coroutine[object, object, Any]], Any]
"""Runs something in a loop of another thread."""


@contextmanager
def loop_in_thread() -> Iterator[Run]:
    """A loop for what may not wait for the test, which blocks."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(20)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@dataclass
class Served:
    """A running router. log: what it printed so far."""

    url: str
    script: Script
    _run: Run
    _ranks: list[ScriptedShard]
    _stream: io.StringIO

    @property
    def log(self) -> str:
        """Every line so far."""
        return self._stream.getvalue()

    def kill_rank(self, rank: int) -> None:
        """End one rank at once."""
        self._run(self._ranks[rank].stop())

    def post(self, path: str, body: object, **headers: str) -> httpx.Response:
        """POST JSON."""
        return httpx.post(self.url + path, json=body, headers=headers, timeout=10)

    def get(self, path: str) -> httpx.Response:
        """GET."""
        return httpx.get(self.url + path, timeout=10)

    def metric(self, line: str) -> float:
        """The value of one sample of /metrics; `line` is its name with labels."""
        for text in self.get("/metrics").text.splitlines():
            name, _, value = text.rpartition(" ")
            if name == line:
                return float(value)
        raise AssertionError(f"no {line} in /metrics")


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; fails the test when it does not come."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.002)


@contextmanager
def in_thread(work: Callable[[], object]) -> Iterator[None]:
    """Do something beside; joined at the end."""
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join(10)
        assert not thread.is_alive()


@contextmanager
def serve(
    version: Version = (3, 3, 7),
    script: Script | None = None,
    api_key: str | None = None,
    port: int = 0,
    keep_alive_s: float = 15.0,
    **limits: object,
) -> Iterator[Served]:
    """A router with two ranks. limits: RouterLimits that differ from LIMITS."""
    script = script or Script()
    stream = io.StringIO()
    with tempfile.TemporaryDirectory(prefix="tgi-") as folder, loop_in_thread() as run:
        engine = configs.engine_config(accelerator="A100-40GB-SXM", num_shard=2)
        told = replace(
            configs.server_config(version, f"{folder}/s", engine, port),
            limits=replace(LIMITS, **limits),  # type: ignore[arg-type]
            api_key=api_key,
        )
        paths = [told.uds_path(rank) for rank in range(2)]
        # Rank 1 has a script of its own: what is counted is what rank 0 was asked.
        scripts = (script, Script(room=script.room))
        ranks = [
            ScriptedShard(Behaviour(version).protocol, paths, rank, scripts[rank])
            for rank in range(2)
        ]

        async def start() -> Router:
            # gRPC binds to the loop that it is made in.
            router = Router(told, Log(False, stream), keep_alive_s)
            for shard in ranks:
                await shard.start()
            try:
                await router.start()
            except BaseException:
                await stop(None)
                raise
            return router

        async def stop(router: Router | None) -> None:
            if router is not None:
                await router.stop()
            for shard in ranks:
                await shard.stop()

        router = run(start())
        try:
            yield Served(f"http://127.0.0.1:{router.port}", script, run, ranks, stream)
        finally:
            script.held = script.decodes_held = False
            run(stop(router))

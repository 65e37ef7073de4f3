"""The whole embedded server as text-generation-launcher shows it: ranks, router, supervision.

Ranks are forked before anything here starts a thread or an event loop, or imports gRPC:
neither survives a fork.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess

from tgi_bench.errors import InputError, LaunchError
from tgi_bench.server import arguments, sockets
from tgi_bench.server.behaviour import Behaviour
from tgi_bench.server.config import ServerConfig
from tgi_bench.server.device import setup_of
from tgi_bench.server.log import LAUNCHER, ROUTER, Log
from tgi_bench.torch_engine.spec import require_extra

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_WAITING_LINE_S = 10.0
"""How often the launcher says that it waits for a rank."""

_SHUTDOWN_S = 5.0
"""After it a rank that was told to end is killed."""


class _LauncherError(Exception):
    """What the launcher prints after "Error: " before it returns 1."""


class _Stopped(Exception):  # noqa: N818 - no error: SIGTERM or SIGINT came
    """The server was told to end."""


@dataclass(frozen=True, slots=True)
class _Rank:
    shard_rank: int
    process: ForkProcess
    ready: Connection
    started_s: float


@dataclass(slots=True)
class _Deployment:
    """The ranks that were started."""

    config: ServerConfig
    log: Log
    ranks: list[_Rank] = field(default_factory=list)


def run(config: ServerConfig) -> int:
    """Serve until SIGTERM or SIGINT (0) or until something fails (1); prints to stdout.

    When it returns, no rank runs and no socket is left.
    """
    log = Log(config.json_output, sys.stdout)
    deployment = _Deployment(config, log)
    held_back = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        _start(deployment)
        asyncio.run(_supervise(deployment))
    except _Stopped:
        return 0
    except _LauncherError as error:
        print(f"Error: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return 1
    finally:
        _shut_down(deployment)
        signal.pthread_sigmask(signal.SIG_SETMASK, held_back)
    return 0


def _start(deployment: _Deployment) -> None:
    config, log = deployment.config, deployment.log
    behaviour = Behaviour(config.tgi_version)
    log.info(LAUNCHER, arguments.line(config.printed_arguments, behaviour.pretty_args_line))
    paths = [config.uds_path(rank) for rank in range(config.engine.num_shard)]
    try:
        _check_engine(config)
        sockets.check_length(paths)
    except InputError as error:
        raise _LauncherError(f"ArgumentValidation({arguments.quoted(str(error))})") from error
    _log_engine(config, log)
    try:
        sockets.remove_stale(paths)
    except InputError as error:
        log.error(LAUNCHER, str(error))
        raise _LauncherError("ShardCannotStart") from error
    if config.engine.num_shard > 1:
        log.info(LAUNCHER, f"Sharding model on {config.engine.num_shard} processes")
    _log_download(config, behaviour, log)
    for shard_rank in range(config.engine.num_shard):
        log.info(LAUNCHER, "Starting shard", rank=shard_rank)
        deployment.ranks.append(_fork(config, shard_rank, log))


def _check_engine(config: ServerConfig) -> None:
    """Raise InputError for an engine that cannot be had, before anything is started."""
    if config.engine.simulated:
        setup_of(config.engine)
    else:
        require_extra()


def _log_engine(config: ServerConfig, log: Log) -> None:
    engine = config.engine
    if engine.torch_model is None:
        log.warn(
            LAUNCHER,
            f"This server is simulated: engine {engine.engine}, accelerator "
            f"{engine.accelerator}. Times and memory are estimates, tokens are made up.",
        )
        return
    random = engine.torch_model.weights.random
    weights = "random weights, tokens mean nothing" if random else "the model's weights"
    log.info(LAUNCHER, f"This server is tgi-bench's own: engine {engine.engine}, {weights}.")


def _log_download(config: ServerConfig, behaviour: Behaviour, log: Log) -> None:
    """The lines of a model that is there already; the simulated engine reads no weights, and
    the transformers engine fetches what is missing when a rank loads its model."""
    model = config.engine.model_id
    download = replace(log, span="download")
    if behaviour.names_model_in_download_lines:
        download.info(LAUNCHER, f"Starting check and download process for {model}")
    else:
        download.info(LAUNCHER, "Starting download process.")
    if config.engine.simulated:
        log.info(LAUNCHER, "The simulated engine needs no weights. Skipping download.")
    else:
        log.info(LAUNCHER, "The transformers engine reads its model when a shard starts.")
    named = f" for {model}" if behaviour.names_model_in_download_lines else "."
    download.info(LAUNCHER, f"Successfully downloaded weights{named}")


def _fork(config: ServerConfig, shard_rank: int, log: Log) -> _Rank:
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(
        target=_rank_main, args=(config, shard_rank, log, sender), name=f"shard-{shard_rank}"
    )
    started_s = time.monotonic()
    process.start()
    sender.close()
    return _Rank(shard_rank, process, receiver, started_s)


def _rank_main(config: ServerConfig, shard_rank: int, log: Log, sender: Connection) -> None:
    from tgi_bench.server import shard  # imports gRPC: in the child only

    def ready() -> None:
        sender.send_bytes(b"ready")
        sender.close()

    sys.exit(shard.serve(shard.Rank(config, shard_rank), log, ready))


async def _supervise(deployment: _Deployment) -> None:
    """Returns never: raises _Stopped or _LauncherError."""
    with _signals() as stopped:
        await _until_ready(deployment, stopped)
        crashed = asyncio.ensure_future(_first_exit(deployment))
        serving = asyncio.ensure_future(_serve_http(deployment, stopped))
        await asyncio.wait((crashed, serving), return_when=asyncio.FIRST_COMPLETED)
        # A rank that died explains a router that failed: it is told first.
        if serving.done() and serving.exception() is not None:
            await asyncio.wait((crashed,), timeout=0.5)
        # A signal to the whole process group ends ranks too, maybe before it is seen here.
        with suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), 0 if not crashed.done() else 0.2)
        if stopped.is_set() or not crashed.done():
            crashed.cancel()
            await serving
            raise _Stopped
        _log_crash(deployment.log, crashed.result())
        stopped.set()
        # What the router raised was told where it happened; the rank's death is the cause.
        with suppress(_LauncherError):
            await serving
        raise _LauncherError("ShardFailed")


@contextmanager
def _signals() -> Iterator[asyncio.Event]:
    """An event that SIGTERM and SIGINT set; those that came earlier set it now."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stopped.set)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    try:
        yield stopped
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


async def _until_ready(deployment: _Deployment, stopped: asyncio.Event) -> None:
    stopping = asyncio.ensure_future(stopped.wait())
    try:
        for rank in deployment.ranks:
            spoken = asyncio.ensure_future(_readable(rank.ready.fileno()))
            while not (spoken.done() or stopping.done()):
                await asyncio.wait(
                    (spoken, stopping),
                    timeout=_WAITING_LINE_S,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not (spoken.done() or stopping.done()):
                    deployment.log.info(
                        LAUNCHER, "Waiting for shard to be ready...", rank=rank.shard_rank
                    )
            if stopping.done():
                spoken.cancel()
                raise _Stopped
            _check_ready(rank, deployment.log)
    finally:
        stopping.cancel()


def _check_ready(rank: _Rank, log: Log) -> None:
    try:
        rank.ready.recv_bytes()
    except EOFError:  # it ended without a word
        rank.process.join()
        _log_signal(rank, log)
        log.error(LAUNCHER, f"Shard {rank.shard_rank} failed to start")
        raise _LauncherError("ShardCannotStart") from None
    took_s = time.monotonic() - rank.started_s
    log.info(LAUNCHER, f"Shard ready in {took_s:.9f}s", rank=rank.shard_rank)


async def _first_exit(deployment: _Deployment) -> _Rank:
    """The first rank that ends."""
    ends = {
        asyncio.ensure_future(_readable(rank.process.sentinel)): rank for rank in deployment.ranks
    }
    try:
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for end in ends:
            end.cancel()
    return ends[done.pop()]


async def _readable(fileno: int) -> None:
    """Returns when there is something to read, the end of file included."""
    loop = asyncio.get_running_loop()
    readable = loop.create_future()

    def told() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(fileno, told)
    try:
        await readable
    finally:
        loop.remove_reader(fileno)


async def _serve_http(deployment: _Deployment, stopped: asyncio.Event) -> None:
    """The router, from its start to a signal."""
    from tgi_bench.server.router.app import Router  # imports gRPC and aiohttp: after the fork

    config, log = deployment.config, deployment.log
    log.info(LAUNCHER, "Starting Webserver")
    router = Router(config, log)
    starting = asyncio.ensure_future(router.start())
    stopping = asyncio.ensure_future(stopped.wait())
    try:
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            await stopping
        log.info(LAUNCHER, "Terminating webserver")
        log.info(LAUNCHER, "Waiting for webserver to gracefully shutdown")
    except (OSError, LaunchError) as error:
        where = f"{config.hostname}:{config.port}"
        told = str(error)
        if isinstance(error, OSError):
            told = f"Failed to bind to {where}: {_why(error)}"
        log.error(ROUTER, told)
        log.error(LAUNCHER, "Webserver Crashed")
        raise _LauncherError("WebserverFailed") from error
    finally:
        starting.cancel()
        stopping.cancel()
        # Waits for both, and takes what they raised: it was told above.
        await asyncio.gather(starting, stopping, return_exceptions=True)
        await router.stop()


def _why(error: OSError) -> str:
    """The system's words alone: asyncio's name the address again."""
    if error.errno is None or error.errno <= 0:
        return error.strerror or str(error)
    return f"{os.strerror(error.errno)} (os error {error.errno})"


def _log_crash(log: Log, rank: _Rank) -> None:
    rank.process.join()
    _log_signal(rank, log)
    log.error(LAUNCHER, f"Shard {rank.shard_rank} crashed")


def _log_signal(rank: _Rank, log: Log) -> None:
    code = rank.process.exitcode
    if code is not None and code < 0:
        log.error(
            LAUNCHER,
            f"Shard process was signaled to shutdown with signal {-code}",
            rank=rank.shard_rank,
        )


def _shut_down(deployment: _Deployment) -> None:
    """End every rank, by force after _SHUTDOWN_S, and remove the sockets."""
    if not deployment.ranks:
        return
    deployment.log.info(LAUNCHER, "Shutting down shards")
    for rank in deployment.ranks:
        rank.process.terminate()
    deadline_s = time.monotonic() + _SHUTDOWN_S
    for rank in deployment.ranks:
        rank.process.join(max(0.0, deadline_s - time.monotonic()))
        if rank.process.is_alive():
            rank.process.kill()
            rank.process.join()
        rank.process.close()
        rank.ready.close()
        sockets.remove(deployment.config.uds_path(rank.shard_rank))
        deployment.log.info(LAUNCHER, "shard terminated", rank=rank.shard_rank)

"""The whole embedded server as text-generation-launcher shows it: ranks, router, supervision.

Ranks are forked before anything here starts a thread or an event loop, or imports gRPC:
neither survives a fork.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import socket
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess

from tgi_bench.errors import InputError, LaunchError
from tgi_bench.server.behaviour import Behaviour
from tgi_bench.server.config import ServerConfig
from tgi_bench.server.device import setup_of
from tgi_bench.server.log import (
    LAUNCHER,
    ROUTER,
    Log,
    arguments_line,
    log_download,
    log_engine,
    quoted,
)
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
    log.info(LAUNCHER, arguments_line(config.printed_arguments, behaviour.pretty_args_line))
    paths = [config.uds_path(rank) for rank in range(config.engine.num_shard)]
    try:
        _check_engine(config)
        check_socket_paths(paths)
    except InputError as error:
        raise _LauncherError(f"ArgumentValidation({quoted(str(error))})") from error
    log_engine(config, log)
    try:
        remove_stale_sockets(paths)
    except InputError as error:
        log.error(LAUNCHER, str(error))
        raise _LauncherError("ShardCannotStart") from error
    if config.engine.num_shard > 1:
        log.info(LAUNCHER, f"Sharding model on {config.engine.num_shard} processes")
    log_download(config, behaviour, log)
    for shard_rank in range(config.engine.num_shard):
        log.info(LAUNCHER, "Starting shard", rank=shard_rank)
        deployment.ranks.append(_fork(config, shard_rank, log))


def _check_engine(config: ServerConfig) -> None:
    """Raise InputError for an engine that cannot be had, before anything is started."""
    if config.engine.simulated:
        setup_of(config.engine)
    else:
        require_extra()


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

    sys.exit(shard.serve(shard.ShardRank(config, shard_rank), log, ready))


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
        remove_socket(deployment.config.uds_path(rank.shard_rank))
        deployment.log.info(LAUNCHER, "shard terminated", rank=rank.shard_rank)


LONGEST_PATH_BYTES = 107
"""Linux: sun_path has 108 bytes, the last is the terminator."""


def check_socket_paths(paths: Iterable[str]) -> None:
    """InputError for a path that no unix socket can have."""
    for path in paths:
        size = len(os.fsencode(path))
        if size > LONGEST_PATH_BYTES:
            raise InputError(
                f"the socket path {path} has {size} bytes; a unix socket's path has at most "
                f"{LONGEST_PATH_BYTES}: choose a shorter shard_uds_path"
            )
        if not os.path.isabs(path):
            raise InputError(f"the socket path {path} is relative: give an absolute shard_uds_path")


def remove_stale_sockets(paths: Iterable[str]) -> None:
    """Remove sockets that nobody listens on.

    InputError where a server listens, where the path is no socket, or its folder is missing.
    """
    for path in paths:
        if not os.path.isdir(os.path.dirname(path)):
            raise InputError(f"the folder of the socket {path} does not exist")
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            continue
        if not stat.S_ISSOCK(mode):
            raise InputError(f"{path} exists and is no socket: choose another shard_uds_path")
        if _listened_on(path):
            raise InputError(
                f"another server listens on {path}: end it or choose another shard_uds_path"
            )
        remove_socket(path)


def remove_socket(path: str) -> None:
    """Remove a socket, there or not."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def _listened_on(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
    return True

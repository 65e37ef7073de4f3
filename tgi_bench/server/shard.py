"""One rank of a deployment: the engine behind gRPC on a unix socket, in its own process."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import grpc
from google.protobuf.message import DecodeError
from grpc import aio

from tgi_bench.errors import InputError
from tgi_bench.server.behaviour import Behaviour, OnRuntimeError
from tgi_bench.server.config import EngineConfig, ServerConfig
from tgi_bench.server.engine import StepEngine
from tgi_bench.server.log import LAUNCHER, Log
from tgi_bench.wire import codec
from tgi_bench.wire import messages as m

EXIT_DELAY_S = 0.2
"""From answering a RuntimeError to the exit (2.4.0 and later): within 0.5 s of it."""

_PR_SET_PDEATHSIG = 1
_SURVIVABLE = (ValueError, LookupError, TypeError, AssertionError)

Answer = Callable[[bytes], bytes]
Context = aio.ServicerContext[bytes, bytes]


@dataclass(frozen=True, slots=True)
class ShardRank:
    """Which socket of which deployment."""

    config: ServerConfig
    shard_rank: int

    @property
    def uds_path(self) -> str:
        """Its socket."""
        return self.config.uds_path(self.shard_rank)


def serve(rank: ShardRank, log: Log, ready: Callable[[], None]) -> int:
    """Serve until a signal or a fatal error ends the process; `ready` is called once it listens.

    Returns 1 where the engine cannot start (weights that do not fit, a bad name).
    """
    _leave_with_parent(rank.uds_path)
    behaviour = Behaviour(rank.config.tgi_version)
    try:
        engine = engine_of(rank.config.engine, behaviour, rank.shard_rank)
    except (RuntimeError, InputError) as error:
        log.error(LAUNCHER, f"Error when initializing model: {error}", rank=rank.shard_rank)
        return 1
    if engine.description is not None:
        log.info(LAUNCHER, engine.description, rank=rank.shard_rank)
    asyncio.run(_Shard(rank, behaviour, engine, log).serve(ready))
    return 0


def engine_of(config: EngineConfig, behaviour: Behaviour, shard_rank: int) -> StepEngine:
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


@dataclass(frozen=True, slots=True)
class _Shard:
    rank: ShardRank
    behaviour: Behaviour
    engine: StepEngine
    log: Log

    async def serve(self, ready: Callable[[], None]) -> None:
        """Listen, and never return of itself."""
        limit = self.behaviour.receive_limit_bytes
        server = aio.server(
            options=[("grpc.max_receive_message_length", -1 if limit is None else limit)]
        )
        service = f"{self.behaviour.protocol.value}.TextGenerationService"
        handlers = {
            rpc: grpc.unary_unary_rpc_method_handler(self._handler(rpc, answer))
            for rpc, answer in self._answers().items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        server.add_insecure_port(f"unix://{self.rank.uds_path}")
        await server.start()
        self.log.info(LAUNCHER, f"Server started at unix://{self.rank.uds_path}")
        ready()
        await server.wait_for_termination()

    def _answers(self) -> dict[str, Answer]:
        """The RPCs of this version; gRPC answers all others with UNIMPLEMENTED."""
        answers: dict[str, Answer] = {
            "Info": self._info,
            "ServiceDiscovery": self._discovery,
            "ClearCache": self._clear_cache,
            "Prefill": self._prefill,
            "Decode": self._decode,
        }
        if self.behaviour.filters_batches:
            answers |= {"FilterBatch": self._filter_batch, "Health": self._health}
        if self.behaviour.warms_up:
            answers |= {"Warmup": self._warmup}
        return answers

    def _health(self, _: bytes) -> bytes:
        return codec.EMPTY

    def _info(self, _: bytes) -> bytes:
        return codec.encode_info(self.behaviour.protocol, self.engine.info())

    def _discovery(self, _: bytes) -> bytes:
        config = self.rank.config
        urls = (f"unix://{config.uds_path(rank)}" for rank in range(config.engine.num_shard))
        return codec.encode_discovery(self.behaviour.protocol, urls)

    def _clear_cache(self, payload: bytes) -> bytes:
        self.engine.clear_cache(codec.decode_clear_cache(self.behaviour.protocol, payload))
        return codec.EMPTY

    def _filter_batch(self, payload: bytes) -> bytes:
        protocol = self.behaviour.protocol
        kept = self.engine.filter_batch(*codec.decode_filter(protocol, payload))
        return codec.encode_filter_reply(protocol, kept)

    def _warmup(self, payload: bytes) -> bytes:
        protocol = self.behaviour.protocol
        reply = self.engine.warmup(codec.decode_warmup(protocol, payload))
        return codec.encode_warmup_reply(protocol, reply)

    def _prefill(self, payload: bytes) -> bytes:
        protocol = self.behaviour.protocol
        reply = self.engine.prefill(codec.decode_prefill(protocol, payload))
        return codec.encode_step_reply(protocol, self._own(reply))

    def _decode(self, payload: bytes) -> bytes:
        protocol = self.behaviour.protocol
        reply = self.engine.decode(codec.decode_decode(protocol, payload))
        return codec.encode_step_reply(protocol, self._own(reply))

    def _own(self, reply: m.StepReply) -> m.StepReply:
        """The reply with this rank's share of the generations: every rank computes all of them."""
        ranks = self.rank.config.engine.num_shard
        if ranks == 1:
            return reply
        by_id = self.behaviour.flash_shares_by_id and not self.engine.info().requires_padding
        own = tuple(
            generation
            for place, generation in enumerate(reply.generations)
            if (generation.request_id if by_id else place) % ranks == self.rank.shard_rank
        )
        return replace(reply, generations=own)

    def _handler(self, rpc: str, answer: Answer) -> Callable[[bytes, Context], Awaitable[bytes]]:
        """`answer` with its errors told as this version's shards tell them."""

        async def handle(payload: bytes, context: Context) -> bytes:
            try:
                # On the event loop, as a model runs: every other call waits, Health too.
                return answer(payload)
            except DecodeError:
                message = "Exception deserializing request!"
            except RuntimeError as error:
                self._log_failure(rpc, error)
                self._on_runtime_error()
                message = str(error)
            except _SURVIVABLE as error:
                self._log_failure(rpc, error)
                message = str(error)
            await context.abort(grpc.StatusCode.INTERNAL, message)
            raise AssertionError("abort returned")

        return handle

    def _log_failure(self, rpc: str, error: Exception) -> None:
        told = "".join(traceback.format_exception_only(error)).rstrip()
        self.log.error(LAUNCHER, f"Method {rpc} encountered an error.\n{told}")

    def _on_runtime_error(self) -> None:
        match self.behaviour.on_runtime_error:
            case OnRuntimeError.SURVIVE:
                return
            case OnRuntimeError.EXIT_UNANSWERED:
                os._exit(1)
            case OnRuntimeError.EXIT_ANSWERED:
                loop = asyncio.get_running_loop()
                loop.call_later(EXIT_DELAY_S, _leave, self.rank.uds_path, 1)


def _leave(uds_path: str, code: int) -> None:
    """Remove the socket and exit at once, whatever the event loop is doing."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(uds_path)
    os._exit(code)


def _leave_with_parent(uds_path: str) -> None:
    """End on SIGTERM, which the kernel also sends when the launcher dies (Linux).

    Python runs the handler inside a step's sleep too. SIGINT is the launcher's to act on.
    """
    signal.signal(signal.SIGTERM, lambda *_: _leave(uds_path, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
    # Known from before the fork: in a container the launcher itself may be process 1.
    launcher = multiprocessing.parent_process()
    if launcher is not None and os.getppid() != launcher.pid:
        _leave(uds_path, 0)  # the launcher died before the kernel was told to say so

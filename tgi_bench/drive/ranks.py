"""One connection to every rank of a server; a call goes to all of them at once.

Requests and replies are bytes here, so that a timed call holds no protobuf work of ours:
a payload is encoded once, before the clock starts, whatever the number of ranks.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeAlias

import grpc
from google.protobuf.message import DecodeError

from tgi_bench.drive.server_host import CoreWait
from tgi_bench.errors import StepError
from tgi_bench.memory_evidence import out_of_memory
from tgi_bench.observation import Outcome, ShardFacts
from tgi_bench.wire import codec
from tgi_bench.wire.messages import Protocol, ShardInfo

CONTROL_TIMEOUT_S = 30.0
"""For calls that compute nothing. Long, because a shard answers them only between steps."""

HEALTH_CALLS = 3
"""Before each run. The first wakes up what slept; the median is of those that come after it."""

_BUSY_S = 600.0  # how long a rank may go on with a step that the client gave up
_GRACE_S = 2.0  # how long the other ranks may still answer once one of them has failed
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # The socket is local: a proxy from the environment must not be asked.
    ("grpc.enable_http_proxy", 0),
]
_TELLING = (
    Outcome.OUT_OF_MEMORY,
    Outcome.HOST_OUT_OF_MEMORY,
    Outcome.SHARD_DIED,
    Outcome.FAILED,
    Outcome.TIMEOUT,
)
"""Of failures of several ranks the first of these is the cause: the others follow from it."""

_Call: TypeAlias = "grpc.UnaryUnaryMultiCallable[bytes, bytes]"


@dataclass(frozen=True, slots=True)
class RankReplies:
    """What all ranks answered to one call, by shard_rank, and when it was sent and ended."""

    sent_ns: int
    ended_ns: int
    payloads: tuple[bytes, ...]


class RankError(StepError):
    """A call failed on at least one rank; knows when it was sent and when that was known."""

    def __init__(self, outcome: Outcome, reason: str, sent_ns: int, ended_ns: int) -> None:
        super().__init__(outcome, reason)
        self.sent_ns = sent_ns
        self.ended_ns = ended_ns


class Ranks:
    """Open connections to all ranks of one server. A context manager; closes them.

    infos: what each rank says of itself, by shard_rank.
    """

    def __init__(
        self,
        protocol: Protocol,
        channels: tuple[grpc.Channel, ...],
        timeout_s: float = CONTROL_TIMEOUT_S,
    ) -> None:
        """Asks every rank for its Info; raises RankError."""
        self.protocol = protocol
        self._channels = channels
        self._prefill = self._calls("Prefill")
        self._decode = self._calls("Decode")
        self._health = self._calls("Health")
        self._clearing: list[grpc.CallFuture[bytes]] = []
        self.infos = self._infos(timeout_s)

    @classmethod
    def connect(cls, master_socket: Path, timeout_s: float = CONTROL_TIMEOUT_S) -> Ranks:
        """Find the protocol version and the other ranks by asking rank 0, then ask each for its
        Info.

        Raises StepError where one does not answer, or rank 0 in no known version.
        """
        master = _channel(str(master_socket))
        try:
            protocol, urls = _discover(master, master_socket, timeout_s)
        finally:
            master.close()
        channels = tuple(_channel(url.removeprefix("unix://")) for url in urls)
        try:
            return cls(protocol, channels, timeout_s)
        except StepError:
            for channel in channels:
                channel.close()
            raise

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        for channel in self._channels:
            channel.close()

    def __len__(self) -> int:
        return len(self._channels)

    def prefill(self, payload: bytes, timeout_s: float) -> RankReplies:
        """Prefill on every rank; raises RankError."""
        return _call_all(self._prefill, payload, timeout_s)

    def decode(self, payload: bytes, timeout_s: float) -> RankReplies:
        """Decode on every rank; raises RankError."""
        return _call_all(self._decode, payload, timeout_s)

    def clear_cache(self, batch_id: int, timeout_s: float) -> None:
        """Forget one batch on every rank; raises RankError.

        A rank that is still busy after timeout_s gets the call when it is free, as long as
        these connections are open: its step would otherwise put the batch back in the cache.
        """
        payload = codec.encode_clear_cache(self.protocol, batch_id)
        sent_ns = time.monotonic_ns()
        futures = [call.future(payload, timeout=_BUSY_S) for call in self._calls("ClearCache")]
        # A call that nobody holds is cancelled by the garbage collector.
        self._clearing = [f for f in self._clearing if not f.done()] + futures
        deadline = time.monotonic() + timeout_s
        for future in futures:
            try:
                future.result(max(0.0, deadline - time.monotonic()))
            except grpc.FutureTimeoutError as error:
                reason = f"no answer to ClearCache within {timeout_s:g} s"
                ended_ns = time.monotonic_ns()
                raise RankError(Outcome.TIMEOUT, reason, sent_ns, ended_ns) from error
            except grpc.RpcError as error:
                ended_ns = time.monotonic_ns()
                outcome, reason = _classify(error.code(), error.details())
                raise RankError(outcome, reason, sent_ns, ended_ns) from error

    @property
    def facts(self) -> ShardFacts:
        """What all ranks said of themselves, for the record."""
        return ShardFacts(
            protocol=self.protocol.value,
            device_types=tuple(info.device_type for info in self.infos),
            dtypes=tuple(info.dtype for info in self.infos),
        )

    def answer(self, timeout_s: float) -> bool:
        """True where every rank answers Health within the time."""
        try:
            _call_all(self._health, codec.EMPTY, timeout_s)
        except RankError:
            return False
        return True

    def health_ns(self) -> int | None:
        """What a call that computes nothing takes to all ranks now, less what a thread of this
        process waited for a core meanwhile: the median of a few.

        It is what the server and the transport take; a client that is starved would otherwise
        excuse itself by it. None where a rank does not answer (before 0.7.0 there is no Health,
        and why a rank fails is told by the step that follows), and where the kernel does not tell
        such waits.
        """
        taken = []
        for _ in range(HEALTH_CALLS):
            before = CoreWait()
            try:
                reply = _call_all(self._health, codec.EMPTY, CONTROL_TIMEOUT_S)
            except RankError:
                return None
            waited_ns = before.until_ns(CoreWait())
            if waited_ns is None:
                return None
            taken.append(max(0, reply.ended_ns - reply.sent_ns - waited_ns))
        return int(median(taken))

    def _infos(self, timeout_s: float) -> tuple[ShardInfo, ...]:
        reply = _call_all(self._calls("Info"), codec.EMPTY, timeout_s)
        infos = []
        for rank, payload in enumerate(reply.payloads):
            try:
                infos.append(codec.decode_info(self.protocol, payload))
            except DecodeError as error:
                reason = f"shard_rank {rank}: its Info does not parse: {error}"
                failed = Outcome.FAILED
                raise RankError(failed, reason, reply.sent_ns, reply.ended_ns) from error
        return tuple(infos)

    def _calls(self, rpc: str) -> tuple[_Call, ...]:
        return tuple(_call(channel, self.protocol, rpc) for channel in self._channels)


def _channel(path: str) -> grpc.Channel:
    return grpc.insecure_channel(f"unix:{path}", options=_OPTIONS)


def _call(channel: grpc.Channel, protocol: Protocol, rpc: str) -> _Call:
    # No serializer and no deserializer: bytes in, bytes out.
    return channel.unary_unary(protocol.method(rpc), None, None)


def _discover(
    master: grpc.Channel, socket: Path, timeout_s: float
) -> tuple[Protocol, tuple[str, ...]]:
    for protocol in (Protocol.V3, Protocol.V2, Protocol.V1):
        try:
            payload = _call(master, protocol, "ServiceDiscovery")(codec.EMPTY, timeout=timeout_s)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNIMPLEMENTED:
                continue
            outcome, reason = _classify(error.code(), error.details())
            raise StepError(outcome, f"no shard answers on {socket}: {reason}") from error
        urls = codec.decode_discovery(protocol, payload)
        if not urls:
            raise StepError(Outcome.FAILED, f"the shard on {socket} names no ranks")
        return protocol, urls
    raise StepError(Outcome.FAILED, f"the shard on {socket} answers none of generate.v3, v2 and v1")


def _call_all(calls: tuple[_Call, ...], payload: bytes, timeout_s: float) -> RankReplies:
    if len(calls) == 1:
        return _call_one(calls[0], payload, timeout_s)
    done: queue.SimpleQueue[int] = queue.SimpleQueue()
    sent_ns = time.monotonic_ns()
    futures = [call.future(payload, timeout=timeout_s) for call in calls]
    for rank, future in enumerate(futures):
        future.add_done_callback(_putter(done, rank))
    ended: list[int] = []
    for _ in futures:
        ended.append(done.get())
        if futures[ended[-1]].code() is not grpc.StatusCode.OK:
            ended_ns = time.monotonic_ns()
            outcome, reason = _first_cause(futures, ended, done)
            raise RankError(outcome, reason, sent_ns, ended_ns)
    ended_ns = time.monotonic_ns()
    return RankReplies(sent_ns, ended_ns, tuple(future.result() for future in futures))


def _call_one(call: _Call, payload: bytes, timeout_s: float) -> RankReplies:
    # A blocking call polls in this thread; a future would add a thread switch to the latency.
    sent_ns = time.monotonic_ns()
    try:
        reply = call(payload, timeout=timeout_s)
    except grpc.RpcError as error:
        ended_ns = time.monotonic_ns()
        outcome, reason = _classify(error.code(), error.details())
        raise RankError(outcome, reason, sent_ns, ended_ns) from error
    return RankReplies(sent_ns, time.monotonic_ns(), (reply,))


def _putter(done: queue.SimpleQueue[int], rank: int) -> Callable[[object], None]:
    return lambda _: done.put(rank)


def _first_cause(
    futures: list[grpc.CallFuture[bytes]], ended: list[int], done: queue.SimpleQueue[int]
) -> tuple[Outcome, str]:
    """The failure that says most: a rank that ran out of memory, or that is gone, ends the others
    in other ways, as with a connection reset within a collective.

    Of several of a kind it is the first. The other ranks wait for a collective that will never
    come, so they are given a moment and then cancelled. ended: ranks in the order in which
    they ended, the last of which failed.
    """
    deadline = time.monotonic() + _GRACE_S
    while len(ended) < len(futures) and (left := deadline - time.monotonic()) > 0:
        try:
            ended.append(done.get(timeout=left))
        except queue.Empty:
            break
    # Before the rest is cancelled: "cancelled" would be our own doing and no cause.
    causes = [
        (*_classify(futures[rank].code(), futures[rank].details()), rank)
        for rank in ended
        if futures[rank].code() is not grpc.StatusCode.OK
    ]
    for future in futures:
        future.cancel()  # type: ignore[no-untyped-call]  # the stubs leave it so
    causes.sort(key=lambda cause: _TELLING.index(cause[0]))
    outcome, reason, rank = causes[0]
    return outcome, f"shard_rank {rank}: {reason}"


def _classify(code: grpc.StatusCode, details: str | None) -> tuple[Outcome, str]:
    text = " ".join((details or "").split()) or "no details"
    if (memory := out_of_memory(text)) is not None:
        return memory, text
    match code:
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return Outcome.TIMEOUT, "no answer within the time allowed (batches.step_timeout_s)"
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED:
            return Outcome.SHARD_DIED, f"{code.name}: {text}"
        case _:
            return Outcome.FAILED, f"{code.name}: {text}"

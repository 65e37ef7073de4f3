"""Recorded shards: gRPC on unix sockets, answering with what real ones answered.

A call is answered by the first recorded one of its method that has not been used, as long as no
recorded step before it is still to come. What a transcript has none of (Health, Info,
ServiceDiscovery, ClearCache) is taken from the transcript of that name beside it. Bytes and status
are the recorded ones but for what must differ: the ids that a client chose for its batches, and
the sockets' paths.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from tgi_bench.wire import generate_v1_pb2, generate_v2_pb2, generate_v3_pb2

FOLDER = Path(__file__).parent
VERSIONS = ("0.9.4", "2.0.4", "3.3.7")
_MODULES = {
    "generate.v1": generate_v1_pb2,
    "generate.v2": generate_v2_pb2,
    "generate.v3": generate_v3_pb2,
}
PACKAGES = dict(zip(VERSIONS, _MODULES, strict=True))
_SLOW_S = 0.01
_STEPS = frozenset({"Prefill", "Decode", "FilterBatch", "Warmup"})
_BESIDE = {
    "Health": "health",
    "Info": "info",
    "ServiceDiscovery": "service_discovery",
    "ClearCache": "clear_cache",
}


@dataclass(frozen=True, slots=True)
class Call:
    """One call to one rank. reply: None where it failed; said: the reply as JSON."""

    rank: int
    method: str
    path: str
    request: bytes
    reply: bytes | None
    said: Any
    status: grpc.StatusCode
    details: str

    @property
    def package(self) -> str:
        """Of the service: "generate.v3"."""
        return self.path.split("/")[1].removesuffix(".TextGenerationService")

    def message(self, kind: str, payload: bytes) -> Any:
        """Its `Request` or `Response`, read."""
        return message(self.package, f"{self.method}{kind}", payload)


def message(package: str, name: str, payload: bytes) -> Any:
    """A protobuf message by its name."""
    return getattr(_MODULES[package], name).FromString(payload)


@dataclass(frozen=True, slots=True)
class Transcript:
    """One file: "tgi-3.3.7/grpc/num_shard-2/batch_3"."""

    version: str
    num_shard: int
    name: str

    @property
    def package(self) -> str:
        """That its server speaks."""
        return PACKAGES[self.version]

    @property
    def path(self) -> Path:
        """Where it lies."""
        return FOLDER / f"tgi-{self.version}/grpc/num_shard-{self.num_shard}/{self.name}.jsonl"

    def __str__(self) -> str:
        return f"{self.version}-{self.num_shard}-{self.name}"

    def beside(self, name: str) -> Transcript:
        """Another of the same server."""
        return Transcript(self.version, self.num_shard, name)

    def calls(self) -> tuple[Call, ...]:
        """In their order."""
        lines = self.path.read_text(encoding="utf-8").splitlines()
        return tuple(_call(json.loads(line)) for line in lines)

    def rounds(self) -> list[tuple[Call, ...]]:
        """The calls that were made at the same time, one a rank."""
        calls = self.calls()
        ranks = len({call.rank for call in calls})
        assert [call.rank for call in calls] == list(range(ranks)) * (len(calls) // ranks)
        return [calls[at : at + ranks] for at in range(0, len(calls), ranks)]


def transcripts(names: str = "*") -> list[Transcript]:
    """All whose name matches."""
    found = [
        Transcript(version, num_shard, path.stem)
        for version in VERSIONS
        for num_shard in (1, 2)
        for path in sorted(Transcript(version, num_shard, "_").path.parent.glob(f"{names}.jsonl"))
    ]
    assert found, f"no transcript is called {names}"
    return found


def _call(line: dict[str, Any]) -> Call:
    reply = line["reply_b64"]
    return Call(
        rank=line["rank"],
        method=line["method"],
        path=line["path"],
        request=base64.b64decode(line["request_b64"]),
        reply=None if line["reply"] is None else base64.b64decode(reply),
        said=line["reply"],
        status=grpc.StatusCode[line["status"]],
        details=line["details"],
    )


@dataclass(slots=True)
class ReplayedRank:
    """One rank. strays: requests that were not those of the transcript, in words."""

    transcript: Transcript
    rank: int
    sockets: Sequence[Path]
    delay_s: float = 0.0
    strays: list[str] = field(default_factory=list)
    _left: list[Call] = field(default_factory=list)
    _last: dict[str, Call] = field(default_factory=dict)
    _ids: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._left = [c for c in self.transcript.calls() if c.rank == self.rank]
        for method, name in _BESIDE.items():
            beside = self.transcript.beside(name).calls()
            self._last[method] = next(c for c in beside if c.rank == self.rank)

    def answer(self, method: str, payload: bytes, context: grpc.ServicerContext) -> bytes:
        """As recorded; a call that is not is refused, and is a stray."""
        time.sleep(self.delay_s)
        call = self._next(method)
        if call is None:
            self.strays.append(f"{method} is not recorded here")
            context.abort(grpc.StatusCode.UNKNOWN, self.strays[-1])
        self._compare(call, call.message("Request", payload))
        if call.status is grpc.StatusCode.DEADLINE_EXCEEDED:
            gone = threading.Event()
            if context.add_callback(gone.set):
                gone.wait(20)
        if call.reply is None:
            context.abort(call.status, self._renumbered(call.details))
        return self._rewritten(call)

    def _next(self, method: str) -> Call | None:
        for at, call in enumerate(self._left):
            if call.method == method and call.package == self.transcript.package:
                self._last[method] = call
                return self._left.pop(at)
            if call.method in _STEPS:
                break
        return self._last.get(method) if method in _BESIDE else None

    def _compare(self, call: Call, asked: Any) -> None:
        """Learns the ids that the client gives to its batches."""
        recorded = call.message("Request", call.request)
        match call.method:
            case "Prefill":
                self._ids[recorded.batch.id] = asked.batch.id
                same = [r.id for r in recorded.batch.requests] == [
                    r.id for r in asked.batch.requests
                ]
            case "Decode":
                for batch in recorded.batches:
                    batch.id = self._ids.get(batch.id, batch.id)
                same = recorded == asked
            case "FilterBatch":
                recorded.batch_id = self._ids.get(recorded.batch_id, recorded.batch_id)
                same = recorded == asked
            case _:
                same = True
        if not same:
            self.strays.append(f"{call.method} asked\n{asked}where it is recorded\n{recorded}")

    def _rewritten(self, call: Call) -> bytes:
        assert call.reply is not None
        reply = call.message("Response", call.reply)
        match call.method:
            case "ServiceDiscovery":
                del reply.urls[:]
                reply.urls.extend(f"unix://{socket}" for socket in self.sockets)
            case "Prefill" | "Decode" | "FilterBatch" if reply.HasField("batch"):
                if self._ids.get(reply.batch.id, reply.batch.id) == reply.batch.id:
                    return call.reply
                reply.batch.id = self._ids[reply.batch.id]
            case _:
                return call.reply
        rewritten: bytes = reply.SerializeToString()
        return rewritten

    def _renumbered(self, details: str) -> str:
        for recorded, asked in self._ids.items():
            details = details.replace(f"Batch ID {recorded} ", f"Batch ID {asked} ")
        return details


class _Handler(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in stubs only
    """Answers the recorded version only: of another, gRPC itself says UNIMPLEMENTED."""

    def __init__(self, rank: ReplayedRank) -> None:
        self._rank = rank

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        service, _, method = handler_call_details.method.rpartition("/")
        if service != f"/{self._rank.transcript.package}.TextGenerationService":
            return None
        return grpc.unary_unary_rpc_method_handler(self._answering(method))

    def _answering(self, method: str) -> Callable[[bytes, grpc.ServicerContext], bytes]:
        return lambda payload, context: self._rank.answer(method, payload, context)


def _stop(server: grpc.Server) -> None:
    server.stop(0).wait(5)


@contextmanager
def replaying(
    transcript: Transcript, folder: Path, ranks: int | None = None, slow: int | None = None
) -> Iterator[list[ReplayedRank]]:
    """Its ranks, or the first of them; fails at the end where a call was not as recorded.

    slow: the rank that waits before each answer; None: none does.
    """
    sockets = [folder / f"shard-{rank}" for rank in range(ranks or transcript.num_shard)]
    replayed = [
        ReplayedRank(transcript, rank, sockets, _SLOW_S if rank == slow else 0.0)
        for rank in range(len(sockets))
    ]
    with ExitStack() as stack:
        for rank in replayed:
            # One call at a time, as a shard answers.
            server = grpc.server(ThreadPoolExecutor(max_workers=1))
            server.add_generic_rpc_handlers((_Handler(rank),))
            server.add_insecure_port(f"unix:{sockets[rank.rank]}")
            server.start()
            stack.callback(_stop, server)
        yield replayed
    assert [stray for rank in replayed for stray in rank.strays] == []

"""The embedded server, asked what real shards were asked, answers as they did.

Times, tokens and texts are its own. Every other difference is listed with its reason; one that is
not listed fails, and so does one that is listed and no longer there.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc
import pytest
from google.protobuf.json_format import MessageToDict

from tests.server.configs import PADDED, engine_config, server_config
from tests.server.ranks import RankProcess, served
from tests.server.router.http_comparison import differences
from tests.transcripts.grpc_replay import VERSIONS, Call, Transcript, transcripts

TOKENS = {
    "the server answers a question about time": 14,
    "a model reads many small words in one long line": 23,
    "it counts tokens and writes them down again": 20,
}
"""Of the recorded model's tokenizer, as its rooms tell; no other prompt is longer than 23."""


@dataclass(frozen=True, slots=True)
class Found:
    """A difference. field: where in the reply, or "status" or "details"."""

    transcript: Transcript
    method: str
    field: str
    recorded: Any
    answered: Any


@dataclass(frozen=True, slots=True)
class Accepted:
    """A difference that may be. name: of the transcript."""

    name: str
    method: str
    field: str
    reason: str

    def covers(self, found: Found) -> bool:
        """Whether it is this one."""
        where = (found.transcript.name, found.method, found.field)
        return where == (self.name, self.method, self.field)


_NO_DEVICE = "the engine computes on no device, and float16 is its default"
ACCEPTED = (
    *(
        Accepted(name, "Info", field, _NO_DEVICE)
        for name in ("info", "error_wrong_proto", "fatal_size_mismatch")
        for field in ("dtype", "device_type")
    ),
    Accepted(
        "too_long_prompt",
        "Prefill",
        "status",
        "the simulated engine has no table of positions that a prompt could be too long for",
    ),
    Accepted(
        "one_rank_only",
        "Prefill",
        "status",
        "ranks of the simulated engine do not wait for each other",
    ),
)


Answer: TypeAlias = tuple[grpc.StatusCode, str, bytes | None]
"""Status, its details, and the reply where there is one."""

_TOLD_BY_THE_SERVER = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNIMPLEMENTED)
"""Of any other status gRPC's client makes the details."""


def ask(ranks: Sequence[RankProcess], calls: Sequence[Call]) -> list[Answer]:
    """One round at the same time, with prompts of the recorded lengths."""
    futures = [
        ranks[call.rank]
        .channel.unary_unary(call.path, None, None)
        .future(_reworded(call), timeout=20)
        for call in calls
    ]
    return [
        (f.code(), f.details() or "", f.result() if f.code() is grpc.StatusCode.OK else None)
        for f in futures
    ]


@contextmanager
def embedded(version: str, num_shard: int) -> Iterator[Sequence[RankProcess]]:
    """The simulated engine on a padded model."""
    major, minor, patch = (int(part) for part in version.split("."))
    engine = engine_config(PADDED, num_shard=num_shard)
    with (
        tempfile.TemporaryDirectory(prefix="tgi") as folder,
        served(server_config((major, minor, patch), f"{folder}/s", engine)) as ranks,
    ):
        yield ranks


def _reworded(call: Call) -> bytes:
    """The request with prompts that are as long by words as the recorded ones are by tokens."""
    if call.method not in ("Prefill", "Warmup"):
        return call.request
    request = call.message("Request", call.request)
    for asked in request.batch.requests:
        words = " ".join(["a"] * min(TOKENS.get(asked.inputs, 14), asked.truncate or 14))
        asked.inputs = words
        if call.package == "generate.v3":
            for chunk in asked.input_chunks.chunks:
                chunk.text = words
    payload: bytes = request.SerializeToString()
    return payload


def comparable(call: Call, payload: bytes) -> Any:
    """A reply as nested dicts without what is a server's own."""
    message = call.message("Response", payload)
    return _without(MessageToDict(message, preserving_proto_field_name=True))


def _without(said: Any) -> Any:
    if isinstance(said, list):
        return [_without(value) for value in said]
    if not isinstance(said, dict):
        return said
    kept = {}
    for name, value in said.items():
        if name.endswith("_ns"):
            kept[name] = "a time"
        elif name in ("ids", "logprobs", "texts", "is_special", "urls"):
            kept[name] = f"{len(value)} of them"
        elif name not in ("text", "token_id", "token_logprob", "token_text", "token_is_special"):
            kept[name] = _without(value)
    return kept


def compared(
    transcript: Transcript, calls: Sequence[Call], answers: Sequence[Answer]
) -> Iterator[Found]:
    """Where one round of answers is not the recorded one."""
    for call, (code, details, payload) in zip(calls, answers, strict=True):
        if code is not call.status:
            yield Found(transcript, call.method, "status", call.status.name, code.name)
        elif call.reply is not None and payload is not None:
            both = comparable(call, call.reply), comparable(call, payload)
            for field, recorded, answered in differences(*both):
                yield Found(transcript, call.method, field, recorded, answered)
        elif code in _TOLD_BY_THE_SERVER and call.details != details:
            yield Found(transcript, call.method, "details", call.details, details)


def check(found: Sequence[Found], accepted: Sequence[Accepted]) -> None:
    """Every difference is listed, and every listed one is there."""
    assert [f for f in found if not any(a.covers(f) for a in accepted)] == []
    assert [a for a in accepted if not any(a.covers(f) for f in found)] == []


@pytest.mark.parametrize("num_shard", [1, 2])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_calls_are_answered_the_same(version: str, num_shard: int) -> None:
    played = [
        transcript
        for transcript in transcripts()
        if (transcript.version, transcript.num_shard) == (version, num_shard)
        and not transcript.name.startswith("fatal_")
    ]
    with embedded(version, num_shard) as ranks:
        found = [
            difference
            for transcript in played
            for calls in transcript.rounds()
            for difference in compared(transcript, calls, ask(ranks, calls))
        ]
    names = {transcript.name for transcript in played}
    check(found, [accepted for accepted in ACCEPTED if accepted.name in names])


@pytest.mark.parametrize("transcript", transcripts("fatal_*"), ids=str)
def test_a_fatal_call_is_answered_the_same_and_so_is_what_follows(transcript: Transcript) -> None:
    """Before 2.0 the shard lives on. From 2.4.0 on it tells why and is gone soon after; whether it
    answers once more in between is a race, which was recorded with either end."""
    prefill, at_once, *later = transcript.rounds()
    dies = any(call.status is grpc.StatusCode.UNAVAILABLE for call in later[0])
    with embedded(transcript.version, transcript.num_shard) as ranks:
        found = list(compared(transcript, prefill, ask(ranks, prefill)))
        if dies:
            assert [rank.process.wait(10) for rank in ranks] == [1] * len(prefill)
        else:
            found += compared(transcript, at_once, ask(ranks, at_once))
        for calls in later:
            found += compared(transcript, calls, ask(ranks, calls))
    check(found, [a for a in ACCEPTED if a.name == transcript.name and not dies])

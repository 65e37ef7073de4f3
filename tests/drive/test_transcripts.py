"""What real shards of TGI answered, read by our own client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.drive.test_shard import TRIAL, Recorded, prompts
from tests.transcripts.grpc_replay import Call, ReplayedRank, Transcript, replaying, transcripts
from tgi_bench.drive.ranks import RankError, Ranks
from tgi_bench.drive.shard import drive
from tgi_bench.drive.shares import Shares, answers_of
from tgi_bench.observation import Outcome, RankTiming, TrialEnd
from tgi_bench.plan.plan import Sampling
from tgi_bench.wire import codec
from tgi_bench.wire import messages as m
from tgi_bench.wire.messages import Protocol

TIMEOUT_S = 20.0
OUTCOMES = {
    grpc.StatusCode.INTERNAL: Outcome.FAILED,
    grpc.StatusCode.CANCELLED: Outcome.SHARD_DIED,
    grpc.StatusCode.UNAVAILABLE: Outcome.SHARD_DIED,
    grpc.StatusCode.DEADLINE_EXCEEDED: Outcome.TIMEOUT,
}
STATIC = transcripts("batch_*")
SLOW = [t for t in transcripts("batch_3") if t.num_shard == 2]
SAMPLED = Sampling(True, 0.9, 10, 0.9, None, None, False)


def as_said(reply: m.StepReply, protocol: Protocol) -> dict[str, Any]:
    """A reply as the transcripts' JSON has it: zero is left out, 64 bits are text."""
    said: dict[str, Any] = {}
    if reply.generations:
        said["generations"] = [generation_said(g, protocol) for g in reply.generations]
    if reply.cached is not None:
        cached = reply.cached
        said["batch"] = {
            "id": str(cached.id),
            "request_ids": [str(request_id) for request_id in cached.request_ids],
            "size": cached.size,
            "max_tokens": cached.max_tokens,
        }
        if cached.current_tokens is not None:
            said["batch"]["current_tokens"] = cached.current_tokens
    if (durations := reply.durations) is not None:
        said["forward_ns"] = str(durations.forward_ns)
        said["decode_ns"] = str(durations.decode_ns)
        said["total_ns"] = str(durations.total_ns)
        if durations.concat_ns is not None:
            said["concat_ns"] = str(durations.concat_ns)
    return said


def generation_said(generation: m.Generation, protocol: Protocol) -> dict[str, Any]:
    said: dict[str, Any] = {}
    if generation.request_id:
        said["request_id"] = str(generation.request_id)
    tokens = generation.tokens
    if protocol is Protocol.V1:
        (token,) = tokens
        said |= {"token_id": token.id, "token_logprob": near(token.logprob)}
        said |= {"token_text": token.text, "token_is_special": token.special}
        said = {name: value for name, value in said.items() if value not in (0, "", False)}
    else:
        said["tokens"] = {
            "ids": [token.id for token in tokens],
            "logprobs": [near(token.logprob) for token in tokens],
            "texts": [token.text for token in tokens],
            "is_special": [token.special for token in tokens],
        }
    if (text := generation.generated_text) is not None:
        ended: dict[str, Any] = {"text": text.text} if text.text else {}
        said["generated_text"] = {**ended, "generated_tokens": text.generated_tokens}
        if text.finish_reason is not m.FinishReason.LENGTH:
            said["generated_text"]["finish_reason"] = text.finish_reason.name
        if text.seed is not None:
            said["generated_text"]["seed"] = str(text.seed)
    return said


def words(details: str) -> str:
    """On one line."""
    return " ".join(details.split())


def near(value: float) -> Any:
    """The JSON has 32 bits' worth of digits."""
    return pytest.approx(value, rel=1e-6)


def step(ranks: Ranks, method: str, request: bytes, timeout_s: float) -> list[m.StepReply]:
    call = ranks.prefill if method == "Prefill" else ranks.decode
    reply = call(request, timeout_s)
    return [codec.decode_step_reply(ranks.protocol, payload) for payload in reply.payloads]


def raw(rank: ReplayedRank, call: Call) -> tuple[grpc.StatusCode, str, bytes | None]:
    """What our client never asks (Warmup, FilterBatch, ClearCache of all) and other versions."""
    with grpc.insecure_channel(f"unix:{rank.sockets[rank.rank]}") as channel:
        done = channel.unary_unary(call.path, None, None).future(call.request, timeout=TIMEOUT_S)
        code = done.code()
        return code, done.details() or "", done.result() if code is grpc.StatusCode.OK else None


def read_round(ranks: Ranks, replayed: Sequence[ReplayedRank], calls: Sequence[Call]) -> None:
    """Make the calls again and compare what is read with what was recorded."""
    method, request, failed = (
        calls[0].method,
        calls[0].request,
        [c for c in calls if c.said is None],
    )
    if calls[0].package != ranks.protocol or method in ("Warmup", "FilterBatch", "ClearCache"):
        for rank, call in zip(replayed, calls, strict=True):
            assert raw(rank, call) == (call.status, call.details, call.reply)
    elif method == "Health":
        assert ranks.answer(TIMEOUT_S) is not bool(failed)
    elif method == "Info":
        # Of a server that has died it is not asked again.
        if not failed:
            assert [codec.encode_info(ranks.protocol, info) for info in ranks.infos] == [
                call.reply for call in calls
            ]
    elif method in ("Prefill", "Decode") and failed:
        timeout_s = 0.2 if failed[0].status is grpc.StatusCode.DEADLINE_EXCEEDED else TIMEOUT_S
        with pytest.raises(RankError) as caught:
            step(ranks, method, request, timeout_s)
        assert caught.value.outcome is OUTCOMES[failed[0].status]
        if caught.value.outcome is Outcome.FAILED:
            assert words(failed[0].details) in str(caught.value)
    elif method in ("Prefill", "Decode"):
        replies = step(ranks, method, request, TIMEOUT_S)
        assert [as_said(r, ranks.protocol) for r in replies] == [call.said for call in calls]
    else:
        assert method == "ServiceDiscovery"
        assert len(calls[0].said["urls"]) == len(ranks)


@pytest.mark.parametrize("transcript", transcripts(), ids=str)
def test_every_recorded_answer_is_read_right(folder: Path, transcript: Transcript) -> None:
    rounds = transcript.rounds()
    with (
        replaying(transcript, folder, ranks=len(rounds[0])) as replayed,
        Ranks.connect(replayed[0].sockets[0]) as ranks,
    ):
        assert (ranks.protocol, len(ranks)) == (transcript.package, len(replayed))
        for calls in rounds:
            read_round(ranks, replayed, calls)


def timing(call: Call) -> RankTiming:
    """What is to be observed of one rank's recorded reply."""
    times = [call.said.get(name) for name in ("forward_ns", "decode_ns", "total_ns")]
    forward_ns, decode_ns, total_ns = [None if ns is None else int(ns) for ns in times]
    requests = len(call.said.get("generations", ()))
    return RankTiming(call.rank, forward_ns, decode_ns, total_ns, requests)


@pytest.mark.parametrize(
    ("transcript", "slow"),
    [(t, None) for t in STATIC] + [(t, rank) for t in SLOW for rank in range(t.num_shard)],
    ids=str,
)
def test_a_static_batch(folder: Path, transcript: Transcript, slow: int | None) -> None:
    """Through drive: every step whole, whichever rank answered for which request, and when."""
    rounds = transcript.rounds()
    asked = rounds[0][0].message("Request", rounds[0][0].request).batch
    trial = replace(
        TRIAL,
        batch_size=asked.size,
        sequence_length=asked.requests[0].truncate,
        decode_length=asked.requests[0].stopping_parameters.max_new_tokens,
        sampling=SAMPLED if asked.requests[0].parameters.do_sample else TRIAL.sampling,
        warmups=0,
        runs=1,
    )
    recorded = Recorded()
    with (
        replaying(transcript, folder, slow=slow) as replayed,
        Ranks.connect(replayed[0].sockets[0]) as ranks,
    ):
        end = drive(ranks, trial, prompts(trial), None, recorded)
    assert end == TrialEnd(Outcome.OK, "")
    assert len(recorded.steps) == len(rounds) == trial.decode_length
    for observed, calls in zip(recorded.steps, rounds, strict=True):
        assert observed.new_tokens == asked.size
        assert observed.ranks == tuple(map(timing, calls))
    # 14 tokens in the first prompt, 23 in the longest of the others, all padded to that. A batch
    # that ends with its prefill tells no room.
    padded = 14 if asked.size == 1 else 23 * asked.size
    assert recorded.steps[0].prompt_tokens == (None if trial.decode_length == 1 else padded)


@pytest.mark.parametrize("transcript", transcripts("mixed_lengths"), ids=str)
def test_requests_that_ended_are_no_more_counted(folder: Path, transcript: Transcript) -> None:
    """2, 5 and 8 tokens were asked for; a padded class goes on with those that ended."""
    shares = Shares(range(3))
    with (
        replaying(transcript, folder) as replayed,
        Ranks.connect(replayed[0].sockets[0]) as ranks,
    ):
        joined = [
            shares.join([answers_of(r) for r in step(ranks, call.method, call.request, TIMEOUT_S)])
            for call, *_ in transcript.rounds()
        ]
    assert [one.fault for one in joined] == [None] * 8
    assert [one.new_tokens for one in joined] == [3, 3, 2, 2, 2, 1, 1, 1]


@pytest.mark.parametrize("transcript", transcripts("fatal_*"), ids=str)
def test_a_fatal_step_ends_the_trial_in_the_shard_s_own_words(
    folder: Path, transcript: Transcript
) -> None:
    prefill, *_ = transcript.rounds()
    asked = prefill[0].message("Request", prefill[0].request).batch
    trial = replace(TRIAL, batch_size=len(asked.requests), warmups=0, runs=1)
    recorded = Recorded()
    with (
        replaying(transcript, folder) as replayed,
        Ranks.connect(replayed[0].sockets[0]) as ranks,
    ):
        end = drive(ranks, trial, prompts(trial), None, recorded)
        alive = [ranks.answer(TIMEOUT_S) for _ in range(2)]
    assert end.outcome is Outcome.FAILED
    assert words(prefill[0].details) in end.reason
    (failed,) = recorded.steps
    where = f"prefill of batch size {trial.batch_size}: "
    assert (end.outcome, end.reason) == (failed.outcome, f"{where}{failed.reason}")
    # Before 2.0 a shard survives; later it may answer once more, and is gone 1.5 s later.
    assert alive[1] is (transcript.version == "0.9.4")

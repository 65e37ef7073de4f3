"""Connecting to all ranks, and what a call to all of them makes of their answers; a step's, joined
over ranks by hand."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from tests.drive.fake_shard import OUT_OF_MEMORY, Die, Fail, Hang, Script, serving
from tgi_bench.drive.ranks import RankError, Ranks
from tgi_bench.drive.shares import Answer, Joined, Shares
from tgi_bench.errors import StepError
from tgi_bench.observation import Outcome, ShardFacts
from tgi_bench.wire import codec
from tgi_bench.wire import messages as m
from tgi_bench.wire.messages import Protocol


def one(*ids: int, tokens: int = 1, ends: bool = False) -> list[Answer]:
    return [(request_id, tokens, ends) for request_id in ids]


@pytest.mark.parametrize(
    "answered",
    [
        [one(0, 1, 2, 3)],
        [one(0, 2), one(1, 3)],
        [one(3), one(0), one(2, 1)],
        [one(), one(), one(0, 1, 2, 3)],
    ],
    ids=["one rank", "by place", "any share", "one of three"],
)
def test_any_share_will_do(answered: Sequence[Sequence[Answer]]) -> None:
    assert Shares(range(4)).join(answered) == Joined(4, None)


def test_ids_need_not_count_from_0() -> None:
    """By id modulo the ranks, as the flash class shares from 2.4.0 on: both are of rank 1."""
    assert Shares((5, 9)).join([one(), one(5, 9)]) == Joined(2, None)


def test_several_tokens_of_a_request_are_all_counted() -> None:
    assert Shares(range(2)).join([one(0, tokens=3), one(1, tokens=2)]) == Joined(5, None)


@pytest.mark.parametrize(
    ("answered", "new_tokens", "fault"),
    [
        (
            [one()],
            0,
            "no rank answered for requests 0, 1 (shard_rank 0 answered for no request)",
        ),
        (
            [one(0), one()],
            1,
            "no rank answered for request 1 (shard_rank 0 answered for request 0; shard_rank 1 "
            "answered for no request)",
        ),
        (
            [one(0, 0, 1)],
            2,
            "more than one answer for request 0: from shard_rank 0 and shard_rank 0",
        ),
        (
            [one(0, 1), one(0, 1)],
            2,
            "more than one answer for requests 0, 1: from shard_rank 0 and shard_rank 1",
        ),
        ([one(0), one(1, 4)], 2, "an answer for request 4, not of the batch, from shard_rank 1"),
        (
            [one(0), one(4, 0)],
            1,
            "no rank answered for request 1 (shard_rank 0 answered for request 0; shard_rank 1 "
            "answered for requests 4, 0); more than one answer for request 0: from shard_rank 0 "
            "and shard_rank 1; an answer for request 4, not of the batch, from shard_rank 1",
        ),
    ],
)
def test_missing_double_and_unknown_answers_are_told_apart(
    answered: Sequence[Sequence[Answer]], new_tokens: int, fault: str
) -> None:
    assert Shares(range(2)).join(answered) == Joined(new_tokens, fault)


def test_a_request_that_ended_is_not_missing() -> None:
    shares = Shares(range(2))
    assert shares.join([one(0, ends=True), one(1)]) == Joined(2, None)
    assert shares.join([one(), one(1)]) == Joined(1, None)
    assert shares.join([one(), one()]).fault == (
        "no rank answered for request 1 (shard_rank 0 answered for no request; shard_rank 1 "
        "answered for no request)"
    )


def test_tokens_after_its_end_are_none_of_a_request() -> None:
    """A padded class goes on with a request that nobody filters out."""
    shares = Shares(range(2))
    shares.join([one(0, ends=True), one(1)])
    assert shares.join([one(0, ends=True), one(1)]) == Joined(1, None)


def test_many_are_counted_and_not_listed() -> None:
    fault = Shares(range(20)).join([one()]).fault
    assert fault is not None
    assert fault.startswith("no rank answered for requests 0, 1, 2, 3, 4, 5, 6, 7 and 12 more (")


INTERNAL = grpc.StatusCode.INTERNAL
FIRST = (0, 0)


def prefill_payload(protocol: Protocol = Protocol.V3) -> bytes:
    request = m.Request(0, "a b", 2, m.TokenChoice(), m.Stopping(2))
    return codec.encode_prefill(protocol, m.Batch(1, (request,), 4, 1))


@pytest.mark.parametrize(
    ("protocol", "asked"),
    [(Protocol.V3, 0), (Protocol.V2, 1), (Protocol.V1, 2)],
)
def test_version_is_found_by_asking_the_newest_first(
    folder: Path, protocol: Protocol, asked: int
) -> None:
    with serving(folder, Script(protocol)) as (fake,), Ranks.connect(fake.socket) as ranks:
        assert ranks.protocol is protocol
        order = (Protocol.V3, Protocol.V2, Protocol.V1)
        in_vain = [other.method("ServiceDiscovery") for other in order[:asked]]
        assert fake.calls == [*in_vain, "ServiceDiscovery", "Info"]


def test_every_rank_is_found(folder: Path) -> None:
    with serving(folder, *[Script()] * 3) as fakes, Ranks.connect(fakes[0].socket) as ranks:
        assert len(ranks) == 3
        assert ranks.answer(5.0)
        assert [fake.calls[-1] for fake in fakes] == ["Health"] * 3


def test_no_socket(folder: Path) -> None:
    with pytest.raises(StepError, match=r"no shard answers on .*nobody") as caught:
        Ranks.connect(folder / "nobody", timeout_s=2.0)
    assert caught.value.outcome is Outcome.SHARD_DIED


def test_a_server_of_no_known_version(folder: Path) -> None:
    server = grpc.server(ThreadPoolExecutor(max_workers=1))
    server.add_insecure_port(f"unix:{folder / 'other'}")
    server.start()
    try:
        with pytest.raises(StepError, match=r"none of generate\.v3, v2 and v1") as caught:
            Ranks.connect(folder / "other", timeout_s=5.0)
    finally:
        server.stop(0).wait(5)
    assert caught.value.outcome is Outcome.FAILED


def test_a_server_that_names_no_ranks(folder: Path) -> None:
    with serving(folder, Script()) as (fake,):
        fake.urls = ()
        with pytest.raises(StepError, match="names no ranks"):
            Ranks.connect(fake.socket)


@pytest.mark.parametrize("named", ["first", "last"])
def test_urls_with_and_without_a_scheme(folder: Path, named: str) -> None:
    with serving(folder, Script()) as (fake,):
        fake.urls = (f"unix://{fake.socket}" if named == "first" else str(fake.socket),)
        with Ranks.connect(fake.socket) as ranks:
            assert ranks.answer(5.0)


def test_the_slowest_rank_decides_and_replies_keep_their_ranks(folder: Path) -> None:
    scripts = (Script(delay_s=0.08), Script(), Script(delay_s=0.02))
    with serving(folder, *scripts) as fakes, Ranks.connect(fakes[0].socket) as ranks:
        reply = ranks.prefill(prefill_payload(), 5.0)
    assert reply.ended_ns - reply.sent_ns >= 80_000_000
    totals = [codec.decode_step_reply(Protocol.V3, p).durations for p in reply.payloads]
    assert [d.total_ns for d in totals if d is not None] == [130, 131, 132]


def test_ranks_are_called_at_once(folder: Path) -> None:
    scripts = [Script(delay_s=0.2)] * 4
    with serving(folder, *scripts) as fakes, Ranks.connect(fakes[0].socket) as ranks:
        reply = ranks.prefill(prefill_payload(), 5.0)
    # One after the other would take 0.8 s.
    assert reply.ended_ns - reply.sent_ns < 700_000_000


def test_out_of_memory_on_one_rank_and_the_others_are_cancelled(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tgi_bench.drive.ranks._GRACE_S", 0.1)
    hang, oom = Script(faults=((FIRST, Hang()),)), Fail(INTERNAL, OUT_OF_MEMORY)
    scripts = (hang, Script(faults=((FIRST, oom),)), hang)
    with serving(folder, *scripts) as fakes, Ranks.connect(fakes[0].socket) as ranks:
        with pytest.raises(RankError) as caught:
            ranks.prefill(prefill_payload(), 30.0)
        assert fakes[0].abandoned.wait(5)
        assert fakes[2].abandoned.wait(5)
    assert caught.value.outcome is Outcome.OUT_OF_MEMORY
    assert str(caught.value) == f"shard_rank 1: {OUT_OF_MEMORY}"
    assert caught.value.sent_ns <= caught.value.ended_ns


def test_out_of_memory_says_more_than_a_rank_that_ended_before_it(folder: Path) -> None:
    scripts = (
        Script(faults=((FIRST, Fail(INTERNAL, "NCCL error")),)),
        Script(faults=((FIRST, Fail(INTERNAL, OUT_OF_MEMORY, after_s=0.1)),)),
    )
    with (
        serving(folder, *scripts) as fakes,
        Ranks.connect(fakes[0].socket) as ranks,
        pytest.raises(RankError) as caught,
    ):
        ranks.prefill(prefill_payload(), 30.0)
    assert caught.value.outcome is Outcome.OUT_OF_MEMORY
    assert str(caught.value).startswith("shard_rank 1: ")


GLOO = (
    "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error "
    "[127.0.0.1]:28048: Connection reset by peer. This is typically caused by a remote worker "
    "hanging or bugs in the application."
)
"""What rank 1 of TGI 3.3.7 answered when rank 0 was killed: see its launcher's transcript."""


def test_a_rank_that_is_gone_says_more_than_one_that_lost_it(folder: Path) -> None:
    scripts = (
        Script(faults=((FIRST, Fail(grpc.StatusCode.UNAVAILABLE, "Socket closed", after_s=0.1)),)),
        Script(faults=((FIRST, Fail(INTERNAL, GLOO)),)),
    )
    with (
        serving(folder, *scripts) as fakes,
        Ranks.connect(fakes[0].socket) as ranks,
        pytest.raises(RankError) as caught,
    ):
        ranks.prefill(prefill_payload(), 30.0)
    assert caught.value.outcome is Outcome.SHARD_DIED
    assert str(caught.value) == "shard_rank 0: UNAVAILABLE: Socket closed"


@pytest.mark.parametrize("failing", [0, 1])
def test_a_rank_s_own_error_is_told_and_not_our_cancelling_of_another(
    folder: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    monkeypatch.setattr("tgi_bench.drive.ranks._GRACE_S", 0.1)
    scripts = [Script(faults=((FIRST, Hang()),))] * 2
    scripts[failing] = Script(faults=((FIRST, Fail(INTERNAL, "bad request")),))
    with (
        serving(folder, *scripts) as fakes,
        Ranks.connect(fakes[0].socket) as ranks,
        pytest.raises(RankError) as caught,
    ):
        ranks.prefill(prefill_payload(), 30.0)
    assert caught.value.outcome is Outcome.FAILED
    assert str(caught.value) == f"shard_rank {failing}: INTERNAL: bad request"


def test_the_first_rank_that_failed_is_told(folder: Path) -> None:
    scripts = (
        Script(faults=((FIRST, Fail(INTERNAL, "a consequence", after_s=0.1)),)),
        Script(faults=((FIRST, Fail(INTERNAL, "the cause")),)),
    )
    with (
        serving(folder, *scripts) as fakes,
        Ranks.connect(fakes[0].socket) as ranks,
        pytest.raises(RankError, match="shard_rank 1: INTERNAL: the cause"),
    ):
        ranks.prefill(prefill_payload(), 30.0)


@pytest.mark.parametrize("count", [1, 2])
def test_a_shard_that_dies(folder: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr("tgi_bench.drive.ranks._GRACE_S", 0.1)
    scripts = [Script(faults=((FIRST, Die()),)), Script(faults=((FIRST, Hang()),))][:count]
    with serving(folder, *scripts) as fakes, Ranks.connect(fakes[0].socket) as ranks:
        with pytest.raises(RankError) as caught:
            ranks.prefill(prefill_payload(), 30.0)
        assert not ranks.answer(1.0)
    assert caught.value.outcome is Outcome.SHARD_DIED


@pytest.mark.parametrize("count", [1, 2])
def test_no_answer_within_the_time_allowed(folder: Path, count: int) -> None:
    scripts = [Script(faults=((FIRST, Hang()),))] * count
    with (
        serving(folder, *scripts) as fakes,
        Ranks.connect(fakes[0].socket) as ranks,
        pytest.raises(RankError, match="step_timeout_s") as caught,
    ):
        ranks.prefill(prefill_payload(), 0.2)
    assert caught.value.outcome is Outcome.TIMEOUT
    assert caught.value.ended_ns - caught.value.sent_ns >= 190_000_000


@pytest.mark.parametrize(
    ("code", "details", "outcome", "reason"),
    [
        (
            INTERNAL,
            "CUDA out of memory.\n  Tried to allocate 1.00 GiB",
            Outcome.OUT_OF_MEMORY,
            "CUDA out of memory. Tried to allocate 1.00 GiB",
        ),
        (
            INTERNAL,
            "HIP out of memory. Tried to allocate 1.00 GiB",
            Outcome.OUT_OF_MEMORY,
            "HIP out of memory. Tried to allocate 1.00 GiB",
        ),
        (
            INTERNAL,
            "Out of available cache blocks: asked 9, only 4 free blocks",
            Outcome.OUT_OF_MEMORY,
            "Out of available cache blocks: asked 9, only 4 free blocks",
        ),
        (
            INTERNAL,
            "Batch ID 999 not found in cache.",
            Outcome.FAILED,
            "INTERNAL: Batch ID 999 not found in cache.",
        ),
        (
            grpc.StatusCode.UNAVAILABLE,
            "Socket closed",
            Outcome.SHARD_DIED,
            "UNAVAILABLE: Socket closed",
        ),
        (grpc.StatusCode.CANCELLED, "", Outcome.SHARD_DIED, "CANCELLED: no details"),
        (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "Received message larger than max",
            Outcome.FAILED,
            "RESOURCE_EXHAUSTED: Received message larger than max",
        ),
    ],
)
def test_outcomes(
    folder: Path, code: grpc.StatusCode, details: str, outcome: Outcome, reason: str
) -> None:
    script = Script(faults=((FIRST, Fail(code, details)),))
    with (
        serving(folder, script) as (fake,),
        Ranks.connect(fake.socket) as ranks,
        pytest.raises(RankError) as caught,
    ):
        ranks.prefill(prefill_payload(), 5.0)
    assert (caught.value.outcome, str(caught.value)) == (outcome, reason)
    assert gc.isenabled()


def test_clear_cache_clears_one_batch_on_every_rank(folder: Path) -> None:
    with serving(folder, Script(), Script()) as fakes, Ranks.connect(fakes[0].socket) as ranks:
        ranks.clear_cache(5, 5.0)
    assert [fake.cleared for fake in fakes] == [[5], [5]]


@pytest.mark.parametrize("protocol", list(Protocol))
def test_every_rank_says_what_it_is(folder: Path, protocol: Protocol) -> None:
    said = [
        ShardFacts(protocol.value, ("cuda", "cpu"), ("torch.float16", "torch.float32")),
        ShardFacts(protocol.value, ("cuda",), ("torch.float16",)),
    ]
    for facts in said:
        scripts = [
            Script(protocol, device_type=device, dtype=dtype)
            for device, dtype in zip(facts.device_types, facts.dtypes, strict=True)
        ]
        with serving(folder, *scripts) as fakes, Ranks.connect(fakes[0].socket) as ranks:
            assert ranks.facts == facts
            assert ranks.facts.ranks == len(ranks)


@pytest.mark.parametrize(("said", "seen"), [(None, None), (16, 16), (1, 1)])
def test_block_sizes(folder: Path, said: int | None, seen: int | None) -> None:
    scripts = (Script(block_size=said), Script(block_size=256))
    with serving(folder, *scripts) as fakes, Ranks.connect(fakes[0].socket) as ranks:
        assert [info.block_size for info in ranks.infos] == [seen, 256]


def test_a_rank_whose_info_does_not_parse(folder: Path) -> None:
    scripts = (Script(), Script(info=b"\xff\xff"))
    with (
        serving(folder, *scripts) as fakes,
        pytest.raises(RankError, match="shard_rank 1: its Info does not parse"),
    ):
        Ranks.connect(fakes[0].socket)


def test_ranks_that_have_answered_already_are_not_waited_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tgi_bench.drive.ranks._GRACE_S", 20.0)
    late = Script(faults=((FIRST, Fail(INTERNAL, "late", after_s=0.1)),))
    begun = time.monotonic()
    with (
        serving(folder, Script(), late, Script()) as fakes,
        Ranks.connect(fakes[0].socket) as ranks,
        pytest.raises(RankError, match="shard_rank 1: INTERNAL: late"),
    ):
        ranks.prefill(prefill_payload(), 30.0)
    assert time.monotonic() - begun < 15

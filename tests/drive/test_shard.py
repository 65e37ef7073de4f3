"""Static batches against ranks that do what a script says."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from tests.drive.fake_shard import (
    OUT_OF_MEMORY,
    Die,
    Fail,
    FakeRank,
    Garbage,
    Hang,
    Script,
    serving,
)
from tgi_bench.drive.ranks import HEALTH_CALLS, Ranks
from tgi_bench.drive.server_host import CoreWait
from tgi_bench.drive.shard import Room, drive, needed_tokens
from tgi_bench.observation import Outcome, Phase, RankTiming, StepObservation, TrialEnd
from tgi_bench.plan.plan import BatchTrial, Sampling
from tgi_bench.plan.prompts import prompts_of
from tgi_bench.wire.messages import Protocol, TokenChoice

GREEDY = Sampling(False, None, None, None, None, None, False)
TRIAL = BatchTrial(
    trial_id="default/s10-d4-b3",
    deployment_id="default",
    batch_size=3,
    sequence_length=10,
    decode_length=4,
    runs=2,
    warmups=1,
    sampling=GREEDY,
    step_timeout_s=20.0,
    prompt_seed=0,
)
INTERNAL = grpc.StatusCode.INTERNAL
NOTHING = (None, None, None)


class Recorded:
    """Takes what is recorded, one entry for each run."""

    def __init__(self) -> None:
        self.runs: list[tuple[StepObservation, ...]] = []

    def __call__(self, observations: tuple[StepObservation, ...]) -> None:
        self.runs.append(observations)

    @property
    def steps(self) -> list[StepObservation]:
        return [step for run in self.runs for step in run]


def prompts(trial: BatchTrial) -> tuple[str, ...]:
    return prompts_of(trial, "r")


def driven(
    fake: FakeRank, trial: BatchTrial = TRIAL, room: Room | None = None
) -> tuple[TrialEnd, Recorded]:
    recorded = Recorded()
    with Ranks.connect(fake.socket) as ranks:
        end = drive(ranks, trial, prompts(trial), room, recorded)
    return end, recorded


def failing(run: int, step: int, fault: Fail | Hang | Die | Garbage) -> Script:
    return Script(faults=(((run, step), fault),))


@pytest.mark.parametrize("protocol", list(Protocol))
def test_every_step_is_observed(folder: Path, protocol: Protocol) -> None:
    with serving(folder, Script(protocol)) as (fake,):
        end, recorded = driven(fake)
    assert end == TrialEnd(Outcome.OK, "")
    assert [
        (o.run_index, o.warmup, o.phase, o.step_index, o.new_tokens, o.outcome, o.reason)
        for o in recorded.steps
    ] == [
        (run, run == 0, phase, step, 3, Outcome.OK, "")
        for run in range(3)
        for step, phase in enumerate([Phase.PREFILL] + [Phase.DECODE] * 3)
    ]
    assert [len(run) for run in recorded.runs] == [4, 4, 4]
    assert fake.cleared == []
    assert fake.held == {}


@pytest.mark.parametrize("protocol", list(Protocol))
def test_prompt_tokens_from_the_room_of_a_padded_batch(folder: Path, protocol: Protocol) -> None:
    with serving(folder, Script(protocol=protocol, padded=True)) as (fake,):
        _, recorded = driven(fake)
    assert [o.prompt_tokens for o in recorded.runs[0]] == [30, None, None, None]


@pytest.mark.parametrize("counts", [True, False])
def test_a_flash_batch_does_not_tell_its_prompt_tokens(folder: Path, counts: bool) -> None:
    """Its room is whole blocks, and current_tokens are a token a request once prompts are in."""
    with serving(folder, Script(counts=counts)) as (fake,):
        _, recorded = driven(fake)
    assert {o.prompt_tokens for o in recorded.steps} == {None}


@pytest.mark.parametrize(
    ("protocol", "times", "expected"),
    [
        (Protocol.V3, True, (RankTiming(0, 100, 20, 130, 2), RankTiming(1, 101, 20, 131, 1))),
        (Protocol.V2, True, (RankTiming(0, 100, 20, 130, 2), RankTiming(1, 101, 20, 131, 1))),
        (Protocol.V2, False, (RankTiming(0, *NOTHING, 2), RankTiming(1, *NOTHING, 1))),
        (Protocol.V1, True, (RankTiming(0, *NOTHING, 2), RankTiming(1, *NOTHING, 1))),
    ],
)
def test_every_rank_s_own_times_and_share_are_kept(
    folder: Path, protocol: Protocol, times: bool, expected: tuple[RankTiming, ...]
) -> None:
    script = Script(protocol, times=times)
    with serving(folder, script, script) as (fake, _):
        _, recorded = driven(fake)
    assert {o.ranks for o in recorded.steps} == {expected}


@pytest.mark.parametrize("batch_size", [1, 2, 3, 8])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_step_is_what_all_ranks_answer_together(
    folder: Path, count: int, batch_size: int
) -> None:
    with serving(folder, *[Script()] * count) as fakes:
        end, recorded = driven(fakes[0], replace(TRIAL, batch_size=batch_size))
    assert end == TrialEnd(Outcome.OK, "")
    assert {o.new_tokens for o in recorded.steps} == {batch_size}
    shares = {tuple(rank.requests for rank in o.ranks) for o in recorded.steps}
    assert shares == {tuple(len(range(rank, batch_size, count)) for rank in range(count))}


@pytest.mark.parametrize("step", [0, 2])
@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (
            (0,),
            (1,),
            "no rank answered for request 2 (shard_rank 0 answered for request 0; shard_rank 1 "
            "answered for request 1)",
        ),
        ((0, 2), (1, 2), "more than one answer for request 2: from shard_rank 0 and shard_rank 1"),
        ((0, 2), (1, 7), "an answer for request 7, not of the batch, from shard_rank 1"),
    ],
)
def test_answers_that_are_not_those_of_the_batch_fail_the_step(
    folder: Path, step: int, first: tuple[int, ...], second: tuple[int, ...], reason: str
) -> None:
    scripts = (Script(answers=((step, first),)), Script(answers=((step, second),)))
    with serving(folder, *scripts) as fakes:
        end, recorded = driven(fakes[0])
    where = f"{f'decode step {step}' if step else 'prefill'} of batch size 3: "
    assert end == TrialEnd(Outcome.FAILED, f"{where}{reason}")
    assert [o.outcome for o in recorded.steps] == [Outcome.OK] * step + [Outcome.FAILED]
    failed = recorded.steps[-1]
    assert (failed.step_index, failed.reason) == (step, reason)
    assert [rank.requests for rank in failed.ranks] == [len(first), len(second)]
    assert all(fake.cleared == [fakes[0].prefills[0].id] for fake in fakes)


def test_the_slowest_rank_is_the_latency_of_each_step(folder: Path) -> None:
    with serving(folder, Script(), Script(delay_s=0.03)) as (fake, _):
        _, recorded = driven(fake)
    assert all(o.latency_ns >= 30_000_000 for o in recorded.steps)


def test_times_go_forward(folder: Path) -> None:
    with serving(folder, Script()) as (fake,):
        _, recorded = driven(fake)
    times = [time for o in recorded.steps for time in (o.sent_ns, o.ended_ns)]
    assert times == sorted(times)
    assert all(o.sent_ns < o.ended_ns for o in recorded.steps)


def test_health_is_asked_of_all_ranks_before_each_run_and_never_within_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CoreWait, "until_ns", lambda *_: 0)
    with serving(folder, Script(), Script()) as fakes:
        _, recorded = driven(fakes[0])
    for first, *others in recorded.runs:
        assert first.health_ns is not None
        assert first.health_ns > 0
        assert [step.health_ns for step in others] == [None] * 3
    for fake in fakes:
        asked = fake.calls[fake.calls.index("Info") + 1 :]
        assert asked == ([*["Health"] * HEALTH_CALLS, "Prefill", *["Decode"] * 3]) * 3


@pytest.mark.parametrize(
    ("waited_ns", "health_ns"), [(10**12, 0), (None, None)], ids=["starved", "nobody says"]
)
def test_what_the_client_waited_is_not_taken_for_the_server_s(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    waited_ns: int | None,
    health_ns: int | None,
) -> None:
    monkeypatch.setattr(CoreWait, "until_ns", lambda *_: waited_ns)
    with serving(folder, Script()) as (fake,):
        end, recorded = driven(fake)
    assert end.outcome is Outcome.OK
    assert {run[0].health_ns for run in recorded.runs} == {health_ns}


def test_a_server_without_health(folder: Path) -> None:
    """Before 0.7.0 there is none."""
    with serving(folder, Script(Protocol.V1, without=("Health",))) as (fake,):
        end, recorded = driven(fake)
    assert end.outcome is Outcome.OK
    assert {step.health_ns for step in recorded.steps} == {None}


def test_a_failed_prefill_has_its_health_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CoreWait, "until_ns", lambda *_: 10**12)
    with serving(folder, failing(0, 0, Fail(INTERNAL, "no"))) as (fake,):
        _, recorded = driven(fake)
    assert [step.health_ns for step in recorded.steps] == [0]


def test_what_is_sent(folder: Path) -> None:
    with serving(folder, Script(), Script()) as (fake, other):
        driven(fake)
    assert fake.prefills == other.prefills
    batch = fake.prefills[0]
    assert (batch.size, batch.max_tokens) == (3, 3 * 14)
    assert [request.id for request in batch.requests] == [0, 1, 2]
    assert tuple(request.text for request in batch.requests) == prompts(TRIAL)
    assert len({request.text.split()[0] for request in batch.requests}) == 3
    for request in batch.requests:
        assert request.truncate == TRIAL.sequence_length
        assert request.stopping.max_new_tokens == TRIAL.decode_length
        assert request.stopping.ignore_eos_token is True
        assert request.stopping.stop_sequences == ()
        assert request.choice == TokenChoice()
        assert request.prefill_logprobs is False


def test_batch_ids_are_random_and_high(folder: Path) -> None:
    with serving(folder, Script()) as (fake,):
        driven(fake)
        driven(fake)
    ids = [batch.id for batch in fake.prefills]
    assert len(set(ids)) == len(ids) == 6
    assert all(2**62 <= batch_id < 2**63 for batch_id in ids)


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (
            Sampling(True, 0.5, 4, 0.75, 0.25, 1.5, True),
            TokenChoice(0.5, 4, 0.75, 0.25, True, 0, 1.5, 0.0, True),
        ),
        (
            Sampling(True, 0.5, None, None, None, None, False),
            TokenChoice(temperature=0.5, do_sample=True),
        ),
        (GREEDY, TokenChoice()),
    ],
)
def test_sampling(folder: Path, sampling: Sampling, expected: TokenChoice) -> None:
    with serving(folder, Script()) as (fake,):
        driven(fake, replace(TRIAL, sampling=sampling))
    assert {request.choice for request in fake.prefills[0].requests} == {expected}


def test_decode_length_1_has_no_decode_step(folder: Path) -> None:
    with serving(folder, Script()) as (fake,):
        end, recorded = driven(fake, replace(TRIAL, decode_length=1))
    assert end.outcome is Outcome.OK
    assert [o.phase for o in recorded.steps] == [Phase.PREFILL] * 3
    assert "Decode" not in fake.calls


def test_no_warmups(folder: Path) -> None:
    with serving(folder, Script()) as (fake,):
        _, recorded = driven(fake, replace(TRIAL, warmups=0, runs=1))
    assert [(o.run_index, o.warmup) for o in recorded.steps] == [(0, False)] * 4


def test_out_of_memory_keeps_what_was_measured_and_the_failed_step(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tgi_bench.drive.ranks._GRACE_S", 0.1)
    oom = failing(1, 2, Fail(INTERNAL, OUT_OF_MEMORY))
    with serving(folder, failing(1, 2, Hang()), oom) as (fake, other):
        end, recorded = driven(fake)
    told = f"decode step 2 of batch size 3: shard_rank 1: {OUT_OF_MEMORY}"
    assert end == TrialEnd(Outcome.OUT_OF_MEMORY, told)
    assert [len(run) for run in recorded.runs] == [4, 3]
    *before, failed = recorded.runs[1]
    assert [o.outcome for o in before] == [Outcome.OK, Outcome.OK]
    assert (failed.phase, failed.step_index) == (Phase.DECODE, 2)
    assert (failed.outcome, failed.reason) == (end.outcome, f"shard_rank 1: {OUT_OF_MEMORY}")
    assert (failed.new_tokens, failed.prompt_tokens, failed.ranks) == (0, None, ())
    assert before[-1].ended_ns <= failed.sent_ns <= failed.ended_ns
    assert len(fake.prefills) == len(other.prefills) == 2


@pytest.mark.parametrize("step", [0, 1, 3])
def test_a_failed_step_clears_our_batch_and_no_other(folder: Path, step: int) -> None:
    with serving(folder, failing(0, step, Fail(INTERNAL, "no")), Script()) as (fake, other):
        end, _ = driven(fake)
    assert end.outcome is Outcome.FAILED
    assert fake.cleared == other.cleared == [fake.prefills[0].id]


def test_a_shard_that_dies_during_decode(folder: Path) -> None:
    with serving(folder, failing(2, 1, Die())) as (fake,):
        end, recorded = driven(fake)
    assert end.outcome is Outcome.SHARD_DIED
    assert [len(run) for run in recorded.runs] == [4, 4, 2]
    assert recorded.steps[-1].outcome is Outcome.SHARD_DIED
    reason = recorded.steps[-1].reason
    assert reason.startswith("UNAVAILABLE: ")
    assert end.reason == f"decode step 1 of batch size 3: {reason}"


@pytest.mark.parametrize("count", [1, 2])
def test_a_step_that_takes_too_long(folder: Path, count: int) -> None:
    scripts = [failing(0, 1, Hang())] * count
    with serving(folder, *scripts) as fakes:
        end, recorded = driven(fakes[0], replace(TRIAL, step_timeout_s=0.3))
        assert fakes[0].abandoned.wait(5)
        assert fakes[0].cleared == [fakes[0].prefills[0].id]
    assert end.outcome is Outcome.TIMEOUT
    assert "batches.step_timeout_s" in end.reason
    assert [o.outcome for o in recorded.steps] == [Outcome.OK, Outcome.TIMEOUT]
    assert recorded.steps[-1].latency_ns >= 290_000_000


def test_a_busy_shard_clears_our_batch_when_it_is_free(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tgi_bench.drive.shard._FORGET_TIMEOUT_S", 0.05)
    with serving(folder, Script(delay_s=0.5, workers=1)) as (fake,):
        with Ranks.connect(fake.socket) as ranks:
            trial = replace(TRIAL, step_timeout_s=0.1)
            end = drive(ranks, trial, prompts(trial), None, Recorded())
            assert (end.outcome, fake.cleared) == (Outcome.TIMEOUT, [])
            assert fake.cleared_one.wait(10)
        assert fake.cleared == [fake.prefills[0].id]
        assert fake.held == {}


@pytest.mark.parametrize(
    ("script", "made", "steps"),
    [
        (Script(extra_steps=-1), 9, 3),
        (Script(extra_steps=-3), 3, 1),
        (Script(extra_steps=2), 12, 4),
        (Script(tokens_per_step=2), 24, 4),
    ],
)
def test_too_few_and_too_many_tokens(folder: Path, script: Script, made: int, steps: int) -> None:
    with serving(folder, script) as (fake,):
        end, recorded = driven(fake)
    assert end.outcome is Outcome.FAILED
    assert end.reason == (f"the server made {made} tokens in {steps} steps where 12 were asked for")
    assert len(recorded.steps) == steps
    assert fake.held == {}


def test_several_tokens_in_a_step_are_counted(folder: Path) -> None:
    with serving(folder, Script(tokens_per_step=2, extra_steps=-2)) as (fake,):
        end, recorded = driven(fake)
    assert end.outcome is Outcome.OK
    assert [o.new_tokens for o in recorded.runs[0]] == [6, 6]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("step", [0, 1])
def test_a_reply_that_does_not_parse_ends_the_trial(folder: Path, step: int, count: int) -> None:
    scripts = [*[Script()] * (count - 1), failing(0, step, Garbage())]
    with serving(folder, *scripts) as fakes:
        end, recorded = driven(fakes[0])
    assert end.outcome is Outcome.FAILED
    assert f"shard_rank {count - 1}" in end.reason
    assert [o.outcome for o in recorded.steps] == [Outcome.OK] * step + [Outcome.FAILED]
    assert fakes[0].cleared == [fakes[0].prefills[0].id]


@pytest.mark.parametrize("fault", [Fail(INTERNAL, "no"), Garbage()])
def test_garbage_is_collected_again_after_a_failure(folder: Path, fault: Fail | Garbage) -> None:
    with serving(folder, failing(0, 0, fault)) as (fake,):
        driven(fake)
    assert gc.isenabled()


def test_no_garbage_collection_during_a_run_but_between_runs(folder: Path) -> None:
    seen = []
    with serving(folder, Script()) as (fake,), Ranks.connect(fake.socket) as ranks:
        prefill = ranks.prefill

        class Watched(Ranks):
            """The same ranks, noting whether a step may be interrupted by a collection."""

            def prefill(self, payload: bytes, timeout_s: float) -> object:  # type: ignore[override]
                seen.append(gc.isenabled())
                return prefill(payload, timeout_s)

        ranks.__class__ = Watched
        between: list[bool] = []
        drive(ranks, TRIAL, prompts(TRIAL), None, lambda _: between.append(gc.isenabled()))
    assert seen == [False] * 3
    assert between == [True] * 3


def test_an_interrupt_clears_our_batch_and_passes_through(folder: Path) -> None:
    with serving(folder, Script()) as (fake,), Ranks.connect(fake.socket) as ranks:

        class Interrupted(Ranks):
            """Ranks whose first Decode is interrupted."""

            def decode(self, payload: bytes, timeout_s: float) -> object:  # type: ignore[override]
                raise KeyboardInterrupt

        ranks.__class__ = Interrupted
        with pytest.raises(KeyboardInterrupt):
            drive(ranks, TRIAL, prompts(TRIAL), None, Recorded())
        assert fake.cleared == [fake.prefills[0].id]
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("batch", "sequence", "decode", "block", "expected"),
    [
        (1, 1024, 8, None, 1040),  # 1031 tokens are 65 blocks of 16
        (32, 1024, 8, 16, 33_280),
        (1, 1024, 8, 1, 1031),
        (2, 1024, 8, 256, 2560),  # 5 blocks each
        (1, 16, 1, 16, 16),  # the last new token is never written back
        (1, 16, 2, 16, 32),
        (4, 1, 1, 16, 64),
        (3, 10, 4, 16, 48),
    ],
)
def test_needed_tokens(
    batch: int, sequence: int, decode: int, block: int | None, expected: int
) -> None:
    trial = replace(TRIAL, batch_size=batch, sequence_length=sequence, decode_length=decode)
    assert needed_tokens(trial, block) == expected


@pytest.mark.parametrize(
    ("capacity", "block", "outcome"),
    [
        (48, None, Outcome.OK),
        (47, None, Outcome.REFUSED),
        (39, 1, Outcome.OK),
        (38, 1, Outcome.REFUSED),
        (0, 1, Outcome.REFUSED),
    ],
)
def test_a_batch_that_the_server_has_no_room_for_is_not_sent(
    folder: Path, capacity: int, block: int | None, outcome: Outcome
) -> None:
    with serving(folder, Script(block_size=block)) as (fake,):
        end, recorded = driven(fake, room=Room(capacity, "metric m"))
    assert end.outcome is outcome
    if outcome is Outcome.REFUSED:
        needed = 48 if block is None else 39
        assert end.reason == (
            f"needs {needed} tokens of KV cache; the server has room for {capacity} (metric m)"
        )
        assert fake.prefills == []
        assert recorded.runs == []

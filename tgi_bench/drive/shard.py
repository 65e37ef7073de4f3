"""Static batches over gRPC: prefill and decode steps, each timed by itself.

One run of a trial is one Prefill and then Decodes until the server holds the batch no
longer. Nothing is computed here; `analysis` makes figures of the observations.
"""

from __future__ import annotations

import gc
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

from google.protobuf.message import DecodeError

from tgi_bench.drive.ranks import RankError, RankReplies, Ranks
from tgi_bench.drive.shares import Answer, Shares, answers_of
from tgi_bench.errors import StepError
from tgi_bench.memory_evidence import out_of_memory
from tgi_bench.observation import Outcome, Phase, RankTiming, StepObservation, TrialEnd
from tgi_bench.plan.plan import BatchTrial, Sampling
from tgi_bench.wire import codec
from tgi_bench.wire import messages as m

Recorder = Callable[[tuple[StepObservation, ...]], None]
"""Takes the observations of one run, in order, after its last step."""

_FORGET_TIMEOUT_S = 5.0
_PAGED_BLOCK_TOKENS = 16  # of servers that do not say (before 2.4.0)


@dataclass(frozen=True, slots=True)
class Room:
    """What the server said it has room for. source: the line or metric that said so."""

    capacity_tokens: int
    source: str


def needed_tokens(trial: BatchTrial, block_tokens: int | None) -> int:
    """KV cache tokens that the trial takes up; block_tokens: None where the server does not say."""
    return trial.kv_tokens(block_tokens or _PAGED_BLOCK_TOKENS)


def drive(
    ranks: Ranks, trial: BatchTrial, prompts: Sequence[str], room: Room | None, record: Recorder
) -> TrialEnd:
    """Run the trial's warm-ups and runs; the first failed step ends it.

    prompts: one text for each request, of at least sequence_length tokens.
    room: None where the server did not say.
    """
    info = ranks.infos[0]
    if room is not None:
        needed = needed_tokens(trial, info.block_size)
        if needed > room.capacity_tokens:
            return TrialEnd(
                Outcome.REFUSED,
                f"needs {needed} tokens of KV cache; the server has room for "
                f"{room.capacity_tokens} ({room.source})",
            )
    for index in range(trial.warmups + trial.runs):
        observations: list[StepObservation] = []
        try:
            with _no_garbage_collection():
                health_ns = ranks.health_ns()
                run = _Run(index, index < trial.warmups, info.requires_padding, prompts, health_ns)
                _run(ranks, trial, run, observations)
        except StepError as error:
            record(tuple(observations))
            memory = out_of_memory(str(error), info.device_type)
            outcome = error.outcome if memory is None else memory
            return TrialEnd(outcome, f"{_where(trial, observations)}{error}")
        record(tuple(observations))
    return TrialEnd(Outcome.OK, "")


def _where(trial: BatchTrial, observations: Sequence[StepObservation]) -> str:
    """The step that failed, and a colon; "" where every step was answered well."""
    if not observations or observations[-1].outcome is Outcome.OK:
        return ""
    last = observations[-1]
    step = "prefill" if last.phase is Phase.PREFILL else f"decode step {last.step_index}"
    return f"{step} of batch size {trial.batch_size}: "


@dataclass(frozen=True, slots=True)
class _Run:
    """padded: the server pads a batch to its longest prompt. health_ns: just before it."""

    index: int
    warmup: bool
    padded: bool
    prompts: Sequence[str]
    health_ns: int | None


def _run(ranks: Ranks, trial: BatchTrial, run: _Run, observations: list[StepObservation]) -> None:
    """One Prefill and its Decodes; appends what was seen, the first failed step included.

    Steps after one whose answers were wrong are left out: the batch was no longer the asked one.
    """
    batch = _batch(trial, run.prompts)
    made: list[_Step] = []
    failure: RankError | None = None
    try:
        try:
            _make_steps(ranks, trial, batch, made)
        except RankError as error:
            failure = error
        # Only here, for between two steps every moment is the server's idle time.
        observations += _observed(trial, run, batch, made)
        if observations and observations[-1].outcome is not Outcome.OK:
            raise StepError(observations[-1].outcome, observations[-1].reason)
        if failure is not None:
            observations.append(_failed(run, len(made), failure))
            raise failure
        _check_length(trial, made[-1], observations)
    except BaseException:
        _forget(ranks, batch.id)
        raise


@dataclass(frozen=True, slots=True)
class _Step:
    """A step that every rank answered; all but room by shard_rank.

    goes_on: rank 0 holds the batch for another step. room_tokens: that it set aside for it.
    """

    sent_ns: int
    ended_ns: int
    answered: tuple[tuple[Answer, ...], ...]
    durations: tuple[m.Durations | None, ...]
    goes_on: bool
    room_tokens: int | None


def _make_steps(ranks: Ranks, trial: BatchTrial, batch: m.Batch, made: list[_Step]) -> None:
    """Prefill and Decode until the batch has ended; RankError from the step that fails."""
    timeout_s = trial.step_timeout_s
    reply = ranks.prefill(codec.encode_prefill(ranks.protocol, batch), timeout_s)
    cached = _keep(ranks.protocol, reply, made)
    while cached is not None and len(made) < trial.decode_length:
        reply = ranks.decode(codec.encode_decode(ranks.protocol, [cached]), timeout_s)
        cached = _keep(ranks.protocol, reply, made)


def _keep(protocol: m.Protocol, reply: RankReplies, made: list[_Step]) -> m.CachedBatch | None:
    """What rank 0 holds now. RankError where a rank's reply does not parse."""
    replies = []
    for rank, payload in enumerate(reply.payloads):
        try:
            replies.append(codec.decode_step_reply(protocol, payload))
        except (DecodeError, ValueError) as error:
            reason = f"shard_rank {rank}: its reply does not parse: {error}"
            raise RankError(Outcome.FAILED, reason, reply.sent_ns, reply.ended_ns) from error
    cached = replies[0].cached
    made.append(
        _Step(
            sent_ns=reply.sent_ns,
            ended_ns=reply.ended_ns,
            answered=tuple(map(answers_of, replies)),
            durations=tuple(r.durations for r in replies),
            goes_on=cached is not None,
            room_tokens=None if cached is None else cached.max_tokens,
        )
    )
    return cached


def _observed(
    trial: BatchTrial, run: _Run, batch: m.Batch, made: Sequence[_Step]
) -> list[StepObservation]:
    """The steps that were made, up to the first whose answers are not those of the batch."""
    shares = Shares(request.id for request in batch.requests)
    seen: list[StepObservation] = []
    for index, step in enumerate(made):
        joined = shares.join(step.answered)
        first = index == 0
        seen.append(
            StepObservation(
                run_index=run.index,
                warmup=run.warmup,
                phase=Phase.PREFILL if first else Phase.DECODE,
                step_index=index,
                sent_ns=step.sent_ns,
                ended_ns=step.ended_ns,
                prompt_tokens=_prompt_tokens(trial, run, step) if first else None,
                new_tokens=joined.new_tokens,
                ranks=tuple(map(_timing, count(), step.durations, step.answered)),
                outcome=Outcome.OK if joined.fault is None else Outcome.FAILED,
                reason=joined.fault or "",
                health_ns=run.health_ns if first else None,
            )
        )
        if joined.fault is not None:
            break
    return seen


def _failed(run: _Run, index: int, failure: RankError) -> StepObservation:
    return StepObservation(
        run_index=run.index,
        warmup=run.warmup,
        phase=Phase.DECODE if index else Phase.PREFILL,
        step_index=index,
        sent_ns=failure.sent_ns,
        ended_ns=failure.ended_ns,
        prompt_tokens=None,
        new_tokens=0,
        ranks=(),
        outcome=failure.outcome,
        reason=str(failure),
        health_ns=None if index else run.health_ns,
    )


def _prompt_tokens(trial: BatchTrial, run: _Run, prefill: _Step) -> int | None:
    """Batch size x the longest prompt, solved from the room set aside for the batch.

    A padded shard sets aside size * (longest prompt + all new tokens); a flash one whole
    blocks, which do not tell.
    """
    if prefill.room_tokens is None or not run.padded:
        return None
    new_tokens = trial.batch_size * trial.decode_length
    return prefill.room_tokens - trial.batch_size * new_tokens


def _timing(rank: int, durations: m.Durations | None, answers: Sequence[Answer]) -> RankTiming:
    if durations is None:
        return RankTiming(rank, None, None, None, len(answers))
    return RankTiming(
        rank, durations.forward_ns, durations.decode_ns, durations.total_ns, len(answers)
    )


def _check_length(trial: BatchTrial, last: _Step, seen: Sequence[StepObservation]) -> None:
    """Raise StepError unless each request got decode_length tokens and the batch has ended."""
    expected = trial.batch_size * trial.decode_length
    got = sum(observation.new_tokens for observation in seen)
    if last.goes_on or got != expected:
        raise StepError(
            Outcome.FAILED,
            f"the server made {got} tokens in {len(seen)} steps where {expected} were asked for",
        )


def _forget(ranks: Ranks, batch_id: int) -> None:
    """Free an unfinished batch on the server, if it still lives."""
    try:
        ranks.clear_cache(batch_id, _FORGET_TIMEOUT_S)
    except RankError:
        # A server that is gone holds no batch, and one that is busy clears it when it is free;
        # the step's own failure is reported.
        return


def _batch(trial: BatchTrial, prompts: Sequence[str]) -> m.Batch:
    choice = _choice(trial.sampling)
    stopping = m.Stopping(max_new_tokens=trial.decode_length, ignore_eos_token=True)
    return m.Batch(
        # Random and high: a router's ids count up from 0, and clearing ours must not hit its.
        id=(1 << 62) | secrets.randbits(61),
        requests=tuple(
            m.Request(
                id=index,
                text=prompt,
                truncate=trial.sequence_length,
                choice=choice,
                stopping=stopping,
            )
            for index, prompt in enumerate(prompts)
        ),
        max_tokens=trial.batch_size * (trial.sequence_length + trial.decode_length),
        size=trial.batch_size,
    )


def _choice(sampling: Sampling) -> m.TokenChoice:
    neutral = m.TokenChoice()
    return m.TokenChoice(
        temperature=_given(sampling.temperature, neutral.temperature),
        top_k=sampling.top_k or neutral.top_k,
        top_p=_given(sampling.top_p, neutral.top_p),
        typical_p=_given(sampling.typical_p, neutral.typical_p),
        do_sample=sampling.do_sample,
        repetition_penalty=_given(sampling.repetition_penalty, neutral.repetition_penalty),
        watermark=sampling.watermark,
    )


def _given(value: float | None, neutral: float) -> float:
    return neutral if value is None else value


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Collect now, and not between a send and its last token.

    What is alive now is frozen: looking through all of it again before each run took 20 ms.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()

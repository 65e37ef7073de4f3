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

from google.protobuf.message import DecodeError

from tgi_bench.drive.ranks import RankError, Ranks, Reply
from tgi_bench.errors import StepError
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
    try:
        info = ranks.info()
    except StepError as error:
        return TrialEnd(error.outcome, str(error))
    if room is not None:
        needed = needed_tokens(trial, info.block_size)
        if needed > room.capacity_tokens:
            return TrialEnd(
                Outcome.REFUSED,
                f"needs {needed} tokens of KV cache; the server has room for "
                f"{room.capacity_tokens} ({room.source})",
            )
    for index in range(trial.warmups + trial.runs):
        run = _Run(index, index < trial.warmups, info.requires_padding, prompts)
        observations: list[StepObservation] = []
        try:
            with _no_garbage_collection():
                _run(ranks, trial, run, observations)
        except StepError as error:
            record(tuple(observations))
            return TrialEnd(error.outcome, str(error))
        record(tuple(observations))
    return TrialEnd(Outcome.OK, "")


@dataclass(frozen=True, slots=True)
class _Run:
    """padded: the server pads a batch to its longest prompt."""

    index: int
    warmup: bool
    padded: bool
    prompts: Sequence[str]


def _run(ranks: Ranks, trial: BatchTrial, run: _Run, observations: list[StepObservation]) -> None:
    """One Prefill and its Decodes; appends what was seen, a failed step included."""
    batch = _batch(trial, run.prompts)
    step = _Stepper(ranks, trial, run, observations)
    try:
        reply = step(Phase.PREFILL, codec.encode_prefill(ranks.protocol, batch))
        while reply.cached is not None and len(observations) < trial.decode_length:
            reply = step(Phase.DECODE, codec.encode_decode(ranks.protocol, [reply.cached]))
        _check_length(trial, reply, observations)
    except BaseException:
        _forget(ranks, batch.id)
        raise


class _Stepper:
    """Makes a run's steps, one after the other, and keeps what was seen of each."""

    def __init__(
        self, ranks: Ranks, trial: BatchTrial, run: _Run, observations: list[StepObservation]
    ) -> None:
        self._ranks = ranks
        self._trial = trial
        self._run = run
        self._observations = observations

    def __call__(self, phase: Phase, payload: bytes) -> m.StepReply:
        call = self._ranks.prefill if phase is Phase.PREFILL else self._ranks.decode
        try:
            reply = call(payload, self._trial.step_timeout_s)
        except RankError as failure:
            self._keep_failure(phase, failure)
            raise
        return self._keep(phase, reply)

    def _keep(self, phase: Phase, reply: Reply) -> m.StepReply:
        replies = self._decoded(phase, reply)
        first = replies[0]
        self._observations.append(
            StepObservation(
                run_index=self._run.index,
                warmup=self._run.warmup,
                phase=phase,
                step_index=len(self._observations),
                sent_ns=reply.sent_ns,
                ended_ns=reply.ended_ns,
                prompt_tokens=self._prompt_tokens(first) if phase is Phase.PREFILL else None,
                new_tokens=sum(len(generation.tokens) for generation in first.generations),
                ranks=tuple(_timing(rank, r.durations) for rank, r in enumerate(replies)),
                outcome=Outcome.OK,
                reason="",
            )
        )
        return first

    def _prompt_tokens(self, reply: m.StepReply) -> int | None:
        """Batch size x the longest prompt, solved from the room set aside for the batch.

        A padded shard sets aside size * (longest prompt + all new tokens); a flash one whole
        blocks, which do not tell.
        """
        if reply.cached is None or not self._run.padded:
            return None
        new_tokens = self._trial.batch_size * self._trial.decode_length
        return reply.cached.max_tokens - self._trial.batch_size * new_tokens

    def _decoded(self, phase: Phase, reply: Reply) -> list[m.StepReply]:
        """Each rank's reply; StepError where one of them does not parse."""
        replies = []
        for rank, payload in enumerate(reply.payloads):
            try:
                replies.append(codec.decode_step_reply(self._ranks.protocol, payload))
            except (DecodeError, ValueError) as error:
                reason = f"shard_rank {rank}: its reply does not parse: {error}"
                failure = RankError(Outcome.FAILED, reason, reply.sent_ns, reply.ended_ns)
                self._keep_failure(phase, failure)
                raise failure from error
        return replies

    def _keep_failure(self, phase: Phase, failure: RankError) -> None:
        self._observations.append(
            StepObservation(
                run_index=self._run.index,
                warmup=self._run.warmup,
                phase=phase,
                step_index=len(self._observations),
                sent_ns=failure.sent_ns,
                ended_ns=failure.ended_ns,
                prompt_tokens=None,
                new_tokens=0,
                ranks=(),
                outcome=failure.outcome,
                reason=str(failure),
            )
        )


def _timing(rank: int, durations: m.Durations | None) -> RankTiming:
    if durations is None:
        return RankTiming(rank, None, None, None)
    return RankTiming(rank, durations.forward_ns, durations.decode_ns, durations.total_ns)


def _check_length(trial: BatchTrial, reply: m.StepReply, seen: list[StepObservation]) -> None:
    """Raise StepError unless each request got decode_length tokens and the batch has ended."""
    expected = trial.batch_size * trial.decode_length
    got = sum(observation.new_tokens for observation in seen)
    if reply.cached is not None or got != expected:
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

"""What a driver saw: the one currency between drive, record and analysis.

Nothing here is computed: no mean, no rate. Times are integer nanoseconds of one
monotonic clock of the client; durations that a server reported are its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """How a step or a trial ended."""

    OK = "ok"
    OUT_OF_MEMORY = "out_of_memory"
    SHARD_DIED = "shard_died"
    TIMEOUT = "timeout"
    REFUSED = "refused"
    """Not sent: the server said that it has no room for it."""
    SKIPPED = "skipped"
    """Not sent: a smaller batch of the same shape already ran out of memory."""
    LAUNCH_FAILED = "launch_failed"
    """Not sent: its server did not start."""
    FAILED = "failed"
    """The server answered with another error."""


class Phase(StrEnum):
    """Which of the two RPCs a step was."""

    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class RankTiming:
    """What one rank of a tensor-parallel server said of one step.

    shard_rank: 0-based. forward_ns, decode_ns, total_ns: the server's own durations;
    None where its version does not send them (before 1.3.3).
    """

    shard_rank: int
    forward_ns: int | None
    decode_ns: int | None
    total_ns: int | None


@dataclass(frozen=True, slots=True)
class StepObservation:
    """One Prefill or one Decode, sent to all ranks at once.

    run_index: 0-based, counted over warm-ups first and then over runs.
    warmup: kept as a record, left out of every figure.
    step_index: 0 is the prefill step, 1..decode_length-1 the decode steps.
    sent_ns: just before the first rank's call; ended_ns: when the slowest rank answered
        (or when the failure was known).
    prompt_tokens: batch size x the longest prompt, as the room that the server set aside for
        the batch tells; None for decode steps, and where the reply does not tell (decode_length
        1, and flash models, whose room is whole blocks).
    new_tokens: tokens that came back, summed over the requests of the batch, of rank 0.
    outcome: OK, or why this step failed; reason is empty when OK.
    """

    run_index: int
    warmup: bool
    phase: Phase
    step_index: int
    sent_ns: int
    ended_ns: int
    prompt_tokens: int | None
    new_tokens: int
    ranks: tuple[RankTiming, ...]
    outcome: Outcome
    reason: str

    @property
    def latency_ns(self) -> int:
        """ended - sent: the slowest rank's step as the client saw it."""
        return self.ended_ns - self.sent_ns


@dataclass(frozen=True, slots=True)
class TrialEnd:
    """How a trial ended; reason is empty when OK."""

    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a started server said of itself, as opposed to what was requested of it.

    command: the command line that started it, program first.
    arguments: name and text of each launcher argument as its `Args {...}` log line prints
        them; None where no such line was seen.
    version: as /info says; None where it does not.
    capacity_tokens: room of its KV cache as it said; None where it did not say.
    capacity_source: which line or metric said so; empty where none did.
    simulated: True where its times come from an estimate and not from a device.
    ready_ns: from the start of its process until it was ready.
    details: name and value of what else is known of this start: /info, an image's digest, the
        container's GPUs and driver.
    """

    command: tuple[str, ...]
    arguments: tuple[tuple[str, str], ...] | None
    version: str | None
    capacity_tokens: int | None
    capacity_source: str
    simulated: bool
    ready_ns: int
    details: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PublishedFigures:
    """One row of somebody's published report, in our units, where no samples are known.

    step: "prefill", "decode_token" or "decode_total". Latencies in ns, rates in tokens/s
    (prompt tokens/s for prefill). None: the report has no such figure.
    """

    step: str
    mean_ns: float
    lowest_ns: float
    highest_ns: float
    p50_ns: float | None
    p90_ns: float | None
    p99_ns: float | None
    mean_tokens_per_s: float | None
    lowest_tokens_per_s: float | None
    highest_tokens_per_s: float | None

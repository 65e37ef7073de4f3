"""What direct mode saw: loads of a model, and runs of tasks on it.

Nothing here is computed. Times are integer nanoseconds of one monotonic clock (CLOCK_MONOTONIC,
which the processes of a machine share).
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from tgi_bench.observation import Blob, Child, Outcome, table


class TaskPart(StrEnum):
    """Which call of a task one was."""

    GENERATE = "generate"
    MAP = "map"
    REDUCE = "reduce"


@dataclass(frozen=True, slots=True)
class TaskCall:
    """One generate call: a static batch, greedy, to a forced number of new tokens.

    prompt_tokens: of all its prompts together, as the tokenizer counts them; padding is not in it.
    new_tokens: that came back, of all sequences together.
    began_ns: before the first step, the device synchronised. step_ends_ns (typecode "q"): after
    each step and the device's synchronisation; the first is the prefill step's, and one follows
    for each further token.
    """

    part: TaskPart
    prompt_tokens: int
    new_tokens: int
    began_ns: int
    step_ends_ns: Annotated[array[int], Blob("q", ends=("first_step_ns", "last_step_ns"))]

    @property
    def ended_ns(self) -> int:
        """When its last token was there."""
        return self.step_ends_ns[-1] if self.step_ends_ns else self.began_ns


@table("task_runs", key=("probe", "run_index"))
@dataclass(frozen=True, slots=True)
class TaskRun:
    """One warm-up or run of a task.

    batch_size: sequences of each call. probe: 0-based, of a search; 0 elsewhere.
    run_index: 0-based, counted over warm-ups first and then over runs.
    began_ns .. ended_ns: of generate, the call itself; of summarize from the document's text to
        the last answer's, tokenizing included.
    peak_bytes: the most memory that one device held since the run began (of the CPU: since the
        process began); None where it is not known.
    outcome, reason: OK and "", or why it has no figures; a failed run has the calls before it.
    """

    batch_size: int
    probe: int
    run_index: int
    warmup: bool
    began_ns: int
    ended_ns: int
    peak_bytes: int | None
    calls: Annotated[tuple[TaskCall, ...], Child("task_calls", key=("call_index",))]
    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True)
class DirectFacts:
    """What a load of a model came to.

    device: its name, "NVIDIA H100 80GB HBM3" or the processor's. devices: that hold a part of it.
    memory_bytes: of one device. on_cpu: no GPU has a part of it.
    dtype: of weights, in effect: "float16", "int8", "nf4".
    parameters: counted. weights_bytes: in one process: with num_shard a rank's share.
    tokenizer: which one counted tokens.
    load_ns: from the start of its process until it was loaded.
    details: name and value of what else is known: versions, the architecture's class.
    """

    device: str
    devices: int
    memory_bytes: int | None
    on_cpu: bool
    dtype: str
    parameters: int
    weights_bytes: int
    tokenizer: str
    load_ns: int
    details: tuple[tuple[str, str], ...] = ()

"""What direct mode and its processes say to each other: typed values around the channel's tuples.

To a process: LOAD, RUN. From it: LOADED, RAN, or FAILED in place of either.
"""

from __future__ import annotations

from array import array
from dataclasses import asdict, astuple, dataclass
from typing import Any, cast

from tgi_bench.drive.channel import Message
from tgi_bench.observation import Outcome
from tgi_bench.plan.task_trial import DirectModel, Dtype, GenerateTask, SummarizeTask, TaskDevice
from tgi_bench.task_observation import DirectFacts, TaskCall, TaskPart, TaskRun

LOAD = "load"
RUN = "run"
LOADED = "loaded"
RAN = "ran"
FAILED = "failed"

_GENERATE = "generate"
_SUMMARIZE = "summarize"


@dataclass(frozen=True, slots=True)
class LoadAsk:
    """Load the model, as one rank of it. master_port: where ranks meet; 0 where there is one."""

    model: DirectModel
    shard_rank: int
    master_port: int

    def message(self) -> Message:
        """For the channel."""
        model = asdict(self.model)
        model |= {"dtype": self.model.dtype.value, "device": self.model.device.value}
        return (LOAD, model, self.shard_rank, self.master_port)

    @classmethod
    def of(cls, message: Message) -> LoadAsk:
        """From the channel."""
        said = cast(dict[str, Any], message[1])
        typed = {"dtype": Dtype(said["dtype"]), "device": TaskDevice(said["device"])}
        model = DirectModel(**{**said, **typed})
        return cls(model, cast(int, message[2]), cast(int, message[3]))


@dataclass(frozen=True, slots=True)
class RunAsk:
    """Run the task once. batch_size: of its calls, also where the task itself looks for one."""

    task: GenerateTask | SummarizeTask
    batch_size: int
    probe: int
    run_index: int
    warmup: bool
    prompt_seed: int

    def message(self) -> Message:
        """For the channel."""
        match self.task:
            case GenerateTask(prompt_tokens, new_tokens):
                kind: Message = (_GENERATE, prompt_tokens, new_tokens)
            case SummarizeTask():
                kind = (_SUMMARIZE, *astuple(self.task))
        place = (self.batch_size, self.probe, self.run_index, self.warmup, self.prompt_seed)
        return (RUN, kind, *place)

    @classmethod
    def of(cls, message: Message) -> RunAsk:
        """From the channel."""
        kind, *said = cast(tuple[Any, ...], message[1])
        rest = cast(tuple[Any, ...], message[2:])
        if kind == _SUMMARIZE:
            return cls(SummarizeTask(*said), *rest)
        return cls(GenerateTask(said[0], said[1], rest[0], None), *rest)


def loaded(facts: DirectFacts) -> Message:
    """For the channel: the model is there."""
    return (LOADED, *astuple(facts))


def facts_of(message: Message) -> DirectFacts:
    """From the channel."""
    return DirectFacts(*message[1:])  # type: ignore[arg-type]


def ran(run: TaskRun) -> Message:
    """For the channel: the run came to its end."""
    calls = tuple(
        (c.part.value, c.prompt_tokens, c.new_tokens, c.began_ns, c.step_ends_ns.tobytes())
        for c in run.calls
    )
    times = (run.began_ns, run.ended_ns, run.peak_bytes)
    return (RAN, run.batch_size, run.probe, run.run_index, run.warmup, *times, calls)


def run_of(message: Message) -> TaskRun:
    """From the channel."""
    _, batch_size, probe, run_index, warmup, began_ns, ended_ns, peak, calls = cast(
        tuple[Any, ...], message
    )
    return TaskRun(
        batch_size=batch_size,
        probe=probe,
        run_index=run_index,
        warmup=warmup,
        began_ns=began_ns,
        ended_ns=ended_ns,
        peak_bytes=peak,
        calls=tuple(
            TaskCall(TaskPart(part), prompt, new, began, _array(ends))
            for part, prompt, new, began, ends in calls
        ),
        outcome=Outcome.OK,
        reason="",
    )


def failed(outcome: Outcome, reason: str) -> Message:
    """For the channel: what was asked did not come to its end."""
    return (FAILED, outcome.value, reason)


def failure_of(message: Message) -> tuple[Outcome, str]:
    """From the channel."""
    return Outcome(cast(str, message[1])), cast(str, message[2])


def _array(data: bytes) -> array[int]:
    values: array[int] = array("q")
    values.frombytes(data)
    return values

"""A process of direct mode: `python -m tgi_bench.drive.direct_child FD`, started by `direct`.

It loads one model, or one rank of it, and runs tasks on it. What fails here poisons no other
process: after a failure whoever started it ends it and starts another.
"""

from __future__ import annotations

import gc
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tgi_bench.drive import channel as d
from tgi_bench.drive.channel import Channel, Message, RunAsk
from tgi_bench.errors import InputError
from tgi_bench.inert import one_line
from tgi_bench.observation import Outcome
from tgi_bench.plan.prompts import batch_prompts
from tgi_bench.task_observation import DirectFacts, TaskCall, TaskPart, TaskRun
from tgi_bench.trials.direct import DirectModel, GenerateTask, SummarizeTask

if TYPE_CHECKING:
    from tgi_bench.torch_engine.model import LoadedModel


_INSTRUCTION = "Write a short summary of the following text. Keep to what it says. "
_MOST_BYTES = 1 << 26

Ids = tuple[int, ...]


def run_task(model: LoadedModel, ask: RunAsk) -> TaskRun:
    """One run of the task. Raises what the engine raises, and InputError for a file."""
    # Texts that nobody times are made before the peak is reset and the clock is read.
    match ask.task:
        case GenerateTask():
            prompts = _prompts(model, ask.task, ask)
            model.reset_peak()
            calls = [_call(model, (TaskPart.GENERATE, ask.task.new_tokens), prompts)[0]]
            began_ns, ended_ns = calls[0].began_ns, calls[0].ended_ns
        case SummarizeTask():
            text = _document(ask.task, ask.prompt_seed)
            model.reset_peak()
            began_ns = time.monotonic_ns()
            calls = _summarize(model, ask.task, text)
            ended_ns = time.monotonic_ns()
    return TaskRun(
        batch_size=ask.batch_size,
        probe=ask.probe,
        run_index=ask.run_index,
        warmup=ask.warmup,
        began_ns=began_ns,
        ended_ns=ended_ns,
        peak_bytes=model.peak_bytes(),
        calls=tuple(calls),
        outcome=Outcome.OK,
        reason="",
    )


def _prompts(model: LoadedModel, task: GenerateTask, ask: RunAsk) -> list[Ids]:
    """batch_size prompts of exactly prompt_tokens: the same for every dtype and every run."""
    name = f"generate-p{task.prompt_tokens}-b{ask.batch_size}"
    # A word is at least one token, and what is above prompt_tokens is cut off.
    texts = batch_prompts(ask.prompt_seed, name, ask.batch_size, task.prompt_tokens)
    return [model.tokenizer.ids(text, task.prompt_tokens) for text in texts]


def _document(task: SummarizeTask, seed: int) -> str:
    """The file's text, or words that are at least document_tokens."""
    if task.file is None:
        (text,) = batch_prompts(seed, "document", 1, task.document_tokens or 1)
        return text
    try:
        with Path(task.file).open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise InputError(f"{task.file}: is longer than {_MOST_BYTES} bytes")
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{task.file}: is not a text file in UTF-8") from None
    except OSError as error:
        raise InputError(f"{task.file}: cannot be read: {error.strerror}") from None


def _summarize(model: LoadedModel, task: SummarizeTask, text: str) -> list[TaskCall]:
    """Map calls over chunks, then reduce calls over answers until one is left."""
    tokenizer = model.tokenizer
    ids = tokenizer.ids(text, special=False)
    document = ids if task.document_tokens is None else ids[: task.document_tokens]
    if not document:
        raise InputError(f"{task.file}: holds no text to summarize")
    calls: list[TaskCall] = []

    def answered(part: TaskPart, new_tokens: int, tokens: Ids) -> Ids:
        call, answers = _call(model, (part, new_tokens), [(*instruction, *tokens)])
        calls.append(call)
        return answers[0]

    instruction = _instruction(model, task.instruction_tokens)
    chunks = [
        document[start : start + task.chunk_tokens]
        for start in range(0, len(document), task.chunk_tokens)
    ]
    answers = [answered(TaskPart.MAP, task.map_new_tokens, chunk) for chunk in chunks]
    while True:
        groups = _groups(answers, task.chunk_tokens)
        answers = [answered(TaskPart.REDUCE, task.reduce_new_tokens, group) for group in groups]
        if len(answers) == 1:
            tokenizer.text(answers[0])
            return calls


def _instruction(model: LoadedModel, tokens: int) -> Ids:
    """Exactly so many tokens: the instruction, again and again where it is shorter."""
    repeated = _INSTRUCTION * (tokens + 1)
    return model.tokenizer.ids(repeated, special=False)[:tokens]


def _groups(answers: Sequence[Ids], most_tokens: int) -> list[Ids]:
    """The answers in order, joined as long as they have at most so many tokens together.

    most_tokens is at least that of two answers, so there are fewer groups than answers.
    """
    groups: list[Ids] = []
    for answer in answers:
        if groups and len(groups[-1]) + len(answer) <= most_tokens:
            groups[-1] += answer
        else:
            groups.append(answer)
    return groups


def _call(
    model: LoadedModel, what: tuple[TaskPart, int], prompts: Sequence[Ids]
) -> tuple[TaskCall, tuple[Ids, ...]]:
    """One generate call, and what it answered. what: the part, and new tokens of each."""
    from tgi_bench.torch_engine.generation import generate  # there since the model was loaded

    part, new_tokens = what
    made = generate(model, prompts, new_tokens)
    call = TaskCall(
        part=part,
        prompt_tokens=sum(map(len, prompts)),
        new_tokens=sum(map(len, made.tokens)),
        began_ns=made.started_ns,
        step_ends_ns=array("q", made.step_ends_ns),
    )
    return call, made.tokens


_LONGEST_REASON = 2000


def main() -> None:
    """Answer what is asked until the other end closes the channel."""
    began_ns = time.monotonic_ns()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it decides what Ctrl-C means
    sock = socket.socket(fileno=int(sys.argv[1]))
    _end_with(sock)
    channel = Channel(sock)
    model: LoadedModel | None = None
    while not channel.closed:
        select.select([channel], [], [])
        for message in channel.receive():
            model, answer = _answer(message, model, began_ns)
            channel.send(answer)
            while channel.pending and not channel.closed:
                select.select([], [channel], [])
                channel.flush()


def _end_with(sock: socket.socket) -> None:
    """End at once where the other end is gone, even in the middle of a step."""

    def wait() -> None:
        poll = select.poll()
        poll.register(sock.fileno(), 0)  # a hang-up is told always
        poll.poll()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _answer(
    message: Message, model: LoadedModel | None, began_ns: int
) -> tuple[LoadedModel | None, Message]:
    """The model from now on, and what is said."""
    try:
        if message[0] == d.LOAD:
            model, facts = _load(d.of(d.LoadAsk, message), began_ns)
            return model, d.told(d.LOADED, facts)
        if model is None:
            raise InputError("no model was loaded before a task was asked")

        return model, d.told(d.RAN, run_task(model, d.of(d.RunAsk, message)))
    except MemoryError as error:
        outcome, reason = Outcome.OUT_OF_MEMORY, str(error) or "CPU out of memory"
    except InputError as error:
        outcome, reason = Outcome.REFUSED, str(error)
    except Exception as error:  # noqa: BLE001 - any failure of a model is an observation
        outcome, reason = _failure(error)
    # The frames of the failed step, and the tensors in them, are gone by now.
    gc.collect()
    return model, d.told(d.FAILED, (outcome, one_line(reason)[:_LONGEST_REASON]))


def _failure(error: Exception) -> tuple[Outcome, str]:
    from tgi_bench.torch_engine.memory import OutOfMemory

    if isinstance(error, OutOfMemory):
        return Outcome.OUT_OF_MEMORY, str(error)
    first = str(error).strip().splitlines() or [""]
    return Outcome.FAILED, f"{type(error).__name__}: {first[0]}"


def _load(ask: d.LoadAsk, began_ns: int) -> tuple[LoadedModel, DirectFacts]:
    """Raises InputError, OutOfMemory, or whatever a model's own code raises."""
    from tgi_bench.torch_engine.spec import require_extra

    require_extra()
    import torch

    from tgi_bench.torch_engine.loading import load
    from tgi_bench.torch_engine.spec import DeviceChoice, ModelSpec, Rank, Weights, WeightType

    model = ask.model
    found = torch.cuda.device_count()
    if model.layer_split > 1 and found < model.layer_split:
        raise InputError(
            f"transformers.layer_split {model.layer_split} needs as many CUDA devices: {found} here"
        )
    if model.memory_limit_bytes is not None:
        # The hard limit too: the engine sets the soft one to what it finds available.
        limit = (model.memory_limit_bytes, model.memory_limit_bytes)
        resource.setrlimit(resource.RLIMIT_DATA, limit)
    rank = None
    if model.num_shard > 1:
        rank = Rank(ask.shard_rank, model.num_shard, ask.master_port)
    weights = Weights(WeightType.from_text(model.dtype), model.random_weights, model.weights_seed)
    spec = ModelSpec(
        model=model.model,
        weights=weights,
        device=DeviceChoice(model.device.value),
        layer_split=model.layer_split > 1,
        num_shard=model.num_shard,
    )
    made = load(spec, rank)
    return made, _facts(made, model, time.monotonic_ns() - began_ns)


def _facts(made: LoadedModel, model: DirectModel, load_ns: int) -> DirectFacts:
    import torch

    on_cpu = made.device_name == "cpu"
    if on_cpu:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    else:
        memory = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    return DirectFacts(
        device=made.device_name,
        devices=model.devices,
        memory_bytes=memory,
        on_cpu=on_cpu,
        dtype=made.weight_type.value,
        parameters=made.parameters,
        weights_bytes=made.weights_bytes,
        tokenizer=type(made.tokenizer).__name__,
        load_ns=load_ns,
        details=(("architecture", made.architecture), *made.versions),
    )


if __name__ == "__main__":
    main()

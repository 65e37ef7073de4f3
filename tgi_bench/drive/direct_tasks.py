"""The tasks of direct mode on a loaded model: generate, and summarize by map and reduce.

Imports torch by way of the engine: only the processes of direct mode import this.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from pathlib import Path

from tgi_bench.drive.direct_messages import RunAsk
from tgi_bench.errors import InputError
from tgi_bench.observation import Outcome
from tgi_bench.plan.prompts import batch_prompts
from tgi_bench.plan.task_trial import GenerateTask, SummarizeTask
from tgi_bench.task_observation import TaskCall, TaskPart, TaskRun
from tgi_bench.torch_engine.generation import generate
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

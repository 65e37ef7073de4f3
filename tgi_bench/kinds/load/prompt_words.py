"""What a load asks, in words: where its prompts come from, and how long they and answers are."""

from __future__ import annotations

from pathlib import PurePath

from tgi_bench.kinds.load.words import counted, plain, seconds
from tgi_bench.trials.load import (
    Empirical,
    FileKind,
    Fixed,
    Length,
    LoadTrial,
    LogNormal,
    Normal,
    Uniform,
    Workload,
)
from tgi_bench.trials.load_keys import OUTPUT_TOKENS

_MOST_VALUES = 8
"""Values of an empirical length that are listed; of more only their range is."""
_WITH_TEXTS = (FileKind.JSONL, FileKind.SHAREGPT)


def prompts(workload: Workload) -> str:
    """Where prompts come from, how long they are, what they share; a file by its name alone."""
    file = workload.file
    parts = [] if file is None else [f"file {PurePath(file.path).name} ({file.kind.value})"]
    if file is not None and file.shuffle:
        parts.append("shuffled")
    if workload.prompt is not None:
        parts.append(length(workload.prompt))
    if (prefix := workload.shared_prefix) is not None:
        parts.append(
            f"the first {prefix.tokens} tokens shared within each of "
            f"{counted(prefix.groups, 'group')}"
        )
    if (turns := workload.turns) is not None:
        parts.append(
            f"conversations of {_numbers(turns.count)} turns, {seconds(turns.think_ns)} "
            "after each answer"
        )
    return "; ".join((*parts, _texts_of(workload)))


def _texts_of(workload: Workload) -> str:
    """Whether another run sends the same texts."""
    if workload.file is not None and workload.file.kind in _WITH_TEXTS:
        own = "its own texts" if workload.seed is None else f"seed {workload.seed}"
        return f"{own}, which may repeat and be cached" if workload.repeats else own
    if workload.seed is None:
        return "new texts in each run"
    return f"texts repeat those of other runs with seed {workload.seed}"


def outputs(trial: LoadTrial) -> str:
    """How many new tokens are asked for."""
    workload = trial.workload
    if workload.output is not None:
        return length(workload.output)
    if workload.file is None or workload.file.kind is not FileKind.SHAREGPT:
        return f"as the file says, {OUTPUT_TOKENS} where it does not"
    if trial.tokenizer is None:
        return f"{OUTPUT_TOKENS} tokens, for no tokenizer was named to count the file's answers"
    return f"as many tokens as the file's answers have, {OUTPUT_TOKENS} where it has none"


def length(asked: Length) -> str:
    """ "512 tokens", "100 to 1000 tokens, uniform"."""
    match asked:
        case Fixed():
            return f"{asked.tokens} tokens"
        case Empirical():
            return f"one of {_numbers(asked)} tokens"
        case _:
            return f"{_numbers(asked)}, tokens"


def _numbers(asked: Length) -> str:
    match asked:
        case Fixed():
            return str(asked.tokens)
        case Uniform():
            return f"{asked.lowest} to {asked.highest}, uniform"
        case Normal():
            return (
                f"normal with mean {plain(asked.mean)} and deviation {plain(asked.deviation)}, "
                f"within {asked.lowest} to {asked.highest}"
            )
        case LogNormal():
            return (
                f"log-normal with median {plain(asked.median)} and sigma {plain(asked.sigma)}, "
                f"within {asked.lowest} to {asked.highest}"
            )
        case Empirical():
            return _listed(asked)


def _listed(asked: Empirical) -> str:
    if len(asked.values) > _MOST_VALUES:
        text = f"{len(asked.values)} values within {min(asked.values)} to {max(asked.values)}"
        return text + (", weighted" if asked.weights else "")
    values = ", ".join(map(str, asked.values))
    weights = ":".join(map(plain, asked.weights))
    return f"{values}, weighted {weights}" if weights else values

"""An experiment of direct mode as its YAML file says it: `backend: transformers`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from tgi_bench.sections.section import (
    MODEL_PATTERN,
    NAME_PATTERN,
    SIZE_PATTERN,
    FromYaml,
    Seconds,
    Section,
    Seed,
    Share,
    Size,
    Sizes,
    no_duplicates,
    one_of,
    one_or_list,
    refused,
)
from tgi_bench.trials.direct import Dtype, TaskDevice
from tgi_bench.words import shown, suggestion

DEFAULT_RUNS = 5
_MOST_DEVICES = 1024
_UNITS = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30}

Warmups = Annotated[int, Field(ge=0, le=2**31 - 1)]


def _dtypes(values: list[str]) -> list[Dtype]:
    known = [dtype.value for dtype in Dtype]
    for value in values:
        if value not in known:
            nearest = suggestion(value, known)
            raise refused(f"must be of {', '.join(known)}, not `{shown(value)}`{nearest}")
    return [Dtype(value) for value in no_duplicates(values)]


def _at_most_devices(values: list[int]) -> list[int]:
    for value in values:
        if value > _MOST_DEVICES:
            raise refused(f"must be at most {_MOST_DEVICES}, not {value}")
    return values


def _bytes(size: str) -> int:
    """ "8g" in bytes; a number alone is bytes."""
    unit = _UNITS.get(size[-1])
    return int(size) if unit is None else int(size[:-1]) * unit


Dtypes = Annotated[
    list[Dtype],
    FromYaml(
        Annotated[
            list[str],
            BeforeValidator(one_or_list, json_schema_input_type=str | list[str]),
            Field(min_length=1),
            AfterValidator(_dtypes),
        ]
    ),
]
Devices = Annotated[Sizes, AfterValidator(_at_most_devices)]


class TransformersKeys(Section):
    """How the transformers engine loads the model: a load for each combination of the lists."""

    dtype: Dtypes = Field(default_factory=lambda: [Dtype.BF16])
    """How weights are kept: fp32, fp16, bf16, 8bit or 4bit; one, or a list."""
    device: Annotated[TaskDevice, one_of(TaskDevice)] = TaskDevice.AUTO
    """Where it runs; `auto` is CUDA where there is a device, else the CPU."""
    num_shard: Devices = Field(default_factory=lambda: [1])
    """The tensor-parallel degree: each layer's matrices are divided over so many devices."""
    layer_split: Devices = Field(default_factory=lambda: [1])
    """Devices that the layers are laid out over, which work one after the other (device_map)."""
    random_weights: bool = False
    """Draw the weights instead of reading them: nothing is downloaded, the speed is the same."""
    weights_seed: Seed = 0
    """Seed of random weights; 0 is a seed."""
    memory_limit_bytes: Annotated[
        Annotated[int, FromYaml(Annotated[str, Field(pattern=SIZE_PATTERN)], _bytes)] | None,
        Field(alias="memory_limit"),
    ] = None
    """Memory that a process of it may allocate, as in `8g`; only on the CPU."""
    load_timeout_s: Seconds = 1200.0
    """Seconds that starting a process and loading the model may take."""


class FindBatchKeys(Section):
    """The largest batch size that fits: doubled until memory runs out, then bisected."""

    start: Size = 1
    """The batch size that is tried first."""
    highest: Size = 65536
    """No larger one is tried."""
    tolerance: Share = 0.05
    """The answer is exact to this share of it, or to 1."""


class GenerateKeys(Section):
    """Generate calls of a fixed number of prompt and new tokens: a trial for each batch size."""

    prompt_tokens: Sizes
    """Tokens of each prompt."""
    new_tokens: Size
    """New tokens of each sequence; no sequence may end before."""
    batch_size: Sizes | None = None
    """Sequences in a call; run in ascending order until one runs out of memory."""
    find_batch: FindBatchKeys | None = None
    """Look for the largest batch size that fits, after those of batch_size."""
    runs: Size = DEFAULT_RUNS
    """Measured calls of each trial."""
    warmups: Warmups = 1
    """Calls before them that are recorded and left out of every figure."""
    prompt_seed: Seed = 0
    """Seed of the prompts; 0 is a seed."""
    run_timeout_s: Seconds = 1200.0
    """Seconds that one call may take."""


class SummarizeKeys(Section):
    """A long document through map and reduce calls."""

    document_tokens: Size | None = None
    """Tokens of a synthetic document; give this or `file`."""
    file: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """A text file in UTF-8 to summarize."""
    chunk_tokens: Size = 512
    """Tokens of the document in one map call, and of answers in one reduce call."""
    instruction_tokens: Annotated[int, Field(ge=0, le=2**31 - 1)] = 16
    """Tokens of the instruction in front of each call's text."""
    map_new_tokens: Size = 64
    """New tokens of each map call."""
    reduce_new_tokens: Size = 128
    """New tokens of each reduce call."""
    runs: Size = 3
    """Measured summaries."""
    warmups: Warmups = 1
    """Summaries before them that are recorded and left out of every figure."""
    prompt_seed: Seed = 0
    """Seed of the synthetic document; 0 is a seed."""
    run_timeout_s: Seconds = 1200.0
    """Seconds that one summary may take."""


class DirectExperiment(Section):
    """One experiment of direct mode: tasks on a model in processes of tgi-bench's own."""

    experiment: Annotated[str, Field(pattern=NAME_PATTERN)]
    """Its name, which is its folder's too: letters, digits, `.`, `_`, `-`; at most 100."""
    backend: Literal["transformers"]
    """What runs the model: `transformers`, without a server."""
    model: Annotated[str, Field(pattern=MODEL_PATTERN)]
    """The model: an id of the Hub, a folder, a config.json, or a row of the table of models."""
    transformers: TransformersKeys = Field(default_factory=TransformersKeys)
    """How it is loaded."""
    generate: GenerateKeys | None = None
    """Generate calls; needed where there is no `summarize`."""
    summarize: SummarizeKeys | None = None
    """Summaries of a document."""


Found = list[tuple[str, str]]


def task_problems(experiment: DirectExperiment) -> Found:
    """Key path and sentence of everything that the keys mean together and may not."""
    checks: tuple[Callable[[DirectExperiment], Found], ...] = (_tasks, _loading, _summary)
    return [found for check in checks for found in check(experiment)]


def _tasks(experiment: DirectExperiment) -> Found:
    generate = experiment.generate
    if generate is None:
        if experiment.summarize is None:
            return [("", "holds neither `generate` nor `summarize`: give at least one")]
        return []
    if generate.batch_size is None and generate.find_batch is None:
        return [("generate", "holds neither `batch_size` nor `find_batch`: give at least one")]
    find = generate.find_batch
    if find is not None and find.start > find.highest:
        return [("generate.find_batch.start", f"is above `highest`, which is {find.highest}")]
    return []


def _loading(experiment: DirectExperiment) -> Found:
    keys = experiment.transformers
    found: Found = []
    if max(keys.num_shard) > 1 and max(keys.layer_split) > 1:
        text = (
            "splits layers, and num_shard divides them: two ways to use several devices; give an "
            "experiment each, or one of them"
        )
        found.append(("transformers.layer_split", text))
    quantized = [d for d in keys.dtype if d.bits < 16]
    if keys.device is TaskDevice.CPU and quantized:
        text = f"`{quantized[0].value}` needs CUDA, where bitsandbytes works, and `device` is cpu"
        found.append(("transformers.dtype", text))
    if keys.memory_limit_bytes is not None and keys.device is not TaskDevice.CPU:
        text = "needs `device: cpu`: the memory of other devices is their own limit"
        found.append(("transformers.memory_limit", text))
    return found


def _summary(experiment: DirectExperiment) -> Found:
    keys = experiment.summarize
    if keys is None:
        return []
    if (keys.document_tokens is None) == (keys.file is None):
        return [("summarize", "needs one of `document_tokens` and `file`")]
    answers = max(keys.map_new_tokens, keys.reduce_new_tokens)
    if keys.chunk_tokens < 2 * answers:
        text = (
            f"must be at least {2 * answers}, twice the longer of map_new_tokens and "
            "reduce_new_tokens, so that a reduce call takes two answers or more"
        )
        return [("summarize.chunk_tokens", text)]
    return []

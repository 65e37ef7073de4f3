"""What is run in direct mode: a model in processes of our own, without a server, and its tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal


class Dtype(StrEnum):
    """How weights are kept. 8bit is LLM.int8(), 4bit is NF4, both of bitsandbytes."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "8bit"
    INT4 = "4bit"

    @property
    def bits(self) -> int:
        """Of one weight of a linear layer."""
        return {"fp32": 32, "fp16": 16, "bf16": 16, "8bit": 8, "4bit": 4}[self.value]


class TaskDevice(StrEnum):
    """Where the model runs; AUTO is CUDA where there is a device, else the CPU."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


@dataclass(frozen=True, slots=True)
class DirectModel:
    """One model as the transformers engine loads it: in direct mode what a Deployment is elsewhere.

    model_id: what tells it from the others, fit for a file name: "bf16", "bf16+num_shard-2",
        "fp16+layer_split-4".
    model: an id of the Hub, a folder, a config.json, or a row of the estimate's table of models.
    random_weights: drawn with weights_seed, so that nothing is downloaded.
    num_shard: tensor-parallel degree. layer_split: devices that the layers are laid out over,
        one after the other (device_map). Never both above 1.
    memory_limit_bytes: anonymous memory that a process of it may take; None: no limit.
    load_timeout_s: for starting the process and loading the model.
    """

    model_id: str
    model: str
    random_weights: bool
    weights_seed: int
    dtype: Dtype
    device: TaskDevice
    num_shard: int
    layer_split: int
    memory_limit_bytes: int | None
    load_timeout_s: float

    @property
    def devices(self) -> int:
        """How many devices hold a part of it."""
        return max(self.num_shard, self.layer_split)


@dataclass(frozen=True, slots=True)
class FindBatch:
    """The largest batch size that fits, between start and highest.

    start is doubled until it runs out of memory or highest fits; the bracket is then halved until
    it is at most `tolerance` of its lower end, or one.
    """

    start: int
    highest: int
    tolerance: float


@dataclass(frozen=True, slots=True)
class GenerateTask:
    """One generate call of batch_size prompts, each of prompt_tokens, to new_tokens each.

    batch_size: None where `find` looks for the largest.
    """

    kind: Literal["generate"] = field(default="generate", kw_only=True)
    prompt_tokens: int
    new_tokens: int
    batch_size: int | None
    find: FindBatch | None


@dataclass(frozen=True, slots=True)
class SummarizeTask:
    """A document in chunks, a generate call for each (map), and calls over their answers (reduce).

    document_tokens: of a synthetic document, made with the prompt seed; None where file is given.
    file: path of a text. chunk_tokens: of the document in one map call, and of answers in one
    reduce call. instruction_tokens: in front of each. Answers that do not fit into one reduce
    call are reduced in groups, and their answers again, until one is left.
    """

    kind: Literal["summarize"] = field(default="summarize", kw_only=True)
    document_tokens: int | None
    file: str | None
    chunk_tokens: int
    instruction_tokens: int
    map_new_tokens: int
    reduce_new_tokens: int


@dataclass(frozen=True, slots=True)
class TaskTrial:
    """`warmups` then `runs` times one task on one model.

    trial_id: "<model_id>/generate-p9-n100-b4", "<model_id>/generate-p9-n100-find",
        "<model_id>/summarize-t2048-c512"; of a file "<model_id>/summarize-file-c512".
    run_timeout_s: for one run. prompt_seed: of prompts and documents; 0 is a seed.
    """

    trial_id: str
    model: DirectModel
    task: GenerateTask | SummarizeTask
    runs: int
    warmups: int
    run_timeout_s: float
    prompt_seed: int

    @property
    def batch_size(self) -> int | None:
        """Of a generate call; None of a search; 1 of a summary."""
        return self.task.batch_size if isinstance(self.task, GenerateTask) else 1

    @property
    def shape(self) -> tuple[str, int, int] | None:
        """Trials of one shape differ in batch size only; None where there is none to differ in."""
        match self.task:
            case GenerateTask(batch_size=int()):
                return (self.model.model_id, self.task.prompt_tokens, self.task.new_tokens)
            case _:
                return None

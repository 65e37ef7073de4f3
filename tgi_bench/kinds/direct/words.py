"""Words of direct mode: a model's weights, its devices and how they share it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tgi_bench.analysis.run import Run
from tgi_bench.kinds.direct.figures import DirectRecord
from tgi_bench.task_observation import DirectFacts
from tgi_bench.trials.direct import DirectModel, GenerateTask, SummarizeTask, TaskTrial

TENSOR_PARALLEL = "tensor parallel"
LAYERS_SPLIT = "layers split"
ON_CPU = "CPU: "
"""Begins the name of a device that is no GPU."""
RANDOM_WEIGHTS = " (random weights)"
"""Ends the name of a model whose weights were drawn."""

_UNKNOWN = "unknown device"
_MIB = 2**20
_PLANNED = {
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "8bit": "int8",
    "4bit": "nf4",
}
WEIGHTS = frozenset(_PLANNED.values())
"""What `weights` says of a load that took effect as planned."""


def weights(record: DirectRecord) -> str:
    """The dtype of weights in effect, as in "bfloat16"; as planned where no load was good."""
    return _PLANNED[record.model.dtype.value] if record.facts is None else record.facts.dtype


def model_name(model: DirectModel) -> str:
    """The model, and whether its weights were drawn."""
    return model.model + (RANDOM_WEIGHTS if model.random_weights else "")


def parallelism(model: DirectModel) -> str:
    """How several devices share the model; "" with one."""
    if model.num_shard > 1:
        return TENSOR_PARALLEL
    return LAYERS_SPLIT if model.layer_split > 1 else ""


def device(run: Run, record: DirectRecord) -> str:
    """The name of one device; of another model of the run where this one was never loaded."""
    known = [record, *run.of(DirectRecord)]
    facts = next((r.facts for r in known if r.facts is not None), None)
    if facts is not None:
        return _cpu(run) if facts.on_cpu else facts.device
    return _cpu(run) if record.model.device.value == "cpu" else _UNKNOWN


def device_with_memory(run: Run, record: DirectRecord) -> str:
    """ "NVIDIA A100-SXM4-80GB (81920 MiB)": the memory that nvidia-smi says, else the engine."""
    name = device(run, record)
    known = [record, *run.of(DirectRecord)]
    facts = next((r.facts for r in known if r.facts is not None), None)
    mebibytes = _mebibytes(run, facts)
    return name if mebibytes is None else f"{name} ({mebibytes} MiB)"


def _cpu(run: Run) -> str:
    return ON_CPU + dict(run.environment).get("CPU", _UNKNOWN)


def _mebibytes(run: Run, facts: DirectFacts | None) -> int | None:
    if facts is None:
        return None
    said = dict(run.environment).get("GPUs", "")
    for row in said.split("; "):
        found = re.fullmatch(r"(.+), [^,]+, (\d+) MiB", row)
        if found is not None and found[1] == facts.device:
            return int(found[2])
    return None if facts.memory_bytes is None else round(facts.memory_bytes / _MIB)


def task_asked(trial: TaskTrial) -> str:
    """What a task does, in one line without its batch size."""
    match trial.task:
        case GenerateTask(prompt, new):
            return f"{prompt} prompt tokens, {new} new tokens"
        case SummarizeTask() as task:
            document = (
                "a file" if task.document_tokens is None else f"{task.document_tokens} tokens"
            )
            return (
                f"document of {document} in chunks of {task.chunk_tokens}, "
                f"{task.instruction_tokens} of instruction, {task.map_new_tokens} new tokens a map "
                f"call, {task.reduce_new_tokens} a reduce call"
            )


def verdict_lines(runs: Sequence[Run]) -> str:
    """A line for each run that is not to be believed, below a layout that has no room for why."""
    return "".join(
        f"\n**Verdict of run {run.run_id}: INVALID**; its own report says why.\n"
        for run in runs
        if not run.verdict.valid
    )

"""The figures of direct mode, each declared once: for pages, the screen, CSV and JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from tgi_bench.analysis.run import Run
from tgi_bench.analysis.samples import Distribution
from tgi_bench.kinds.batch.columns import DISTRIBUTION
from tgi_bench.kinds.direct.figures import DirectRecord, TaskFigures, TaskSummary
from tgi_bench.report import units
from tgi_bench.report.column import OUTCOME, PLACE, VERDICT, Column, Grid, TrialRow, fields, of
from tgi_bench.report.json_text import Json, ended
from tgi_bench.report.table import Table
from tgi_bench.report.words import UNDEFINED, cell_word
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


SIZES: tuple[Column[TaskFigures], ...] = (
    Column("prompt_tokens", lambda f: f.prompt_tokens, "Prompt tokens"),
    Column("new_tokens", lambda f: f.new_tokens, "New tokens"),
    Column("calls", lambda f: f.calls, "Calls"),
)
_RUN: tuple[Column[Distribution], ...] = (
    Column("mean", lambda d: d.mean, "sec", units.S_ALONE, "Run"),
    Column("lowest", lambda d: d.lowest, "lowest", units.S_ALONE),
    Column("highest", lambda d: d.highest, "highest", units.S_ALONE),
)
_PREFILL: tuple[Column[Distribution], ...] = (
    Column("mean", lambda d: d.mean, "Prefill", units.MS, "Prefill"),
)
_STEP: tuple[Column[Distribution], ...] = (
    Column("mean", lambda d: d.mean, "msec/step", units.MS_ALONE, "Decode step"),
    Column("p50", lambda d: d.p50, "step p50", units.MS_ALONE),
    Column("p99", lambda d: d.p99, "step p99", units.MS_ALONE),
)
RUN: tuple[Column[TaskFigures], ...] = of(lambda f: f.run, _RUN, "run_")
PREFILL: tuple[Column[TaskFigures], ...] = of(lambda f: f.prefill, _PREFILL, "prefill_")
STEP: tuple[Column[TaskFigures], ...] = of(lambda f: f.decode_step, _STEP, "decode_step_")
_PER_TOKEN = replace(units.MS_ALONE, suffix="")
SPEED: tuple[Column[TaskFigures], ...] = (
    Column("new_tokens_per_s", lambda f: f.new_tokens_per_s, "tokens/sec", units.RATE, "Tokens/s"),
    Column("ns_per_new_token", lambda f: f.ns_per_new_token, "msec/token", _PER_TOKEN, csv=False),
)
BESIDE: tuple[Column[TaskFigures], ...] = (
    Column("peak", lambda f: f.peak_bytes, "Peak memory", units.GIB),
    Column("first_run_excess", lambda f: f.first_run_excess, csv=False),
)
"""Beside times: of a batch size or a document as a whole."""

FACTS: tuple[Column[DirectFacts], ...] = (
    Column("device", lambda facts: facts.device),
    Column("memory_bytes", lambda facts: facts.memory_bytes),
    Column("on_cpu", lambda facts: facts.on_cpu),
    Column("weights", lambda facts: facts.dtype, "In effect", units.WORD),
    Column("parameters", lambda facts: facts.parameters, "Parameters", units.NUMBER),
    Column("weights", lambda facts: facts.weights_bytes, "Size of weights", units.GIB),
    Column("tokenizer", lambda facts: facts.tokenizer),
    Column("load", lambda facts: facts.load_ns, "Loaded in", units.SECONDS),
)


@dataclass(frozen=True, slots=True)
class DirectRow(TrialRow):
    """A batch size that was tried, or a document."""

    task: TaskSummary
    found: TaskFigures

    def figures(self) -> TaskFigures:
        """Of it."""
        return self.found

    @property
    def model(self) -> DirectRecord:
        """What was loaded."""
        return next(m for m in self.run.of(DirectRecord) if m.model == self.task.trial.model)

    def word(self) -> str | None:
        """What stands in the cells of one without figures; None where it has some."""
        if self.ok and self.found.runs:
            return None
        word = cell_word(self.end)
        return word.lower() if word == "OOM" else word


_RUN_ID, _, _TRIAL_ID = PLACE
MODEL: Column[DirectRow] = Column(
    "", lambda row: row.task.trial.model.model_id, "Weights", units.NAME, "Model"
)
BATCH_SIZE: Column[DirectRow] = Column(
    "batch_size", lambda row: row.found.batch_size, "Batch Size", units.ASKED, "Batch"
)
_COLUMNS: tuple[Column[DirectRow], ...] = (
    _RUN_ID,
    _TRIAL_ID,
    MODEL,
    Column("", lambda row: row.trial_id.partition("/")[2], unit=units.NAME, screen="Task"),
    Column("model", lambda row: model_name(row.model.model)),
    Column("weights", lambda row: weights(row.model)),
    Column("device", lambda row: device(row.run, row.model)),
    Column("devices", lambda row: row.model.model.devices),
    Column("parallelism", lambda row: parallelism(row.model.model)),
    Column("task", lambda row: _kind(row.task)),
    BATCH_SIZE,
    OUTCOME,
    Column("runs", lambda row: row.found.runs),
    *of(DirectRow.figures, (*SIZES, *RUN, *PREFILL, *STEP, *SPEED, *BESIDE)),
    Column("reason", lambda row: None if row.end is None else row.end.reason),
    VERDICT,
)


def task_rows(run: Run, tasks: Sequence[TaskSummary]) -> list[DirectRow]:
    """One for each batch size and document."""
    return [
        DirectRow(run, task.trial.trial_id, None, found.end, task, found)
        for task in tasks
        for found in task.figures
    ]


def tasks_csv(run: Run) -> str:
    """One row for each batch size and document; an undefined figure is an empty cell."""
    return Grid(_COLUMNS, task_rows(run, run.of(TaskSummary))).csv()


def tasks_on_screen(run: Run) -> Table:
    """As the CSV's rows."""
    rows = task_rows(run, run.of(TaskSummary))
    return Grid(_COLUMNS, rows, lambda row: None if row.ok else UNDEFINED).screen()


def _kind(task: TaskSummary) -> str:
    return "generate" if isinstance(task.trial.task, GenerateTask) else "summarize"


def task_json(summary: TaskSummary, verdict: str) -> Json:
    """One task trial of the JSON document. verdict: VALID or INVALID, its own."""
    trial, found = summary.trial, summary.largest
    return {
        "trial_id": trial.trial_id,
        "model_id": trial.model.model_id,
        "task": _kind(summary),
        "asked": task_asked(trial),
        "runs_asked": trial.runs,
        "warmups": trial.warmups,
        **ended(summary.end),
        "verdict": verdict,
        "figures": [_figures(f) for f in summary.figures],
        "largest": None if found is None else {"fits": found.fits, "too_large": found.too_large},
    }


def _figures(f: TaskFigures) -> Json:
    return {
        "batch_size": f.batch_size,
        **ended(f.end),
        "runs_counted": f.runs,
        **fields(SIZES, f),
        "run": _distribution(f.run),
        "prefill": _distribution(f.prefill),
        "decode_step": _distribution(f.decode_step),
        **fields((*SPEED, *BESIDE), f),
    }


def _distribution(found: Distribution | None) -> Json:
    return None if found is None else fields(DISTRIBUTION, found)


def model_json(record: DirectRecord) -> Json:
    """One model of the JSON document: what was asked, without its limits, and what was loaded."""
    facts, asked = record.facts, asdict(record.model)
    del asked["memory_limit_bytes"], asked["load_timeout_s"]
    loaded: Json = None
    if facts is not None:
        loaded = {**fields(FACTS, facts), "details": dict(facts.details)}
    return {**asked, "loaded": loaded, "failure": record.failure}

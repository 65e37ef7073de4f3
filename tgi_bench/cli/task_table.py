"""What `tgi-bench plan` prints of an experiment of direct mode."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from tgi_bench.plan.plan import Plan
from tgi_bench.plan.task_trial import (
    DirectModel,
    GenerateTask,
    SummarizeTask,
    TaskDevice,
    TaskTrial,
)
from tgi_bench.report.durations import counted

_HEADERS = ("Task", "Prompt", "New", "Batch", "Calls", "Runs")
_GIB = 2**30


def print_tasks(console: Console, plan: Plan) -> None:
    """Each model with its trials, in the order in which they run."""
    models = plan.direct_models
    for number, model in enumerate(models, start=1):
        console.print()
        place = f"model {number}/{len(models)}  {model.model_id}"
        console.print(place, style="bold", markup=False)
        console.print(f"  {_how(model)}", markup=False, soft_wrap=not console.is_terminal)
        console.print(_table([t for t in plan.task_trials if t.model == model]))
    console.print()
    counts = f"{counted(len(models), 'model')}, {counted(len(plan.task_trials), 'trial')}"
    console.print(counts, markup=False)
    if any(trial.batch_size is None for trial in plan.task_trials):
        line = "to OOM: doubled until memory runs out, then halved in between; each is measured"
        console.print(line, markup=False, soft_wrap=not console.is_terminal)


def _how(model: DirectModel) -> str:
    """How the model is loaded."""
    where = (
        "CUDA, or else the CPU" if model.device is TaskDevice.AUTO else model.device.value.upper()
    )
    parts = ["transformers", model.dtype.value, where]
    if model.num_shard > 1:
        parts.append(f"tensor parallel over {model.num_shard} devices")
    if model.layer_split > 1:
        parts.append(f"layers split over {model.layer_split} devices")
    if model.random_weights:
        parts.append(f"random weights (seed {model.weights_seed})")
    if model.memory_limit_bytes is not None:
        parts.append(f"at most {model.memory_limit_bytes / _GIB:.3g} GiB of memory")
    return ", ".join(parts)


def _table(trials: list[TaskTrial]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 2), header_style="")
    for name in _HEADERS:
        table.add_column(name, justify="left" if name == "Task" else "right", no_wrap=True)
    for trial in trials:
        table.add_row(*_sizes(trial), f"{trial.warmups}+{trial.runs}")
    return table


def _sizes(trial: TaskTrial) -> tuple[str, ...]:
    match trial.task:
        case GenerateTask(prompt, new, size, find):
            batch = str(size)
            if find is not None:
                batch = f"{find.start} to OOM, at most {find.highest}"
            return "generate", str(prompt), str(new), batch, "1"
        case SummarizeTask(document_tokens=int(tokens)) as task:
            calls = f"{-(-tokens // task.chunk_tokens)} map + reduce"
            return "summarize", str(tokens), _new_tokens(task), "1", calls
        case SummarizeTask() as task:
            return "summarize", task.file or "-", _new_tokens(task), "1", "map + reduce"


def _new_tokens(task: SummarizeTask) -> str:
    """Of a map call and of a reduce call."""
    return f"{task.map_new_tokens}, {task.reduce_new_tokens}"

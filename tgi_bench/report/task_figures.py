"""Direct mode in the JSON and CSV documents."""

from __future__ import annotations

from tgi_bench.analysis.distribution import Distribution
from tgi_bench.analysis.run import Run
from tgi_bench.analysis.task_run import DirectRecord, TaskFigures, TaskSummary
from tgi_bench.plan.task_trial import GenerateTask
from tgi_bench.report import task_words
from tgi_bench.report.json_text import Json
from tgi_bench.report.table import Table, csv_text
from tgi_bench.report.words import NOT_FINISHED

TASK_CSV_HEADERS = (
    "run_id",
    "trial_id",
    "model",
    "weights",
    "device",
    "devices",
    "parallelism",
    "task",
    "batch_size",
    "outcome",
    "runs",
    "prompt_tokens",
    "new_tokens",
    "calls",
    "run_mean_ns",
    "run_lowest_ns",
    "run_highest_ns",
    "prefill_mean_ns",
    "decode_step_mean_ns",
    "decode_step_p50_ns",
    "decode_step_p99_ns",
    "new_tokens_per_s",
    "peak_bytes",
    "reason",
    "verdict",
)


def tasks_csv(run: Run) -> str:
    """One row for each batch size and document; an undefined figure is an empty cell."""
    records = {record.model.model_id: record for record in run.models}
    rows = tuple(
        _row(run, records[task.trial.model.model_id], (task, figures))
        for task in run.tasks
        for figures in task.figures
    )
    return csv_text(Table(TASK_CSV_HEADERS, rows))


def _row(run: Run, record: DirectRecord, found: tuple[TaskSummary, TaskFigures]) -> tuple[str, ...]:
    task, f = found
    end = f.end
    step = f.decode_step
    figures: tuple[float | None, ...] = (
        f.prompt_tokens,
        f.new_tokens,
        f.calls,
        *((None,) * 3 if f.run is None else (f.run.mean, f.run.lowest, f.run.highest)),
        None if f.prefill is None else f.prefill.mean,
        *((None,) * 3 if step is None else (step.mean, step.p50, step.p99)),
        f.new_tokens_per_s,
        f.peak_bytes,
    )
    return (
        run.run_id,
        task.trial.trial_id,
        task_words.model_name(record.model),
        task_words.weights(record),
        task_words.device(run, record),
        str(record.model.devices),
        task_words.parallelism(record.model),
        _kind(task),
        str(f.batch_size),
        NOT_FINISHED.replace(" ", "_") if end is None else end.outcome.value,
        str(f.runs),
        *("" if value is None else repr(value) for value in figures),
        "" if end is None else end.reason,
        run.verdict.word_of(task.trial.trial_id, None),
    )


def _kind(task: TaskSummary) -> str:
    return "generate" if isinstance(task.trial.task, GenerateTask) else "summarize"


def task_json(summary: TaskSummary, verdict: str) -> Json:
    """One task trial of the JSON document. verdict: VALID or INVALID, its own."""
    trial, end, found = summary.trial, summary.end, summary.largest
    return {
        "trial_id": trial.trial_id,
        "model_id": trial.model.model_id,
        "task": _kind(summary),
        "asked": task_words.task_asked(trial),
        "runs_asked": trial.runs,
        "warmups": trial.warmups,
        "outcome": None if end is None else end.outcome.value,
        "reason": "" if end is None else end.reason,
        "verdict": verdict,
        "figures": [_figures(f) for f in summary.figures],
        "largest": None if found is None else {"fits": found.fits, "too_large": found.too_large},
    }


def _figures(f: TaskFigures) -> Json:
    return {
        "batch_size": f.batch_size,
        "outcome": None if f.end is None else f.end.outcome.value,
        "reason": "" if f.end is None else f.end.reason,
        "runs_counted": f.runs,
        "prompt_tokens": f.prompt_tokens,
        "new_tokens": f.new_tokens,
        "calls": f.calls,
        "run": _distribution(f.run),
        "prefill": _distribution(f.prefill),
        "decode_step": _distribution(f.decode_step),
        "new_tokens_per_s": f.new_tokens_per_s,
        "ns_per_new_token": f.ns_per_new_token,
        "peak_bytes": f.peak_bytes,
        "first_run_excess": f.first_run_excess,
    }


def _distribution(found: Distribution | None) -> Json:
    if found is None:
        return None
    return {
        "samples": found.count,
        "mean_ns": found.mean,
        "lowest_ns": found.lowest,
        "highest_ns": found.highest,
        "p50_ns": found.p50,
        "p90_ns": found.p90,
        "p99_ns": found.p99,
    }


def model_json(record: DirectRecord) -> Json:
    """One model of the JSON document."""
    model, facts = record.model, record.facts
    said: Json = None
    if facts is not None:
        said = {
            "device": facts.device,
            "memory_bytes": facts.memory_bytes,
            "on_cpu": facts.on_cpu,
            "weights": facts.dtype,
            "parameters": facts.parameters,
            "weights_bytes": facts.weights_bytes,
            "tokenizer": facts.tokenizer,
            "load_ns": facts.load_ns,
            "details": dict(facts.details),
        }
    return {
        "model_id": model.model_id,
        "model": model.model,
        "random_weights": model.random_weights,
        "weights_seed": model.weights_seed,
        "dtype": model.dtype.value,
        "device": model.device.value,
        "num_shard": model.num_shard,
        "layer_split": model.layer_split,
        "loaded": said,
        "failure": record.failure,
    }

"""`tgi-bench plan`: what would be run, in order, and what the estimate says of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console

from tgi_bench.analysis.planned import KV_POOL, PlanEstimate, TrialEstimate, plan_estimate
from tgi_bench.analysis.remaining import LoadTime, load_times
from tgi_bench.cli.files import ExperimentRequest, assumed_accelerator, chooser, idle_skip_notes
from tgi_bench.cli.load_table import load_table
from tgi_bench.cli.tables import print_folded, say, standard_output
from tgi_bench.engines.engine import Engine, engine_spec
from tgi_bench.engines.versions import NEWEST, is_known
from tgi_bench.plan.plan import BatchTrial, Deployment, Plan
from tgi_bench.report.durations import counted, duration
from tgi_bench.report.table import Table
from tgi_bench.trials.direct import (
    DirectModel,
    GenerateTask,
    SummarizeTask,
    TaskDevice,
    TaskTrial,
)

GIB = 2**30
_SIZES = ("Sequence", "Decode", "Batch")
_FIGURES = ("Prefill step", "Decode step", "Trial", "Memory/device", "Fits", "Bound")
_CALIBRATED = ("Prefill, calibrated", "Decode, calibrated", "Trial, calibrated")
_TASKS = ("Task", "Prompt", "New", "Batch", "Calls", "Runs")
_WORDS = frozenset({"Fits", "Bound", "Task"})
"""Columns that are no figures."""


def run(request: ExperimentRequest) -> None:
    """Print the plan of an experiment."""
    experiment, plan = request.load()
    console = standard_output()
    estimated, times = plan_estimate(plan, chooser), load_times(plan)
    known = estimated.trials
    _print_head(console, plan)
    if plan.task_trials:
        _print_tasks(console, plan)
        return
    for number, deployment in enumerate(plan.deployments, start=1):
        console.print()
        _print_deployment(console, deployment, f"{number}/{len(plan.deployments)}")
        trials = [t for t in plan.trials if t.deployment_id == deployment.deployment_id]
        if trials:
            print_folded(console, _trial_table(trials, known), len(_SIZES))
        loads = [t for t in plan.load_trials if t.deployment_id == deployment.deployment_id]
        if loads:
            console.print(load_table(console, loads, times))
    console.print()
    _print_foot(console, plan, estimated, assumed_accelerator(experiment))
    _print_times(console, plan, known, times)
    for note in idle_skip_notes(experiment):
        console.print(note)


def _print_head(console: Console, plan: Plan) -> None:
    console.print(f"experiment  {plan.experiment}")
    console.print(f"model       {plan.model}")
    console.print(f"plan        {plan.digest[:12]}")
    for override in plan.overrides:
        console.print(f"override    {override.key_path}={override.value}")


def _print_deployment(console: Console, deployment: Deployment, position: str) -> None:
    assumed = ", assumed" if deployment.version_assumed else ""
    version = f"{engine_spec(deployment.engine).title} {deployment.tgi_version}".rstrip()
    if deployment.engine is Engine.TGI and not is_known(deployment.tgi_version):
        version += f" (newer than {NEWEST}, whose arguments are taken)"
    console.print(f"deployment {position}  {deployment.deployment_id}", style="bold")
    launcher = f"{deployment.launcher.name} {deployment.launcher.words(deployment)}"
    say(console, f"  {launcher}, {version}{assumed}")
    if deployment.env:
        console.print(f"  handed on by name: {', '.join(deployment.env)}")
    given = " ".join(f"{a.name}={a.value}" for a in deployment.arguments if a.value is not None)
    console.print(f"  {given or 'launcher arguments: defaults only'}")


def _trial_table(trials: Sequence[BatchTrial], known: Mapping[str, TrialEstimate]) -> Table:
    """Uncalibrated figures and what bounds them; calibrated ones where there are any."""
    estimates = [known.get(trial.trial_id) for trial in trials]
    calibrated = any(e is not None and e.calibrated for e in estimates)
    headers = (*_SIZES, "Runs", *_FIGURES, *(_CALIBRATED if calibrated else ()))
    rows = []
    for trial, estimate in zip(trials, estimates, strict=True):
        sizes = (trial.sequence_length, trial.decode_length, trial.batch_size)
        runs = f"{trial.warmups}+{trial.runs}"
        rows.append((*map(str, sizes), runs, *_estimated(estimate))[: len(headers)])
    return _table(headers, rows)


def _table(headers: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    right = frozenset(i for i, name in enumerate(headers) if name not in _WORDS)
    return Table(headers, tuple(rows), right)


def _estimated(estimate: TrialEstimate | None) -> tuple[str, ...]:
    """Uncalibrated figures, the bounds, calibrated figures."""
    if estimate is None:
        return ("-",) * len((*_FIGURES, *_CALIBRATED))
    fitted = estimate.calibrated
    return (
        duration(estimate.times.prefill_s),
        _duration(estimate.times.decode_s),
        duration(estimate.times.total_s) if estimate.fits else "-",
        f"{estimate.bytes_per_device / GIB:.1f} GiB",
        f"NO: {estimate.obstacle}" if estimate.obstacle else "yes",
        _bounds(estimate),
        "-" if fitted is None else duration(fitted.prefill_s),
        "-" if fitted is None else _duration(fitted.decode_s),
        duration(fitted.total_s) if fitted is not None and estimate.fits else "-",
    )


def _duration(seconds: float | None) -> str:
    return "-" if seconds is None else duration(seconds)


def _bounds(estimate: TrialEstimate) -> str:
    """What prefill and decode steps wait for, by the calibrated constants where there are."""
    times = estimate.calibrated or estimate.times
    decode = "" if times.decode_bound is None else f", {times.decode_bound}"
    return times.prefill_bound + decode


def _print_foot(console: Console, plan: Plan, estimated: PlanEstimate, assumed: str | None) -> None:
    known = estimated.trials
    fitting = [estimate for estimate in known.values() if estimate.fits]
    counts = [counted(len(plan.deployments), "deployment")]
    if plan.trials:
        counts.append(counted(len(plan.trials), "trial"))
    if plan.load_trials:
        counts.append(counted(len(plan.load_trials), "load"))
    console.print(", ".join(counts))
    if known:
        # One section names it for all: without one there, no trial is `known`.
        accelerator = plan.deployments[0].planned_accelerator
        seconds = f"{duration(sum(e.times.total_s for e in fitting))} of steps"
        fitted = [e.calibrated.total_s for e in fitting if e.calibrated is not None]
        if fitted:
            seconds += f", calibrated {duration(sum(fitted))}"
            if len(fitted) < len(fitting):
                seconds += f" of {counted(len(fitted), 'trial')}"
        kind = "uncalibrated" if fitted else "not calibrated"
        named = "server.embedded.accelerator"
        if assumed is not None:
            named = f"assumed, for nothing names it; {named} does"
        say(
            console,
            f"estimated for {accelerator} ({named}), {kind}: "
            f"{seconds}; {counted(len(known) - len(fitting), 'trial')} will not fit",
        )
        for sentence in estimated.calibrations:
            say(console, sentence)
    if any(estimate.obstacle == KV_POOL for estimate in known.values()):
        say(
            console,
            "KV pool: the server's pool takes what its warm-up left; a batch must fit into it, and "
            "its prefill beside it (raise max_batch_prefill_tokens)",
        )
    for deployment in plan.deployments[:1]:
        if plan.trials and not engine_spec(deployment.engine).has_shards:
            say(
                console,
                f"{engine_spec(deployment.engine).title} has no gRPC shards: its batches will end "
                "`refused`",
            )
    for reason, embedded in estimated.unknown:
        if not embedded and not plan.trials:
            continue  # loads are measured by the clock: nothing of them is estimated
        what = "cannot start" if embedded else "no estimate"
        say(console, f"{what}: {reason}")


def _print_times(
    console: Console, plan: Plan, known: dict[str, TrialEstimate], times: dict[str, LoadTime]
) -> None:
    """How long the loads take, and the whole; starts of servers are in neither."""
    if not plan.load_trials:
        return
    loads_s = sum(time.total_s for time in times.values())
    unknown = len(plan.load_trials) - len(times)
    early = any(time.at_most for time in times.values())
    line = f"loads: {'at most ' if early else ''}{duration(loads_s)}"
    if unknown:
        line += f", and {counted(unknown, 'load')} of unknown length"
    fitting = [estimate.times.total_s for estimate in known.values() if estimate.fits]
    if plan.trials and len(known) == len(plan.trials):
        line += f"; with the batches {duration(loads_s + sum(fitting))}, starts not counted"
    say(console, line)


def _print_tasks(console: Console, plan: Plan) -> None:
    """Each model with its trials, in the order in which they run."""
    models = plan.direct_models
    for number, model in enumerate(models, start=1):
        console.print()
        place = f"model {number}/{len(models)}  {model.model_id}"
        console.print(place, style="bold")
        say(console, f"  {_how_loaded(model)}")
        trials = [t for t in plan.task_trials if t.model == model]
        rows = ((*_task_sizes(t), f"{t.warmups}+{t.runs}") for t in trials)
        print_folded(console, _table(_TASKS, rows), 4)
    console.print()
    counts = f"{counted(len(models), 'model')}, {counted(len(plan.task_trials), 'trial')}"
    console.print(counts)
    if any(trial.batch_size is None for trial in plan.task_trials):
        line = "to OOM: doubled until memory runs out, then halved in between; each is measured"
        say(console, line)


def _how_loaded(model: DirectModel) -> str:
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
        parts.append(f"at most {model.memory_limit_bytes / GIB:.3g} GiB of memory")
    return ", ".join(parts)


def _task_sizes(trial: TaskTrial) -> tuple[str, ...]:
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

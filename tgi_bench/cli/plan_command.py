"""`tgi-bench plan`: what would be run, in order, and what the estimate says of it."""

from __future__ import annotations

import shlex

from rich.console import Console
from rich.table import Table

from tgi_bench.cli.console import standard_output
from tgi_bench.cli.durations import counted, duration
from tgi_bench.cli.estimates import (
    KV_POOL,
    LoadTime,
    TrialEstimate,
    estimates,
    load_times,
    why_unknown,
)
from tgi_bench.cli.experiment_file import Request, idle_skip_notes
from tgi_bench.cli.load_table import load_table
from tgi_bench.cli.task_table import print_tasks
from tgi_bench.plan.engines import engine_spec
from tgi_bench.plan.launcher_args import NEWEST, is_known
from tgi_bench.plan.plan import (
    AttachOptions,
    BatchTrial,
    Deployment,
    DockerOptions,
    Engine,
    Plan,
    ProcessOptions,
    TransformersOptions,
)

GIB = 2**30
_HEADERS = (
    "Sequence",
    "Decode",
    "Batch",
    "Runs",
    "Prefill step",
    "Decode step",
    "Trial",
    "Memory/device",
    "Fits",
)
_SHORT_HEADERS = ("Seq", "Dec", "Batch", "Runs", "Prefill", "Decode", "Trial", "Memory", "Fits")
_WIDE = 120
"""Columns of a terminal that the table takes with its whole headers."""


def run(request: Request) -> None:
    """Print the plan of an experiment."""
    experiment, plan = request.load()
    console = standard_output()
    known, times = estimates(plan), load_times(plan)
    _print_head(console, plan)
    if plan.task_trials:
        print_tasks(console, plan)
        return
    for number, deployment in enumerate(plan.deployments, start=1):
        console.print()
        _print_deployment(console, deployment, f"{number}/{len(plan.deployments)}")
        trials = [t for t in plan.trials if t.deployment_id == deployment.deployment_id]
        if trials:
            console.print(_trial_table(console, trials, known))
        loads = [t for t in plan.load_trials if t.deployment_id == deployment.deployment_id]
        if loads:
            console.print(load_table(console, loads, times))
    console.print()
    _print_foot(console, plan, known)
    _print_times(console, plan, known, times)
    for note in idle_skip_notes(experiment):
        console.print(note, markup=False)


def _print_head(console: Console, plan: Plan) -> None:
    console.print(f"experiment  {plan.experiment}", markup=False)
    console.print(f"model       {plan.model}", markup=False)
    console.print(f"plan        {plan.digest[:12]}", markup=False)
    for override in plan.overrides:
        console.print(f"override    {override.key_path}={override.value}", markup=False)


def _print_deployment(console: Console, deployment: Deployment, position: str) -> None:
    assumed = ", assumed" if deployment.version_assumed else ""
    version = f"{engine_spec(deployment.engine).title} {deployment.tgi_version}".rstrip()
    if deployment.engine is Engine.TGI and not is_known(deployment.tgi_version):
        version += f" (newer than {NEWEST}, whose arguments are taken)"
    console.print(f"deployment {position}  {deployment.deployment_id}", style="bold", markup=False)
    console.print(
        f"  {_host(deployment)}, {version}{assumed}",
        markup=False,
        soft_wrap=not console.is_terminal,
    )
    if deployment.env:
        console.print(f"  handed on by name: {', '.join(deployment.env)}", markup=False)
    given = " ".join(f"{a.name}={a.value}" for a in deployment.arguments if a.value is not None)
    console.print(f"  {given or 'launcher arguments: defaults only'}", markup=False)


def _host(deployment: Deployment) -> str:
    """The launcher and what it starts: an image, a command, an address."""
    launcher = deployment.launcher.value
    match deployment.host:
        case DockerOptions():
            gpus = deployment.host.gpus
            return f"{launcher} {deployment.image}, GPUs: {gpus or deployment.num_shard}"
        case ProcessOptions(command):
            return f"{launcher} {shlex.join(command or engine_spec(deployment.engine).program)}"
        case AttachOptions(url, socket, _):
            return f"{launcher} {url}, sockets: {socket or 'none'}"
        case TransformersOptions(device, random_weights):
            weights = ", random weights" if random_weights else ""
            return f"{launcher} ({deployment.embedded.engine}, device {device}{weights})"
        case None:
            embedded = deployment.embedded
            return f"{launcher} ({embedded.engine}, {embedded.accelerator})"


def _trial_table(
    console: Console, trials: list[BatchTrial], known: dict[str, TrialEstimate]
) -> Table:
    narrow = console.width < _WIDE
    table = Table(box=None, padding=(0, 1) if narrow else (0, 2, 0, 2), header_style="")
    for name in _SHORT_HEADERS if narrow else _HEADERS:
        table.add_column(name, justify="left" if name == "Fits" else "right", no_wrap=True)
    for trial in trials:
        sizes = (trial.sequence_length, trial.decode_length, trial.batch_size)
        runs = f"{trial.warmups}+{trial.runs}"
        table.add_row(*map(str, sizes), runs, *_estimated_cells(known.get(trial.trial_id)))
    return table


def _estimated_cells(estimate: TrialEstimate | None) -> tuple[str, ...]:
    if estimate is None:
        return ("-",) * 5
    decode = "-" if estimate.decode_s is None else duration(estimate.decode_s)
    return (
        duration(estimate.prefill_s),
        decode,
        duration(estimate.total_s) if estimate.fits else "-",
        f"{estimate.bytes_per_device / GIB:.1f} GiB",
        f"NO: {estimate.obstacle}" if estimate.obstacle else "yes",
    )


def _print_foot(console: Console, plan: Plan, known: dict[str, TrialEstimate]) -> None:
    fitting = [estimate for estimate in known.values() if estimate.fits]
    counts = [counted(len(plan.deployments), "deployment")]
    if plan.trials:
        counts.append(counted(len(plan.trials), "trial"))
    if plan.load_trials:
        counts.append(counted(len(plan.load_trials), "load"))
    console.print(", ".join(counts), markup=False)
    if known:
        accelerator = plan.deployments[0].embedded.accelerator
        console.print(
            f"estimated for {accelerator} (server.embedded.accelerator), not calibrated: "
            f"{duration(sum(e.total_s for e in fitting))} of steps; "
            f"{counted(len(known) - len(fitting), 'trial')} will not fit",
            markup=False,
            soft_wrap=not console.is_terminal,
        )
    if any(estimate.obstacle == KV_POOL for estimate in known.values()):
        console.print(
            "KV pool: the server's pool takes what its warm-up left; a batch must fit into it, and "
            "its prefill beside it (raise max_batch_prefill_tokens)",
            markup=False,
            soft_wrap=not console.is_terminal,
        )
    for deployment in plan.deployments[:1]:
        if plan.trials and not engine_spec(deployment.engine).has_shards:
            console.print(
                f"{engine_spec(deployment.engine).title} has no gRPC shards: its batches will end "
                "`refused`",
                markup=False,
                soft_wrap=not console.is_terminal,
            )
    for reason, embedded in why_unknown(plan):
        if not embedded and not plan.trials:
            continue  # loads are measured by the clock: nothing of them is estimated
        what = "cannot start" if embedded else "no estimate"
        console.print(f"{what}: {reason}", markup=False, soft_wrap=not console.is_terminal)


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
    fitting = [estimate.total_s for estimate in known.values() if estimate.fits]
    if plan.trials and len(known) == len(plan.trials):
        line += f"; with the batches {duration(loads_s + sum(fitting))}, starts not counted"
    console.print(line, markup=False, soft_wrap=not console.is_terminal)

"""`tgi-bench plan`: what would be run, in order, and what the estimate says of it."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from tgi_bench.analysis.planned import KV_POOL, PlanEstimate, TrialEstimate, plan_estimate
from tgi_bench.analysis.remaining import LoadTime, load_times
from tgi_bench.cli.files import ExperimentRequest, assumed_accelerator, chooser, idle_skip_notes
from tgi_bench.cli.load_table import load_table
from tgi_bench.cli.tables import standard_output
from tgi_bench.cli.task_table import print_tasks
from tgi_bench.engines.engine import Engine, engine_spec
from tgi_bench.engines.versions import NEWEST, is_known
from tgi_bench.plan.plan import BatchTrial, Deployment, Plan
from tgi_bench.report.durations import counted, duration

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
_BOUND = ("Bound",)
_SHORT_HEADERS = ("Seq", "Dec", "Batch", "Runs", "Prefill", "Decode", "Trial", "Memory", "Fits")
_CALIBRATED_HEADERS = ("Prefill, calibrated", "Decode, calibrated", "Trial, calibrated")
_CALIBRATED_ALONE = ("Seq", "Dec", "Batch", "Prefill", "Decode", "Trial", "Bound")
_LEFT = ("Fits", "Bound")
_ROOM_FOR_BOUND, _ROOM_FOR_ALL = 145, 215
"""Columns of a terminal from which the table has the bounds, and the calibrated figures."""
_WIDE = 120
"""Columns of a terminal that the table takes with its whole headers."""


def run(request: ExperimentRequest) -> None:
    """Print the plan of an experiment."""
    experiment, plan = request.load()
    console = standard_output()
    estimated, times = plan_estimate(plan, chooser), load_times(plan)
    known = estimated.trials
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
            calibrated = _calibrated_table(console, trials, known)
            if calibrated is not None:
                console.print("  calibrated:", markup=False)
                console.print(calibrated)
        loads = [t for t in plan.load_trials if t.deployment_id == deployment.deployment_id]
        if loads:
            console.print(load_table(console, loads, times))
    console.print()
    _print_foot(console, plan, estimated, assumed_accelerator(experiment))
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
    launcher = f"{deployment.launcher.name} {deployment.launcher.words(deployment)}"
    console.print(
        f"  {launcher}, {version}{assumed}",
        markup=False,
        soft_wrap=not console.is_terminal,
    )
    if deployment.env:
        console.print(f"  handed on by name: {', '.join(deployment.env)}", markup=False)
    given = " ".join(f"{a.name}={a.value}" for a in deployment.arguments if a.value is not None)
    console.print(f"  {given or 'launcher arguments: defaults only'}", markup=False)


def _trial_table(
    console: Console, trials: list[BatchTrial], known: dict[str, TrialEstimate]
) -> Table:
    """Uncalibrated figures; where there is room, bounds and calibrated figures beside them."""
    narrow, bound = console.width < _WIDE, console.width >= _ROOM_FOR_BOUND
    both = bound and console.width >= _ROOM_FOR_ALL and _calibrated(trials, known)
    headers = (*(_SHORT_HEADERS if narrow else _HEADERS), *(_BOUND if bound else ()))
    table = _table(console, (*headers, *(_CALIBRATED_HEADERS if both else ())))
    for trial in trials:
        sizes = (trial.sequence_length, trial.decode_length, trial.batch_size)
        runs = f"{trial.warmups}+{trial.runs}"
        cells = _estimated_cells(known.get(trial.trial_id))
        table.add_row(*[*map(str, sizes), runs, *cells][: len(table.columns)])
    return table


def _calibrated_table(
    console: Console, trials: list[BatchTrial], known: dict[str, TrialEstimate]
) -> Table | None:
    """The calibrated figures, where the other table has no room for them; None without any."""
    if console.width >= _ROOM_FOR_ALL or not _calibrated(trials, known):
        return None
    table = _table(console, _CALIBRATED_ALONE)
    for trial in trials:
        sizes = (trial.sequence_length, trial.decode_length, trial.batch_size)
        cells = _estimated_cells(known.get(trial.trial_id))
        table.add_row(*map(str, sizes), *cells[-3:], cells[-4])
    return table


def _calibrated(trials: list[BatchTrial], known: dict[str, TrialEstimate]) -> bool:
    return any((e := known.get(t.trial_id)) is not None and e.calibrated for t in trials)


def _table(console: Console, headers: tuple[str, ...]) -> Table:
    narrow = console.width < _WIDE
    table = Table(box=None, padding=(0, 1) if narrow else (0, 2, 0, 2), header_style="")
    for name in headers:
        table.add_column(name, justify="left" if name in _LEFT else "right", no_wrap=True)
    return table


def _estimated_cells(estimate: TrialEstimate | None) -> tuple[str, ...]:
    """Uncalibrated figures, the bounds, calibrated figures."""
    if estimate is None:
        return ("-",) * (len(_HEADERS) - 4 + len(_BOUND) + len(_CALIBRATED_HEADERS))
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
    console.print(", ".join(counts), markup=False)
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
        console.print(
            f"estimated for {accelerator} ({named}), {kind}: "
            f"{seconds}; {counted(len(known) - len(fitting), 'trial')} will not fit",
            markup=False,
            soft_wrap=not console.is_terminal,
        )
        for sentence in estimated.calibrations:
            console.print(sentence, markup=False, soft_wrap=not console.is_terminal)
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
    for reason, embedded in estimated.unknown:
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
    fitting = [estimate.times.total_s for estimate in known.values() if estimate.fits]
    if plan.trials and len(known) == len(plan.trials):
        line += f"; with the batches {duration(loads_s + sum(fitting))}, starts not counted"
    console.print(line, markup=False, soft_wrap=not console.is_terminal)

"""`tgi-bench sweep`: from a YAML file to reports."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tgi_bench.cli.files import ExperimentRequest, idle_skip_notes
from tgi_bench.cli.output import FAILED, INTERRUPTED, INVALID, MISSED, echo
from tgi_bench.drive.workers import Ahead, started_ahead
from tgi_bench.errors import NotRecordedError, ResultsError, TgiBenchError
from tgi_bench.kinds.batch.metrics import TrialSummary
from tgi_bench.kinds.direct.figures import TaskSummary
from tgi_bench.kinds.load.figures import LoadSummary
from tgi_bench.load_observation import ClientFloor, LoadStage
from tgi_bench.observation import Outcome
from tgi_bench.plan.experiment import AnyExperiment, to_json
from tgi_bench.plan.plan import Deployment, Plan
from tgi_bench.record.environment import Questions, asking
from tgi_bench.report.durations import counted
from tgi_bench.report.source import EXPERIMENT_FILE, OPTIONS, RESULTS

if TYPE_CHECKING:
    # A load's first byte waits for every import: each of these is made where it is used.
    from rich.console import Console

    from tgi_bench.analysis.run import Run
    from tgi_bench.record.store import RunStore

_FINE = (Outcome.OK, Outcome.OUT_OF_MEMORY, Outcome.SKIPPED, Outcome.REFUSED)


DEFAULT_RESULTS = Path("results")
QUICK_FLOOR_STREAMS = 256
"""More streams than that do not make the client's error a question of another kind."""


@dataclass(frozen=True, slots=True)
class SweepAsked:
    """What is to be swept, and a row of the environment that says where it was said."""

    experiment: AnyExperiment
    plan: Plan
    source: tuple[str, str]


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """How a sweep is made. results: the folder of all runs. pull: missing images may be pulled."""

    results: Path
    resume: bool
    pull: bool


def run(request: ExperimentRequest, options: SweepOptions) -> int:
    """Run the sweep of a file, or go on with one; returns the exit code."""
    experiment, plan = request.load()
    return sweep(SweepAsked(experiment, plan, (EXPERIMENT_FILE, _shown(request.file))), options)


def sweep(sought: SweepAsked, options: SweepOptions) -> int:
    """Run the sweep, or go on with one, and write its reports; returns the exit code."""
    plan = sought.plan
    for deployment in plan.deployments:
        deployment.launcher.require_startable(deployment)
        _require_computable(deployment)
    if plan.task_trials:
        from tgi_bench.torch_engine.spec import require_extra

        require_extra()
    if any(trial.workload.file is not None for trial in plan.load_trials):
        from tgi_bench.drive.load_files import require_files

        require_files(plan.load_trials)
    if any(trial.tokenizer is not None for trial in plan.load_trials):
        from tgi_bench.drive.load_files import require_package

        require_package()
    with started_ahead(_workers_ahead(plan)) as ahead:
        with asking() as questions:
            made = _made(sought, options, questions)
        return _run(made, plan, options, ahead)


def _workers_ahead(plan: Plan) -> int:
    """Workers of the load client to start at once: one, where a load is the first thing done."""
    runs_already = not any(d.launcher.started_by_us for d in plan.deployments)
    return 1 if runs_already and plan.load_trials and not plan.trials else 0


@dataclass(frozen=True, slots=True)
class _Made:
    """A run's folder with its file. resumed: of its environment, where it is gone on with."""

    run_dir: Path
    console: Console
    resumed: tuple[tuple[str, str], ...] = ()


def _made(sought: SweepAsked, options: SweepOptions, questions: Questions) -> _Made:
    """A new run, or the one to go on with. Raises ResultsError where there is none."""
    from tgi_bench.cli.tables import standard_output
    from tgi_bench.launch.left_behind import end_left
    from tgi_bench.record.runs import new_run_dir
    from tgi_bench.record.store import RunHeader, RunStore

    console, plan = standard_output(), sought.plan
    for line in end_left({type(d.launcher) for d in plan.deployments}).sentences():
        console.print(line, soft_wrap=True)
    for note in idle_skip_notes(sought.experiment):
        console.print(note)
    for note in dict.fromkeys(n for d in plan.deployments for n in d.launcher.notes()):
        console.print(note, soft_wrap=True)
    if options.resume:
        return _Made(_resumable(options.results, plan), console, questions.resumed())
    run_dir = new_run_dir(options.results, plan.experiment, plan.digest)
    header = RunHeader(
        run_id=run_dir.name,
        experiment_json=to_json(sought.experiment),
        plan=plan,
        origin="measured",
        environment=(
            sought.source,
            *_options(sought, options),
            *_simulated_with(plan),
            *questions.facts(),
        ),
        created_utc=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )
    try:
        RunStore.create(run_dir, header).close()
    except ResultsError:
        with suppress(OSError):
            run_dir.rmdir()  # where nothing is in it
        raise
    return _Made(run_dir, console)


def _options(sought: SweepAsked, options: SweepOptions) -> tuple[tuple[str, str], ...]:
    """What else was typed; the command of a load holds all of it."""
    rows = [] if options.results == DEFAULT_RESULTS else [(RESULTS, str(options.results))]
    if sought.source[0] == EXPERIMENT_FILE and not options.pull:
        rows.append((OPTIONS, "--no-pull"))
    return tuple(rows)


def _simulated_with(plan: Plan) -> tuple[tuple[str, str], ...]:
    """The calibration that the embedded servers compute with, whole: its file may change later."""
    if all(d.launcher.calibration is None for d in plan.deployments):
        return ()
    from tgi_bench.analysis.planned import calibration_of
    from tgi_bench.cli.files import chooser
    from tgi_bench.estimate.calibration import dump
    from tgi_bench.kinds.batch.compared import SIMULATED_WITH

    used = {
        calibration
        for deployment in plan.deployments
        if deployment.simulated and (calibration := calibration_of(deployment, chooser)) is not None
    }
    return tuple((SIMULATED_WITH, dump((calibration,))) for calibration in used)


def _require_computable(deployment: Deployment) -> None:
    """Raise InputError where a server that simulates, or runs the model itself, could not."""
    if deployment.simulated:
        from tgi_bench.analysis.planned import calibration_of, planned_setup
        from tgi_bench.cli.files import chooser

        planned_setup(deployment)
        calibration_of(deployment, chooser)
    elif deployment.launcher.own_device is not None:
        from tgi_bench.torch_engine.spec import require_extra

        require_extra()


def _resumable(results: Path, plan: Plan) -> Path:
    """The run to go on with; what is passed over is named. Raises ResultsError."""
    from tgi_bench.record.database import FILE_NAME
    from tgi_bench.record.runs import newest_unfinished

    found = newest_unfinished(results, plan.experiment, plan.digest)
    for folder in found.empty:
        echo(f"{folder} has no {FILE_NAME}: there is nothing of it to resume", err=True)
    for sentence in found.unreadable:
        echo(f"passed over: {sentence}", err=True)
    if found.run_dir is None:
        where = results / plan.experiment
        raise ResultsError(f"nothing to resume: no unfinished run of this plan below {where}")
    if found.holder is not None:
        raise ResultsError(f"this plan runs now: {found.run_dir} (process {found.holder})")
    return found.run_dir


def _shown(file: Path) -> str:
    """The file as somebody else could name it: below the working folder, else its name."""
    try:
        return str(file.resolve().relative_to(Path.cwd()))
    except ValueError:
        return file.name


def _run(made: _Made, plan: Plan, options: SweepOptions, ahead: Ahead) -> int:
    from tgi_bench.record.runs import REPORT_NAME, RunLock
    from tgi_bench.record.store import RunStore

    interrupted = False
    run_dir, console = made.run_dir, made.console
    try:
        with RunLock(run_dir), RunStore.open(run_dir, writable=True) as store:
            if made.resumed:
                store.add_environment(made.resumed)
                # A sweep that is killed now must not leave one that is out of date.
                (run_dir / REPORT_NAME).unlink(missing_ok=True)
            done = store.ends()
            if done:
                planned = len(plan.trials) + len(plan.load_trials) + len(plan.task_trials)
                console.print(f"{len(done)} of {counted(planned, 'trial')} ended before")
            console.print(f"run      {run_dir}", soft_wrap=True)
            interrupted = not _run_trials(made, plan, store, options.pull, ahead)
            if not interrupted:
                store.finish()
        return _reported(run_dir, console, interrupted)
    except NotRecordedError as error:
        return _not_recorded(made, error)


def _run_trials(made: _Made, plan: Plan, store: RunStore, pull: bool, ahead: Ahead) -> bool:
    """Give every trial an end; False if interrupted."""
    from tgi_bench.analysis.planned import plan_estimate
    from tgi_bench.cli.files import chooser
    from tgi_bench.cli.screen import Screen
    from tgi_bench.sweep import Sweep

    estimates = plan_estimate(plan, chooser).trials
    with Screen(made.console, plan, estimates, store.ends()) as screen:
        try:
            Sweep(plan, store, made.run_dir, screen, pull, ahead).run()
        except KeyboardInterrupt:
            return False
    return not plan.load_trials or _measure_floor(made.console, plan, store)


def _not_recorded(made: _Made, error: NotRecordedError) -> int:
    """Report what was recorded, as far as there is room; returns the exit code."""
    try:
        _reported(made.run_dir, made.console, interrupted=False)
    except (TgiBenchError, OSError) as another:
        if str(another) != str(error):
            made.console.print(f"no report was written: {another}", soft_wrap=True)
    line = f"{error}; what was recorded before stays: make room, then the same command and --resume"
    made.console.print(line, soft_wrap=True)
    return FAILED


def _reported(run_dir: Path, console: Console, interrupted: bool) -> int:
    """Write the reports and say where they are; returns the exit code."""
    from tgi_bench.cli.run_view import KINDS, load, write_documents
    from tgi_bench.cli.summary_table import print_summary
    from tgi_bench.kinds.documents import documents

    seen = load(run_dir)
    try:
        write_documents(run_dir, documents(seen, KINDS))
    finally:
        print_summary(console, seen, KINDS)
    if interrupted:
        console.print("interrupted; go on with the same command and --resume")
    console.print(f"report   {run_dir / 'report.md'}", soft_wrap=True)
    return INTERRUPTED if interrupted else _exit_code(seen)


def _measure_floor(console: Console, plan: Plan, store: RunStore) -> bool:
    """The load client's own error on this machine, beside the figures; False if interrupted."""
    from tgi_bench.drive.load import run_load
    from tgi_bench.selfcheck.report import quick_floor

    for streams in _floors(plan, store):
        at = "in an open loop" if streams is None else f"at {counted(streams, 'stream')}"
        console.print(f"measuring the client's own error {at}")
        try:
            store.add_to_run([quick_floor(streams, run_load)])
        except KeyboardInterrupt:
            return False
        except NotRecordedError:
            raise
        except TgiBenchError as error:
            line = f"the client's own error was not measured: {error}"
            console.print(line, soft_wrap=True)
    return True


def _floors(plan: Plan, store: RunStore) -> tuple[int | None, ...]:
    """Streams to measure the client's error at, None: of an open loop; () where nothing is left.

    Of each closed loop its last stage, which in a search is next to the answer.
    """
    each = [tuple(store.seen(t.trial_id, LoadStage)) for t in plan.load_trials]
    last = [stages[-1] for stages in each if stages]
    closed = [stage.concurrency for stage in last if stage.concurrency is not None]
    found: list[int | None] = [min(QUICK_FLOOR_STREAMS, max(closed))] if closed else []
    if len(closed) < len(last):
        found.append(None)
    measured = {None if f.start_lateness_ns else f.streams for f in store.of_run(ClientFloor)}
    return tuple(streams for streams in found if streams not in measured)


def _exit_code(run: Run) -> int:
    """The worst of it first: what failed, what is not to be believed, what was missed."""
    from tgi_bench.kinds.load.missed import all_met, goals

    ends = [*(t.end for t in run.of(TrialSummary)), *(t.end for t in run.of(LoadSummary))]
    ends += [t.end for t in run.of(TaskSummary)]
    if any(end is not None and end.outcome not in _FINE for end in ends):
        return FAILED
    if not run.verdict.valid:
        return INVALID
    return MISSED if all_met(goals(run.of(LoadSummary))) is False else 0

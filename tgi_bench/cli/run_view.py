"""A run's folder or run.db to the value that reports are made from, and reports to files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tgi_bench.analysis.rules import Verdict
from tgi_bench.analysis.run import DeploymentRecord, Origin, Run
from tgi_bench.cli.telemetry_view import telemetry_of
from tgi_bench.errors import not_written
from tgi_bench.inert import all_on_one_line, on_one_line
from tgi_bench.kinds.batch.metrics import TrialSummary
from tgi_bench.kinds.batch.summary import summarise, summarise_published
from tgi_bench.kinds.direct.figures import DirectRecord, TaskSummary
from tgi_bench.kinds.direct.rules import judge_tasks
from tgi_bench.kinds.direct.summary import summarise_task
from tgi_bench.kinds.judge import judge
from tgi_bench.kinds.load.figures import LoadSummary
from tgi_bench.load_observation import ClientFloor, LoadStage, RequestObservation
from tgi_bench.observation import (
    PublishedEntry,
    PublishedFigures,
    ServerFacts,
    StepObservation,
    TrialEnd,
)
from tgi_bench.plan.plan import BatchTrial
from tgi_bench.published.verdict import judge_entries
from tgi_bench.record.store import RunHeader, RunStore
from tgi_bench.report.source import COMMAND
from tgi_bench.task_observation import DirectFacts, TaskRun


def load(path: Path) -> Run:
    """The run of a folder or of a run.db, living or ended. Raises RunFileError.

    What a server said in it is on one line and printable: see `inert`. run.db keeps it as it came.
    """
    with RunStore.open(path, writable=False) as store:
        header = store.header()
        header = replace(header, plan=all_on_one_line(header.plan))
        deployments = tuple(
            DeploymentRecord(
                d,
                all_on_one_line(store.facts(d.deployment_id, ServerFacts)),
                on_one_line(store.failure(d.deployment_id)),
            )
            for d in header.plan.deployments
        )
        origin = _origin(header, deployments)
        ends = {trial_id: all_on_one_line(end) for trial_id, end in store.ends().items()}
        trials = tuple(
            _summary(store, origin, trial, ends.get(trial.trial_id)) for trial in header.plan.trials
        )
        loads = _loads(store, header, ends)
        floors = store.of_run(ClientFloor)
        finished = store.finished()
        entries = all_on_one_line(store.of_run(PublishedEntry))
        tasks = _tasks(store, header, ends)
        telemetry = telemetry_of(store, trials, loads, tasks)
        models = tuple(
            DirectRecord(
                m,
                all_on_one_line(store.facts(m.model_id, DirectFacts)),
                on_one_line(store.failure(m.model_id)),
            )
            for m in header.plan.direct_models
        )
    if entries:
        verdict = judge_entries(entries)
    elif tasks:
        verdict = judge_tasks(tasks, finished, telemetry)
    else:
        verdict = judge(
            header.plan,
            origin,
            deployments,
            trials,
            finished,
            loads=loads,
            floors=floors,
            telemetry=telemetry,
            environment=header.environment,
        )
    if COMMAND in dict(header.environment):
        # Whoever typed options is told of options.
        from tgi_bench.cli.load_command import in_options

        checks = (replace(c, remedy=in_options(c.remedy)) for c in verdict.checks)
        verdict = Verdict.of(checks)
    return Run(
        run_id=header.run_id,
        plan=header.plan,
        origin=origin,
        environment=header.environment,
        deployments=deployments,
        verdict=verdict,
        finished=finished,
        found=(*trials, *loads, *floors, *entries, *tasks, *models),
        telemetry=telemetry,
    )


def _tasks(
    store: RunStore, header: RunHeader, ends: Mapping[str, TrialEnd]
) -> tuple[TaskSummary, ...]:
    return tuple(
        summarise_task(trial, tuple(store.seen(trial.trial_id, TaskRun)), ends.get(trial.trial_id))
        for trial in header.plan.task_trials
    )


def _origin(header: RunHeader, deployments: tuple[DeploymentRecord, ...]) -> Origin:
    if header.origin == "imported":
        return Origin.IMPORTED
    said = [record.facts.simulated for record in deployments if record.facts is not None]
    # Where nothing has started yet, the plan says what would be.
    planned = [r.deployment.simulated for r in deployments]
    return Origin.SIMULATED if any(said or planned) else Origin.MEASURED


def _summary(
    store: RunStore, origin: Origin, trial: BatchTrial, end: TrialEnd | None
) -> TrialSummary:
    if origin is Origin.IMPORTED:
        return summarise_published(
            trial, tuple(store.seen(trial.trial_id, PublishedFigures)), end, trial.runs
        )
    return summarise(trial, tuple(store.seen(trial.trial_id, StepObservation)), end)


def _loads(
    store: RunStore, header: RunHeader, ends: Mapping[str, TrialEnd]
) -> tuple[LoadSummary, ...]:
    if not header.plan.load_trials:
        return ()
    # Only here: it imports numpy, which a run of batches alone does not wait for.
    from tgi_bench.kinds.load.summary import summarise_load

    return tuple(
        summarise_load(
            trial,
            all_on_one_line(tuple(store.seen(trial.trial_id, LoadStage))),
            map(_of_printable_words, store.seen(trial.trial_id, RequestObservation)),
            ends.get(trial.trial_id),
        )
        for trial in header.plan.load_trials
    )


def _of_printable_words(request: RequestObservation) -> RequestObservation:
    """Of many, most of which need no other words."""
    reason, finish = request.reason, request.finish_reason
    if reason.isprintable() and (finish is None or finish.isprintable()):
        return request
    finish = None if finish is None else on_one_line(finish)
    return replace(request, reason=on_one_line(reason), finish_reason=finish)


def write_documents(folder: Path, documents: Mapping[str, str]) -> None:
    """Write each text under its name; whoever reads one meanwhile sees the old or the new.

    The first one, which names the others, is written last. Raises ResultsError, where there is no
    room NotRecordedError.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in reversed(tuple(documents.items())):
            part = folder / f".{name}.part"
            try:
                part.write_text(text, encoding="utf-8")
                os.replace(part, folder / name)
            finally:
                part.unlink(missing_ok=True)
    except OSError as error:
        raise not_written(f"{folder}: reports cannot be written", error) from None

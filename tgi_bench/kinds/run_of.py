"""A run's folder or run.db to the value that reports are made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tgi_bench.analysis.rules import Verdict
from tgi_bench.analysis.run import DeploymentRecord, Origin, Run
from tgi_bench.analysis.telemetry import MeasuredWindows, TelemetrySummary, summarise_telemetry
from tgi_bench.devices.observation import Telemetry
from tgi_bench.inert import all_on_one_line, on_one_line
from tgi_bench.kinds.judge import judge
from tgi_bench.kinds.kind import Kinds, Stored, View
from tgi_bench.observation import ServerFacts
from tgi_bench.record.store import RunHeader, RunStore


def run_of(path: Path, kinds: Kinds) -> Run:
    """The run of a folder or of a run.db, living or ended. Raises RunFileError.

    What a server said in it is on one line and printable: see `inert`. run.db keeps it as it came.
    """
    with RunStore.open(path, writable=False) as store:
        header = store.header()
        plan = all_on_one_line(header.plan)
        deployments = tuple(
            DeploymentRecord(
                d,
                all_on_one_line(store.facts(d.deployment_id, ServerFacts)),
                on_one_line(store.failure(d.deployment_id)),
            )
            for d in plan.deployments
        )
        origin = _origin(header, deployments)
        ends = {trial_id: all_on_one_line(end) for trial_id, end in store.ends().items()}
        stored = Stored(store, plan, origin, ends)
        of_all = [kind.view() for kind in kinds]
        run = Run(
            run_id=header.run_id,
            plan=plan,
            origin=origin,
            environment=header.environment,
            deployments=deployments,
            verdict=Verdict(()),
            finished=store.finished(),
            found=tuple(one for view in of_all for one in view.read(stored)),
        )
        run = replace(run, telemetry=_telemetry(run, store, of_all))
    return replace(run, verdict=judge(run, kinds))


def _origin(header: RunHeader, deployments: tuple[DeploymentRecord, ...]) -> Origin:
    if header.origin == "imported":
        return Origin.IMPORTED
    said = [record.facts.simulated for record in deployments if record.facts is not None]
    # Where nothing has started yet, the plan says what would be.
    planned = [r.deployment.simulated for r in deployments]
    return Origin.SIMULATED if any(said or planned) else Origin.MEASURED


def _telemetry(
    run: Run, store: RunStore, of_all: Sequence[View[Any]]
) -> tuple[TelemetrySummary, ...]:
    """A summary for each trial around which something was sampled, or for each part of it."""
    found = []
    for view in of_all:
        for summary in run.of(view.summary):
            seen = _seen(store, summary.trial_id)
            if seen is not None:
                parts = view.measured(store, summary, seen)
                whole = MeasuredWindows(summary.trial_id, (), None)
                found += [summarise_telemetry(seen, part) for part in parts or (whole,)]
    return tuple(found)


def _seen(store: RunStore, trial_id: str) -> Telemetry | None:
    """With the names of devices and the reasons on one line and printable; not its many samples."""
    seen = store.telemetry(trial_id)
    if seen is None:
        return None
    devices, absent = all_on_one_line(seen.devices), on_one_line(seen.absent)
    return replace(seen, absent=absent, devices=devices)

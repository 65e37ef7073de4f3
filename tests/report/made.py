"""What is made of a run with every kind of trial that there is."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from tgi_bench.analysis.rules import Verdict
from tgi_bench.analysis.run import DeploymentRecord, Origin, Run
from tgi_bench.analysis.telemetry import TelemetrySummary
from tgi_bench.cli import summary_table
from tgi_bench.cli.run_view import KINDS
from tgi_bench.kinds import documents as made
from tgi_bench.kinds import json_document
from tgi_bench.kinds import judge as judged
from tgi_bench.plan.plan import Plan


def documents(run: Run) -> dict[str, str]:
    return made.documents(run, KINDS)


def tables(run: Run) -> dict[str, str]:
    return made.tables(run, KINDS)


def as_json(run: Run) -> str:
    return json_document.as_json(run, KINDS)


def print_summary(console: Console, run: Run) -> None:
    summary_table.print_summary(console, run, KINDS)


def judge(
    plan: Plan,
    origin: Origin,
    deployments: Sequence[DeploymentRecord],
    found: Sequence[object],
    finished: bool = True,
    telemetry: Sequence[TelemetrySummary] = (),
    environment: Sequence[tuple[str, str]] = (),
) -> Verdict:
    """Of a run of that. found: what was found of each kind."""
    run = Run(
        run_id="judged",
        plan=plan,
        origin=origin,
        environment=tuple(environment),
        deployments=tuple(deployments),
        verdict=Verdict(()),
        finished=finished,
        found=tuple(found),
        telemetry=tuple(telemetry),
    )
    return judged.judge(run, KINDS)

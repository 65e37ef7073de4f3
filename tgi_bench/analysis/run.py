"""A whole run as the reports see it: plan, servers, summaries and the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

from tgi_bench.analysis.rules import Verdict
from tgi_bench.analysis.telemetry import TelemetrySummary
from tgi_bench.observation import ServerFacts
from tgi_bench.plan.plan import Deployment, Plan

T = TypeVar("T")

CORRECTED = "Corrected: "
DOUBTFUL = "Doubtful: "
"""Begin names in an imported run's environment: a slip that was mended, or that cannot be."""

LAYOUT = "Table layout"
"""The name in an imported run's environment of the layout that its table has."""


class TableLayout(StrEnum):
    """Whose table it is."""

    H2OGPT = "h2ogpt"
    BIGCODE = "bigcode"
    TORCHCAP = "torchcap"


def layout_of(environment: Sequence[tuple[str, str]]) -> TableLayout | None:
    """The layout that an imported run's environment names; None where it names none."""
    said = dict(environment).get(LAYOUT)
    return next((layout for layout in TableLayout if layout.value == said), None)


class Origin(StrEnum):
    """Where a run's figures come from."""

    MEASURED = "measured"
    SIMULATED = "simulated"
    IMPORTED = "imported"


@dataclass(frozen=True, slots=True)
class DeploymentRecord:
    """One deployment and what its server said; facts is None where none became ready."""

    deployment: Deployment
    facts: ServerFacts | None
    failure: str
    """Why it did not start; empty where it did."""

    @property
    def name(self) -> str:
        """As checks show it."""
        return self.deployment.deployment_id

    @property
    def trial_id(self) -> None:
        """None: it is of all its trials."""
        return None

    @property
    def deployment_id(self) -> str:
        """Of the deployment."""
        return self.deployment.deployment_id

    @property
    def ranks(self) -> int | None:
        """num_shard as its sockets say; None where they were not asked."""
        return None if self.facts is None or self.facts.shards is None else self.facts.shards.ranks

    @property
    def num_shard(self) -> int:
        """As its sockets say, else as it was requested."""
        return self.ranks or self.deployment.num_shard


@dataclass(frozen=True, slots=True)
class Run:
    """Everything that a report is made from.

    environment: name and value, in the order to be shown. finished: every trial has an end.
    found: what was found of each kind, asked for by its type: the summaries of trials, and what
    stands beside them, as the load client's own error does beside loads.
    telemetry: of each trial or stage around which something was sampled.
    """

    run_id: str
    plan: Plan
    origin: Origin
    environment: tuple[tuple[str, str], ...]
    deployments: tuple[DeploymentRecord, ...]
    verdict: Verdict
    finished: bool
    found: tuple[object, ...] = ()
    telemetry: tuple[TelemetrySummary, ...] = ()

    def of(self, kind: type[T]) -> tuple[T, ...]:
        """What was found of that kind, in the run's order; () where it has none."""
        return tuple(one for one in self.found if isinstance(one, kind))

    def having(self, kind: type[T], values: Iterable[T]) -> Run:
        """The same run with these of that kind in place of its own."""
        others = (one for one in self.found if not isinstance(one, kind))
        return replace(self, found=(*others, *values))

    def record(self, deployment_id: str) -> DeploymentRecord:
        """The deployment of that id; KeyError where the run has none."""
        for record in self.deployments:
            if record.deployment_id == deployment_id:
                return record
        raise KeyError(deployment_id)

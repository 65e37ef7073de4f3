"""What will be run: frozen values that a person can print before anything starts.

Here too: how much any plan may ask for, and its digest.

A Plan is a pure function of an experiment (see `expand`). Ids are stable: the same
experiment gives the same ids and the same digest on every machine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any

from tgi_bench.engines.arguments import ArgumentValue as ArgumentValue
from tgi_bench.engines.engine import Engine as Engine
from tgi_bench.errors import ExperimentError, Problem
from tgi_bench.launch.deployment import MODEL_SERVED as MODEL_SERVED
from tgi_bench.launch.deployment import Deployment as Deployment
from tgi_bench.launch.deployment import LauncherArgument as LauncherArgument
from tgi_bench.launch.deployment import Timeouts as Timeouts
from tgi_bench.launch.launcher import ASSUMED_ACCELERATOR as ASSUMED_ACCELERATOR
from tgi_bench.sections.section import Sampling as Sampling
from tgi_bench.trials.batch import BatchTrial as BatchTrial
from tgi_bench.trials.direct import DirectModel, TaskTrial
from tgi_bench.trials.load import FileKind
from tgi_bench.trials.load import LoadTrial as LoadTrial

MOST_TRIALS = 100_000
"""More would fill the client's memory before the first step."""
MOST_BATCH_TOKENS = 2**26
"""Prompt tokens of one batch, whose texts take some hundred MB."""


def require_batch_within(key: str, batch_sizes: Sequence[int], lengths: Sequence[int]) -> None:
    """Raise ExperimentError at `key` where the largest batch has too many prompt tokens."""
    tokens = max(batch_sizes, default=0) * max(lengths, default=0)
    if tokens > MOST_BATCH_TOKENS:
        message = (
            f"asks for {tokens} prompt tokens in one batch, batch size x prompt length; "
            f"at most {MOST_BATCH_TOKENS} are taken"
        )
        raise ExperimentError(Problem(key, message))


def require_trials_within(key: str, count: int) -> None:
    """Raise ExperimentError at `key` where so many trials are too many."""
    if count > MOST_TRIALS:
        message = f"gives {count} trials; at most {MOST_TRIALS} are taken"
        raise ExperimentError(Problem(key, message))


def digest_of(**measured: object) -> str:
    """SHA-256 (hex) of the canonical JSON of what a plan measures, which its overrides are not."""
    return sha256(json.dumps(measured, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def digested(trial: BatchTrial | LoadTrial | TaskTrial) -> dict[str, Any]:
    """Its fields, as they were before values of a union held their kind."""
    return asdict(trial, dict_factory=_untold)


def _untold(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in fields if name != "kind" or isinstance(value, FileKind)}


ANY_MODEL = "auto"
"""A model's name where a running server is to say it."""


@dataclass(frozen=True, slots=True)
class Override:
    """A value that the command line put in the experiment's place.

    option: which one it came with; not recorded.
    """

    key_path: str
    value: str
    option: str = field(default="--set", compare=False)


@dataclass(frozen=True, slots=True)
class Plan:
    """All of a sweep, in the order in which it will run.

    trials are grouped by deployment and, within one shape, ascend in batch size. load_trials run
    on a deployment after its batches. task_trials, of direct mode, are grouped by model; a plan
    that has some has nothing else.
    digest: SHA-256 (hex) over everything but `overrides`; two plans with one digest
        measure the same things.
    """

    experiment: str
    model: str
    deployments: tuple[Deployment, ...]
    trials: tuple[BatchTrial, ...]
    overrides: tuple[Override, ...]
    digest: str
    load_trials: tuple[LoadTrial, ...] = ()
    task_trials: tuple[TaskTrial, ...] = ()

    @property
    def direct_models(self) -> tuple[DirectModel, ...]:
        """Each model of task_trials once, in their order."""
        return tuple(dict.fromkeys(trial.model for trial in self.task_trials))

    def deployment(self, deployment_id: str) -> Deployment:
        """The deployment of that id; KeyError where the plan has none."""
        for deployment in self.deployments:
            if deployment.deployment_id == deployment_id:
                return deployment
        raise KeyError(deployment_id)

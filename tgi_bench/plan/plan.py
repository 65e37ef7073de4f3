"""What will be run: frozen values that a person can print before anything starts.

A Plan is a pure function of an experiment (see `expand`). Ids are stable: the same
experiment gives the same ids and the same digest on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tgi_bench.engines.arguments import ArgumentValue as ArgumentValue
from tgi_bench.engines.engine import Engine as Engine
from tgi_bench.launch.deployment import MODEL_SERVED as MODEL_SERVED
from tgi_bench.launch.deployment import Deployment as Deployment
from tgi_bench.launch.deployment import LauncherArgument as LauncherArgument
from tgi_bench.launch.deployment import Timeouts as Timeouts
from tgi_bench.launch.launcher import ASSUMED_ACCELERATOR as ASSUMED_ACCELERATOR
from tgi_bench.plan.load_trial import LoadTrial as LoadTrial
from tgi_bench.plan.task_trial import DirectModel, TaskTrial
from tgi_bench.sections.section import Sampling as Sampling

ANY_MODEL = "auto"
"""A model's name where a running server is to say it."""


@dataclass(frozen=True, slots=True)
class BatchTrial:
    """`warmups` then `runs` times: one Prefill and decode_length - 1 Decodes of one batch.

    trial_id: "<deployment_id>/s<sequence_length>-d<decode_length>-b<batch_size>".
    batch_size: requests in the batch. sequence_length: prompt tokens of each request.
    decode_length: new tokens of each request, of which prefill emits the first.
    step_timeout_s: for one step. prompt_seed: of the prompts; 0 is a seed. None: each
        run has prompts of its own.
    """

    trial_id: str
    deployment_id: str
    batch_size: int
    sequence_length: int
    decode_length: int
    runs: int
    warmups: int
    sampling: Sampling
    step_timeout_s: float
    prompt_seed: int | None

    @property
    def shape(self) -> tuple[str, int, int]:
        """Trials of one shape differ in batch size only."""
        return (self.deployment_id, self.sequence_length, self.decode_length)

    def kv_tokens(self, block_tokens: int) -> int:
        """Tokens of KV cache that the batch takes up at its end, in blocks of block_tokens.

        The last new token is never written back, so a request ends with
        sequence_length + decode_length - 1 tokens, rounded up to whole blocks.
        """
        tokens = self.sequence_length + self.decode_length - 1
        return self.batch_size * (-(-tokens // block_tokens) * block_tokens)


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

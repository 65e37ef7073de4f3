"""What will be run: frozen values that a person can print before anything starts.

A Plan is a pure function of an experiment (see `expand`). Ids are stable: the same
experiment gives the same ids and the same digest on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

ArgumentValue = str | int | float | bool | None


class LauncherKind(StrEnum):
    """How a deployment's server comes to be."""

    DOCKER = "docker"
    PROCESS = "process"
    EMBEDDED = "embedded"
    ATTACH = "attach"


@dataclass(frozen=True, slots=True)
class LauncherArgument:
    """One argument of text-generation-launcher as requested: snake_case name and value."""

    name: str
    value: ArgumentValue
    variable: bool
    """True where the experiment varies it, False where it is constant."""


@dataclass(frozen=True, slots=True)
class EmbeddedOptions:
    """What the embedded server computes with, when the launcher is `embedded`."""

    engine: str
    accelerator: str


@dataclass(frozen=True, slots=True)
class Deployment:
    """One server: a launcher, a version and one combination of launcher arguments.

    deployment_id: the variable arguments, fit for a file name ("num_shard-2+quantize-none");
        "default" where nothing varies.
    tgi_version: "0.9.4"; from the image's tag or the experiment's `version`.
    version_assumed: True where neither said it and the newest known version was taken.
    arguments: constant ones first, then variable ones, each in the experiment's order; a
        variable argument whose value is None is kept (it is passed as "not given").
    """

    deployment_id: str
    launcher: LauncherKind
    model: str
    image: str | None
    tgi_version: str
    version_assumed: bool
    arguments: tuple[LauncherArgument, ...]
    embedded: EmbeddedOptions
    ready_timeout_s: float

    def argument(self, name: str) -> ArgumentValue:
        """The requested value of one launcher argument; None where it was not given."""
        return next((a.value for a in self.arguments if a.name == name), None)

    @property
    def num_shard(self) -> int:
        """The tensor-parallel degree; 1 where it was not given."""
        value = self.argument("num_shard")
        return value if isinstance(value, int) else 1

    @property
    def quantize(self) -> str | None:
        """The quantization; None where weights keep their dtype."""
        value = self.argument("quantize")
        return value if isinstance(value, str) else None


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen; None is "not given" and sent as the neutral value."""

    do_sample: bool
    temperature: float | None
    top_k: int | None
    top_p: float | None
    typical_p: float | None
    repetition_penalty: float | None
    watermark: bool


@dataclass(frozen=True, slots=True)
class BatchTrial:
    """`warmups` then `runs` times: one Prefill and decode_length - 1 Decodes of one batch.

    trial_id: "<deployment_id>/s<sequence_length>-d<decode_length>-b<batch_size>".
    batch_size: requests in the batch. sequence_length: prompt tokens of each request.
    decode_length: new tokens of each request, of which prefill emits the first.
    step_timeout_s: for one step. prompt_seed: of the prompts; 0 is a seed.
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
    prompt_seed: int

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
    """A value that the command line put in the experiment's place."""

    key_path: str
    value: str


@dataclass(frozen=True, slots=True)
class Plan:
    """All of a sweep, in the order in which it will run.

    trials are grouped by deployment and, within one shape, ascend in batch size.
    digest: SHA-256 (hex) over everything but `overrides`; two plans with one digest
        measure the same things.
    """

    experiment: str
    model: str
    deployments: tuple[Deployment, ...]
    trials: tuple[BatchTrial, ...]
    overrides: tuple[Override, ...]
    digest: str

    def deployment(self, deployment_id: str) -> Deployment:
        """The deployment of that id; KeyError where the plan has none."""
        for deployment in self.deployments:
            if deployment.deployment_id == deployment_id:
                return deployment
        raise KeyError(deployment_id)

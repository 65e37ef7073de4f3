"""What will be run: frozen values that a person can print before anything starts.

A Plan is a pure function of an experiment (see `expand`). Ids are stable: the same
experiment gives the same ids and the same digest on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from tgi_bench.engines.engine import Engine as Engine
from tgi_bench.engines.engine import engine_spec
from tgi_bench.plan.load_trial import LoadTrial as LoadTrial
from tgi_bench.plan.task_trial import DirectModel, TaskTrial
from tgi_bench.sections.section import Sampling as Sampling

ArgumentValue = str | int | float | bool | None

ANY_MODEL = "auto"
"""A model's name where a running server is to say it."""
ASSUMED_ACCELERATOR = "A100-40GB-SXM"
"""What an experiment that names no accelerator is estimated for."""
MODEL_SERVED = "Model served"
"""The detail of a start's ServerFacts that names the model as a running server said it."""


class LauncherKind(StrEnum):
    """How a deployment's server comes to be."""

    DOCKER = "docker"
    PROCESS = "process"
    EMBEDDED = "embedded"
    ATTACH = "attach"


@dataclass(frozen=True, slots=True)
class LauncherArgument:
    """One argument of the server's program as requested: snake_case name and value."""

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
class Timeouts:
    """Seconds that each phase of a start may take.

    pull_s: the image. download_s: the model's weights. load_s: everything else up to /health.
    probe_s: from /health to the first generated token.
    """

    pull_s: float
    download_s: float
    load_s: float
    probe_s: float


@dataclass(frozen=True, slots=True)
class DockerOptions:
    """How a container is made.

    gpus: "all", a count ("2"; "0" is none) or ids ("0,3"); None: one for each shard.
    shm_size: "1g"; None: the engine's own. volumes: "/host/data:/data". network: None: a port of
    127.0.0.1 on the default network. options: further ones by the Docker SDK's own names, each
    value as JSON text.
    """

    gpus: str | None = None
    shm_size: str | None = None
    volumes: tuple[str, ...] = ()
    network: str | None = None
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """How a process is started. command: the words before the arguments; () is the engine's."""

    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AttachOptions:
    """Where a running server is reached: url or master_socket, of shard_rank 0, or both.

    verify_tls: whether an https server's certificate must be valid. headers: sent with every
    question and request; `$NAME` in a value stands for an environment variable's.
    """

    url: str | None
    master_socket: str | None = None
    verify_tls: bool = True
    headers: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def verified(host: HostOptions) -> bool:
        """Whether a certificate of that host must be valid: only one of somebody else need not."""
        return not isinstance(host, AttachOptions) or host.verify_tls


@dataclass(frozen=True, slots=True)
class SimulatedOptions:
    """What the embedded server's simulated engine computes with, beside its accelerator.

    calibration: a published one's name (its stack), or a file's path; None: uncalibrated.
    visible_devices: GPUs that it is to simulate seeing: with num_shard 1 a model of TGI's padded
    class is then split over them, each holding some layers, as transformers' device_map does.
    """

    calibration: str | None = None
    visible_devices: int = 1


@dataclass(frozen=True, slots=True)
class TransformersOptions:
    """How the embedded server's engine `transformers` runs its model.

    device: "auto", "cpu" or "cuda". random_weights: drawn from weights_seed instead of read.
    layer_split: whole layers on several CUDA devices, which is not tensor parallelism.
    """

    device: str = "auto"
    random_weights: bool = False
    weights_seed: int = 0
    layer_split: bool = False


HostOptions = (
    DockerOptions | ProcessOptions | AttachOptions | SimulatedOptions | TransformersOptions | None
)
"""What the launcher needs to know; None for `embedded` with a simulated engine by default."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """One server: a launcher, a version and one combination of launcher arguments.

    deployment_id: the variable arguments, fit for a file name ("num_shard-2+quantize-none");
        "default" where nothing varies.
    tgi_version: "0.9.4"; from the image's tag or the experiment's `version`. Of another engine
        its own version as these say it; "" where they do not.
    version_assumed: True where neither said it and the newest known version was taken.
    arguments: constant ones first, then variable ones, each in the experiment's order; a
        variable argument whose value is None is kept (it is passed as "not given").
    env: names of environment variables that are handed on to the server.
    """

    deployment_id: str
    launcher: LauncherKind
    model: str
    image: str | None
    tgi_version: str
    version_assumed: bool
    arguments: tuple[LauncherArgument, ...]
    embedded: EmbeddedOptions
    engine: Engine
    env: tuple[str, ...]
    timeouts: Timeouts
    host: HostOptions

    @property
    def simulated(self) -> bool:
        """Whether the embedded server's simulated engine stands in for hardware."""
        embedded = self.launcher is LauncherKind.EMBEDDED
        return embedded and not isinstance(self.host, TransformersOptions)

    @property
    def planned_accelerator(self) -> str | None:
        """What the experiment says the estimate is of; None where the embedded server runs the
        model itself, on a device that this machine has and the experiment does not name."""
        return None if isinstance(self.host, TransformersOptions) else self.embedded.accelerator

    def argument(self, name: str) -> ArgumentValue:
        """The requested value of one launcher argument; None where it was not given."""
        return next((a.value for a in self.arguments if a.name == name), None)

    @property
    def num_shard(self) -> int:
        """The tensor-parallel degree; 1 where it was not given."""
        name = engine_spec(self.engine).shard_argument
        value = self.argument(name) if name is not None else None
        return value if isinstance(value, int) else 1

    @property
    def quantize(self) -> str | None:
        """The quantization; None where weights keep their dtype, or their file says it."""
        name = engine_spec(self.engine).quantize_argument
        value = self.argument(name) if name is not None else None
        return value if isinstance(value, str) else None


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

"""What is estimated for a deployment of a plan, and what the estimate says of its trials."""

from __future__ import annotations

from dataclasses import dataclass

from tgi_bench.engines.engine import Engine, engine_spec
from tgi_bench.errors import InputError
from tgi_bench.estimate.calibration import (
    TRANSFORMERS,
    Calibration,
    Chooser,
    said_of,
    stack_of,
    tgi_stack,
)
from tgi_bench.estimate.memory import (
    beside_pool_bytes,
    fits,
    kv_capacity_tokens,
    prefill_memory,
    prefill_step_memory,
)
from tgi_bench.estimate.setup import Setup
from tgi_bench.estimate.step_time import decode_time, generate_s, prefill_time
from tgi_bench.estimate.tables import accelerator, model_shape
from tgi_bench.plan.plan import BatchTrial, Deployment, Plan

MEMORY = "memory"
KV_POOL = "KV pool"
"""The pool is too small, or what it leaves is too little for the prefill step's tensors."""

_BLOCK_TOKENS = 16  # of paged attention
_PREFILL_TOKENS = 4096  # the launcher's default of max_batch_prefill_tokens, or its usual choice


@dataclass(frozen=True, slots=True)
class Planned:
    """A deployment's setup without a calibration, and the name of its stack."""

    setup: Setup
    stack: str

    @property
    def place(self) -> tuple[str, str]:
        """Accelerator and stack: what a calibration is of."""
        return self.setup.accelerator.name, self.stack


def stack_name(deployment: Deployment) -> str:
    """TGI's with its version; another engine's title and version; `transformers` where the
    embedded server runs the model with it, whichever version of TGI it behaves as."""
    if deployment.launcher.own_device is not None:
        return TRANSFORMERS
    if deployment.engine is Engine.TGI:
        return tgi_stack(deployment.tgi_version)
    return f"{engine_spec(deployment.engine).title} {deployment.tgi_version}".rstrip()


def planned_setup(
    deployment: Deployment, device: str | None = None, visible_devices: int | None = None
) -> Planned:
    """InputError for an unknown model or accelerator, or heads that num_shard does not divide;
    and where the embedded server runs the model itself, on a device that is not given.

    device: the accelerator's row where it is known better than by the experiment.
    visible_devices: GPUs that the server sees, where that is known better than by the plan; with
    num_shard 1 TGI's padded class lets transformers split the layers over all of them.
    """
    visible = deployment.launcher.visible_devices
    if visible is None:
        raise InputError("its layers lie on several devices, whose number is not recorded")
    stack = stack_name(deployment)
    tgi = deployment.engine is Engine.TGI
    model, dtype = model_shape(deployment.model), deployment.argument("dtype")
    if visible_devices is not None:
        visible = visible_devices
    split = visible if model.padded and deployment.num_shard == 1 else 1
    setup = Setup(
        model=model,
        accelerator=accelerator(device or _planned(deployment)),
        num_shard=deployment.num_shard,
        quantize=deployment.quantize,
        dtype=dtype if isinstance(dtype, str) else "float16",
        prompt_logprobs=tgi and stack_of(stack).prompt_logprobs,
        generator="tgi" if deployment.launcher.own_device is None else "transformers",
        split_devices=split,
    )
    return Planned(setup, stack)


def _planned(deployment: Deployment) -> str:
    """The accelerator that the experiment names; InputError where it names none."""
    if deployment.planned_accelerator is None:
        raise InputError(
            "the engine `transformers` runs the model on this machine's own device, which no "
            "experiment names"
        )
    return deployment.planned_accelerator


@dataclass(frozen=True, slots=True)
class TrialTimes:
    """prefill_s, decode_s: one step of each; the decode figures are None where there is no step.

    total_s: all warm-ups and runs; what a trial that does not fit would take if it did.
    """

    prefill_s: float
    prefill_bound: str
    decode_s: float | None
    decode_bound: str | None
    total_s: float


@dataclass(frozen=True, slots=True)
class TrialEstimate:
    """One trial on the accelerator that the experiment names.

    times: uncalibrated. calibrated: None where there is no calibration for it.
    bytes_per_device: at the step that needs most, a KV pool's unused part left out.
    obstacle: why it does not fit; empty where it does.
    """

    times: TrialTimes
    calibrated: TrialTimes | None
    bytes_per_device: float
    obstacle: str

    @property
    def total_s(self) -> float:
        """The calibrated one where there is one."""
        return (self.calibrated or self.times).total_s

    @property
    def fits(self) -> bool:
        """Whether the server can run it."""
        return not self.obstacle


def calibration_of(deployment: Deployment, chooser: Chooser) -> Calibration | None:
    """The one that its embedded server computes with; else the published one of its stack.

    None where there is none, and for an embedded server that is to compute without.
    InputError for an unknown one, or what `chooser` raises.
    """
    word = deployment.launcher.calibration
    if deployment.simulated and word is None:
        return None
    planned = deployment.planned_accelerator
    return None if planned is None else chooser(word)(planned, stack_name(deployment))


@dataclass(frozen=True, slots=True)
class PlanEstimate:
    """What is estimated of a plan.

    trials: by trial_id, of those batches that can be estimated. calibrations: sentences on where
    the calibrated figures come from, and where constants are another stack's.
    unknown: each reason why trials have no estimate, once, and whether it is the simulated
    engine's, which computes by the estimate: it cannot start without.
    """

    trials: dict[str, TrialEstimate]
    calibrations: tuple[str, ...]
    unknown: tuple[tuple[str, bool], ...]


def plan_estimate(plan: Plan, chooser: Chooser) -> PlanEstimate:
    """Estimates are uncalibrated, and calibrated where a calibration is chosen."""
    servers: dict[str, _Server] = {}
    sentences: dict[str, None] = {}
    unknown: dict[tuple[str, bool], None] = {}
    for deployment in plan.deployments:
        try:
            planned = planned_setup(deployment)
            calibration = calibration_of(deployment, chooser)
        except InputError as error:
            unknown[str(error), deployment.simulated] = None
            continue
        servers[deployment.deployment_id] = _Server(deployment, planned, calibration)
        if calibration is not None:
            said = said_of(calibration, *planned.place)
            sentences.update(dict.fromkeys(said))
    known: dict[str, TrialEstimate] = {}
    for trial in plan.trials:
        if trial.deployment_id in servers:
            try:
                known[trial.trial_id] = _estimate(servers[trial.deployment_id], trial)
            except InputError:
                continue  # sizes beyond what is estimated
    return PlanEstimate(known, tuple(sentences), tuple(unknown))


@dataclass(frozen=True, slots=True)
class _Server:
    """A deployment with what is computed once for all of its trials."""

    deployment: Deployment
    planned: Planned
    calibration: Calibration | None


def _estimate(server: _Server, trial: BatchTrial) -> TrialEstimate:
    setup, calibration = server.planned.setup, server.calibration
    need = prefill_memory(setup, trial.batch_size, trial.sequence_length, trial.decode_length)
    return TrialEstimate(
        times=_times(setup, trial),
        calibrated=None if calibration is None else _times(calibration.applied(setup), trial),
        bytes_per_device=need.total_bytes,
        obstacle=_obstacle(server, trial) if fits(setup, need) else MEMORY,
    )


def _times(setup: Setup, trial: BatchTrial) -> TrialTimes:
    batch, prompt, new = trial.batch_size, trial.sequence_length, trial.decode_length
    prefill = prefill_time(setup, batch, prompt)
    decode = decode_time(setup, batch, prompt + new - 1) if new > 1 else None
    return TrialTimes(
        prefill_s=prefill.total_s,
        prefill_bound=prefill.bound,
        decode_s=None if decode is None else decode.total_s,
        decode_bound=None if decode is None else decode.bound,
        total_s=(trial.warmups + trial.runs) * generate_s(setup, batch, prompt, new),
    )


def _obstacle(server: _Server, trial: BatchTrial) -> str:
    """Of a trial that a device has the memory for."""
    setup, deployment = server.planned.setup, server.deployment
    if deployment.engine is not Engine.TGI or setup.model.padded:
        return ""
    if not stack_of(server.planned.stack).kv_pool:
        return ""
    fraction = deployment.argument("cuda_memory_fraction")
    share = float(fraction) if isinstance(fraction, int | float) else 1.0
    warmed = deployment.argument("max_batch_prefill_tokens")
    pool = kv_capacity_tokens(setup, share, warmed if isinstance(warmed, int) else _PREFILL_TOKENS)
    prefill = prefill_step_memory(setup, trial.batch_size, trial.sequence_length)
    taken = beside_pool_bytes(setup, prefill, pool or 0)
    roomy = pool is not None and trial.kv_tokens(_BLOCK_TOKENS) <= pool
    return "" if roomy and taken <= share * setup.accelerator.usable_bytes else KV_POOL

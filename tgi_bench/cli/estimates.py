"""What the estimate says of the trials of a plan."""

from __future__ import annotations

from dataclasses import dataclass

from tgi_bench.errors import InputError
from tgi_bench.estimate.accelerator import accelerator
from tgi_bench.estimate.memory import (
    beside_pool_bytes,
    fits,
    kv_capacity_tokens,
    prefill_memory,
    prefill_step_memory,
)
from tgi_bench.estimate.model import model_shape
from tgi_bench.estimate.roofline import decode_time, generate_time_s, prefill_time
from tgi_bench.estimate.setup import Setup
from tgi_bench.plan.launcher_args import parse_version
from tgi_bench.plan.plan import BatchTrial, Deployment, Engine, LauncherKind, Plan
from tgi_bench.server.behaviour import Behaviour

MEMORY = "memory"
KV_POOL = "KV pool"
"""The pool is too small, or what it leaves is too little for the prefill step's tensors."""

_BLOCK_TOKENS = 16  # of paged attention
_PREFILL_TOKENS = 4096  # the launcher's default of max_batch_prefill_tokens, or its usual choice


@dataclass(frozen=True, slots=True)
class TrialEstimate:
    """One trial on the accelerator that the experiment names.

    prefill_s, decode_s: one step of each; decode_s is None where there is no decode step.
    total_s: all warm-ups and runs; what a trial that does not fit would take if it did.
    bytes_per_device: at the step that needs most, a KV pool's unused part left out.
    obstacle: why it does not fit; empty where it does.
    """

    prefill_s: float
    decode_s: float | None
    total_s: float
    bytes_per_device: float
    obstacle: str

    @property
    def fits(self) -> bool:
        """Whether the server can run it."""
        return not self.obstacle


def setup_of(deployment: Deployment) -> Setup:
    """What is estimated for a deployment; InputError for an unknown model or accelerator."""
    dtype = deployment.argument("dtype")
    return Setup(
        model=model_shape(deployment.model),
        accelerator=accelerator(deployment.embedded.accelerator),
        num_shard=deployment.num_shard,
        quantize=deployment.quantize,
        dtype=dtype if isinstance(dtype, str) else "float16",
    )


def estimate(deployment: Deployment, trial: BatchTrial) -> TrialEstimate:
    """The estimate of one trial; InputError as `setup_of`."""
    setup = setup_of(deployment)
    batch, prompt, new = trial.batch_size, trial.sequence_length, trial.decode_length
    need = prefill_memory(setup, batch, prompt, new)
    return TrialEstimate(
        prefill_s=prefill_time(setup, batch, prompt).total_s,
        decode_s=decode_time(setup, batch, prompt + new - 1).total_s if new > 1 else None,
        total_s=(trial.warmups + trial.runs) * generate_time_s(setup, batch, prompt, new),
        bytes_per_device=need.total_bytes,
        obstacle=_obstacle(deployment, setup, trial),
    )


def _obstacle(deployment: Deployment, setup: Setup, trial: BatchTrial) -> str:
    batch, prompt, new = trial.batch_size, trial.sequence_length, trial.decode_length
    if not fits(setup, prefill_memory(setup, batch, prompt, new)):
        return MEMORY
    if deployment.engine is not Engine.TGI:
        return ""
    behaviour = Behaviour(parse_version(deployment.tgi_version))
    if setup.model.padded or not behaviour.has_kv_pool:
        return ""
    fraction = deployment.argument("cuda_memory_fraction")
    share = float(fraction) if isinstance(fraction, int | float) else 1.0
    warmed = deployment.argument("max_batch_prefill_tokens")
    pool = kv_capacity_tokens(setup, share, warmed if isinstance(warmed, int) else _PREFILL_TOKENS)
    taken = beside_pool_bytes(setup, prefill_step_memory(setup, batch, prompt), pool or 0)
    roomy = pool is not None and trial.kv_tokens(_BLOCK_TOKENS) <= pool
    return "" if roomy and taken <= share * setup.accelerator.usable_bytes else KV_POOL


def estimates(plan: Plan) -> dict[str, TrialEstimate]:
    """By trial_id, for each trial that can be estimated; others are left out."""
    known: dict[str, TrialEstimate] = {}
    for trial in plan.trials:
        try:
            known[trial.trial_id] = estimate(plan.deployment(trial.deployment_id), trial)
        except InputError:
            continue  # a model or accelerator outside the table: `plan` says which
    return known


def why_unknown(plan: Plan) -> tuple[tuple[str, bool], ...]:
    """Each reason why trials have no estimate, once, and whether it is the embedded server's.

    That one computes by the estimate: it cannot start without.
    """
    reasons: dict[tuple[str, bool], None] = {}
    for deployment in plan.deployments:
        try:
            setup_of(deployment)
        except InputError as error:
            reasons[str(error), deployment.launcher is LauncherKind.EMBEDDED] = None
    return tuple(reasons)


def require_for_embedded(plan: Plan) -> None:
    """Raise InputError where the embedded server could not compute a deployment."""
    for deployment in plan.deployments:
        if deployment.launcher is LauncherKind.EMBEDDED:
            setup_of(deployment)

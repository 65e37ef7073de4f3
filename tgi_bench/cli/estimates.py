"""What the estimate says of the trials of a plan."""

from __future__ import annotations

from dataclasses import dataclass

from tgi_bench.errors import InputError
from tgi_bench.estimate.accelerator import accelerator
from tgi_bench.estimate.memory import fits, prefill_memory
from tgi_bench.estimate.model import model_shape
from tgi_bench.estimate.roofline import decode_time, generate_time_s, prefill_time
from tgi_bench.estimate.setup import Setup
from tgi_bench.plan.plan import BatchTrial, Deployment, LauncherKind, Plan


@dataclass(frozen=True, slots=True)
class TrialEstimate:
    """One trial on the accelerator that the experiment names.

    prefill_s, decode_s: one step of each; decode_s is None where there is no decode step.
    total_s: all warm-ups and runs; what a trial that does not fit would take if it did.
    bytes_per_device: at the step that needs most.
    """

    prefill_s: float
    decode_s: float | None
    total_s: float
    bytes_per_device: float
    fits: bool


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
        fits=fits(setup, need),
    )


def estimates(plan: Plan) -> dict[str, TrialEstimate]:
    """By trial_id, for each trial that can be estimated; others are left out."""
    known: dict[str, TrialEstimate] = {}
    for trial in plan.trials:
        try:
            known[trial.trial_id] = estimate(plan.deployment(trial.deployment_id), trial)
        except InputError:
            continue  # a model or accelerator outside the table: `plan` says which
    return known


def why_unknown(plan: Plan) -> tuple[str, ...]:
    """Each reason why trials have no estimate, once."""
    reasons: dict[str, None] = {}
    for deployment in plan.deployments:
        try:
            setup_of(deployment)
        except InputError as error:
            reasons[str(error)] = None
    return tuple(reasons)


def require_for_embedded(plan: Plan) -> None:
    """Raise InputError where the embedded server could not compute a deployment."""
    for deployment in plan.deployments:
        if deployment.launcher is LauncherKind.EMBEDDED:
            setup_of(deployment)

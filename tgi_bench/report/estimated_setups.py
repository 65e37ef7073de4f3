"""What is estimated for a deployment of a plan: its setup and its stack."""

from __future__ import annotations

from dataclasses import dataclass

from tgi_bench.estimate.accelerator import accelerator
from tgi_bench.estimate.model import model_shape
from tgi_bench.estimate.setup import Setup
from tgi_bench.plan.engines import engine_spec
from tgi_bench.plan.plan import Deployment, Engine, SimulatedOptions
from tgi_bench.report.estimated_stack import stack_of, tgi_stack


@dataclass(frozen=True, slots=True)
class Planned:
    """A deployment's setup without a calibration, and the name of its stack."""

    setup: Setup
    stack: str


def stack_name(deployment: Deployment) -> str:
    """TGI's with its version; another engine's title and version."""
    if deployment.engine is Engine.TGI:
        return tgi_stack(deployment.tgi_version)
    return f"{engine_spec(deployment.engine).title} {deployment.tgi_version}".rstrip()


def planned_setup(
    deployment: Deployment, device: str | None = None, visible_devices: int | None = None
) -> Planned:
    """InputError for an unknown model or accelerator, or heads that num_shard does not divide.

    device: the accelerator's row where it is known better than by the experiment.
    visible_devices: GPUs that the server sees, where that is known better than by the plan; with
    num_shard 1 TGI's padded class lets transformers split the layers over all of them.
    """
    stack = stack_name(deployment)
    tgi = deployment.engine is Engine.TGI
    model, dtype = model_shape(deployment.model), deployment.argument("dtype")
    host = deployment.host
    if visible_devices is None:
        visible_devices = host.visible_devices if isinstance(host, SimulatedOptions) else 1
    split = visible_devices if model.padded and deployment.num_shard == 1 else 1
    setup = Setup(
        model=model,
        accelerator=accelerator(device or deployment.embedded.accelerator),
        num_shard=deployment.num_shard,
        quantize=deployment.quantize,
        dtype=dtype if isinstance(dtype, str) else "float16",
        prompt_logprobs=tgi and stack_of(stack).prompt_logprobs,
        split_devices=split,
    )
    return Planned(setup, stack)

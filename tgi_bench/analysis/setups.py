"""What is estimated for a deployment of a plan: its setup and its stack."""

from __future__ import annotations

from dataclasses import dataclass

from tgi_bench.errors import InputError
from tgi_bench.estimate.calibration import TRANSFORMERS, stack_of, tgi_stack
from tgi_bench.estimate.setup import Setup
from tgi_bench.estimate.tables import accelerator, model_shape
from tgi_bench.plan.engines import engine_spec
from tgi_bench.plan.plan import Deployment, Engine, SimulatedOptions, TransformersOptions


@dataclass(frozen=True, slots=True)
class Planned:
    """A deployment's setup without a calibration, and the name of its stack."""

    setup: Setup
    stack: str


def stack_name(deployment: Deployment) -> str:
    """TGI's with its version; another engine's title and version; `transformers` where the
    embedded server runs the model with it, whichever version of TGI it behaves as."""
    if isinstance(deployment.host, TransformersOptions):
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
    if isinstance(deployment.host, TransformersOptions) and deployment.host.layer_split:
        raise InputError("its layers lie on several devices, whose number is not recorded")
    stack = stack_name(deployment)
    tgi = deployment.engine is Engine.TGI
    model, dtype = model_shape(deployment.model), deployment.argument("dtype")
    host = deployment.host
    own = isinstance(host, TransformersOptions)
    if visible_devices is None:
        visible_devices = host.visible_devices if isinstance(host, SimulatedOptions) else 1
    split = visible_devices if model.padded and deployment.num_shard == 1 else 1
    setup = Setup(
        model=model,
        accelerator=accelerator(device or _planned(deployment)),
        num_shard=deployment.num_shard,
        quantize=deployment.quantize,
        dtype=dtype if isinstance(dtype, str) else "float16",
        prompt_logprobs=tgi and stack_of(stack).prompt_logprobs,
        generator="transformers" if own else "tgi",
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

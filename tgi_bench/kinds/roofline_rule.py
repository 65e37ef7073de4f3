"""Whether any figure is faster than the hardware that was named allows.

It is compared with the data sheet's peaks and not with a calibration: no device is above them, and
a figure that is was measured on another device, of another model, or of a smaller batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tgi_bench.analysis.accelerator_of import NoDevice, device_of
from tgi_bench.analysis.planned import planned_setup
from tgi_bench.analysis.rules import Check, Rule, Seen, apply
from tgi_bench.analysis.run import DeploymentRecord, Run
from tgi_bench.analysis.samples import LoadDistribution
from tgi_bench.errors import InputError
from tgi_bench.estimate.setup import Setup
from tgi_bench.estimate.step_time import decode_limit_s, mean_decode_limit_s, prefill_limit_s
from tgi_bench.kinds.batch.metrics import StepFigures, TrialSummary
from tgi_bench.kinds.batch.scaling import has_figures
from tgi_bench.kinds.load.figures import LoadSummary, load_rows, time_text
from tgi_bench.trials.load import Fixed

NAME = "no figure is faster than the hardware allows"
LEAST_WEIGHTS_BYTES = 2**28
"""On a device: smaller ones may stay in its cache, which is faster than its memory."""
_NO_SERVER = "its server is not known"
_IN_DTYPE = (None, "bitsandbytes", "bitsandbytes-nf4", "bitsandbytes-fp4", "eetq", "gptq", "awq")
"""Quantizations that multiply in dtype or in int8, as the limit takes it."""


@dataclass(frozen=True, slots=True)
class FigureRow:
    """One figure. limit: the least seconds that a setup allows it; it raises InputError."""

    name: str
    trial_id: str
    deployment_id: str
    seconds: float
    limit: Callable[[Setup], float]


def check_roofline(run: Run) -> Check:
    """Of prefill and decode steps, and of first and further tokens of loads whose prompts are all
    of one length; not checked where nobody named the accelerator."""
    setups = {d.deployment_id: _setup(run, d) for d in run.deployments}
    rows = [row for trial in run.of(TrialSummary) for row in _of_batch(trial)]
    rows += [row for load in run.of(LoadSummary) for row in _of_load(load)]

    def look(row: FigureRow) -> Seen | None:
        setup = setups.get(row.deployment_id, _NO_SERVER)
        return None if isinstance(setup, str) else _beyond(row, setup)

    of_figures = (setups.get(row.deployment_id, _NO_SERVER) for row in rows)
    reasons = dict.fromkeys(why for why in of_figures if isinstance(why, str))
    unmade = "; ".join(reasons) or "no batch, and no load of prompts of one length, has figures"
    return apply(Rule(NAME, look, unmade, _REMEDY, rows="figures", well=_at_most), rows)


def _of_batch(trial: TrialSummary) -> Iterator[FigureRow]:
    asked = trial.trial
    sizes = (asked.batch_size, asked.sequence_length)
    steps: tuple[tuple[str, StepFigures | None, Callable[[Setup], float]], ...] = (
        ("prefill", trial.prefill, lambda setup: prefill_limit_s(setup, *sizes)),
        (
            "decode step",
            trial.decode_token,
            lambda setup: mean_decode_limit_s(setup, *sizes, asked.decode_length),
        ),
    )
    for step, figures, limit in steps if has_figures(trial) else ():
        if figures is not None:
            name = f"{trial.trial_id}, {step}"
            mean_s = figures.latency.mean / 1e9
            yield FigureRow(name, trial.trial_id, trial.deployment_id, mean_s, limit)


def _of_load(load: LoadSummary) -> Iterator[FigureRow]:
    """TTFT and TPOT (p50), each of one request alone: others beside it make them longer."""
    trial, workload = load.trial, load.trial.workload
    shared = workload.shared_prefix or workload.turns or workload.file
    if not isinstance(workload.prompt, Fixed) or shared is not None:
        return
    prompt = workload.prompt.tokens
    for row in load_rows((load,)):
        figures: tuple[tuple[str, LoadDistribution | None, Callable[[Setup], float]], ...] = (
            ("TTFT p50", row.stage.ttft, lambda setup: prefill_limit_s(setup, 1, prompt)),
            ("TPOT p50", row.stage.tpot, lambda setup: decode_limit_s(setup, 1, prompt)),
        )
        for metric, found, limit in figures:
            if found is not None:
                name = f"{row.name}, {metric}"
                seconds = found.p50.value / 1e9
                yield FigureRow(name, trial.trial_id, trial.deployment_id, seconds, limit)


def _setup(run: Run, record: DeploymentRecord) -> Setup | str:
    """What the limit is computed of; why it cannot be, where something is not known."""
    deployment = record.deployment
    device = device_of(run.environment, run.origin, record)
    if isinstance(device, NoDevice):
        return device.why
    if not device.named:
        return "nobody named the accelerator (server.embedded.accelerator)"
    stated = deployment.argument("quantize") or deployment.argument("dtype")
    if deployment.launcher.said_by_server and not stated:
        return "nobody said what the running server's weights are (dtype or quantize)"
    if deployment.quantize not in _IN_DTYPE or deployment.argument("kv_cache_dtype") is not None:
        return f"quantize {deployment.quantize} computes in another type than dtype"
    if deployment.argument("speculate") is not None:
        return "a server that speculates gives several tokens a step"
    try:
        setup = planned_setup(deployment, device.row, device.visible_devices).setup
    except InputError as error:
        return str(error)
    if setup.dtype == "float32":
        return "float32 may be computed as TF32, of which there is no limit"
    if setup.weights_bytes < LEAST_WEIGHTS_BYTES:
        return f"{setup.model.name} is so small that its weights may stay in the device's cache"
    return setup


def _beyond(row: FigureRow, setup: Setup) -> Seen | None:
    """None of a batch beyond what is estimated, and of tokens that all came at once."""
    if row.seconds <= 0:
        return None
    try:
        limit_s = row.limit(setup)
    except InputError:
        return None
    share = limit_s / row.seconds
    took, least = time_text(row.seconds * 1e9), time_text(limit_s * 1e9)
    text = f"{share:.0%} of the roofline of {setup.accelerator.name}: {took}, of at least {least}"
    return Seen(share > 1, share, text)


def _at_most(seen: Sequence[Seen]) -> str:
    return f"at most {max(one.measure for one in seen):.0%} of the roofline"


_REMEDY = (
    "say what the server runs on in server.embedded.accelerator, and its model, quantize and "
    "num_shard as they are: the accelerator, the model or the batch is not what was said"
)

"""Every measured figure of a run that can be estimated, with the setup that it was measured on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tgi_bench.analysis.accelerator_of import NamedAccelerator, NoDevice, device_of
from tgi_bench.analysis.planned import Planned, planned_setup
from tgi_bench.analysis.run import Origin, Run
from tgi_bench.errors import InputError
from tgi_bench.estimate.grid import Phase, Sizes
from tgi_bench.estimate.setup import Setup
from tgi_bench.kinds.batch.metrics import StepFigures, TrialSummary
from tgi_bench.kinds.batch.scaling import has_figures
from tgi_bench.observation import Outcome


@dataclass(frozen=True, slots=True)
class MeasuredFigure:
    """One measured time, or an end without one.

    source_id: of its trial or entry. sizes: for a forward pass new_tokens is 1.
    seconds, spread: None where there is no figure; spread is
    (highest - lowest) / 2 / mean. out_of_memory: True where it ran out of it.
    why_not: why no calibration may be fitted to it; "" where one may.
    memory_gib, energy_j_per_token, tokens_per_s: as the run has them; None where it has none.
    """

    source_id: str
    planned: Planned
    phase: Phase
    sizes: Sizes
    seconds: float | None
    spread: float | None
    out_of_memory: bool
    devices: int
    why_not: str = ""
    memory_gib: float | None = None
    energy_j_per_token: float | None = None
    tokens_per_s: float | None = None

    @property
    def setup(self) -> Setup:
        return self.planned.setup


@dataclass(frozen=True, slots=True)
class RunMeasured:
    """Of a whole run. device_sources: how its accelerators are known. reasons: why figures are
    left out, each once. assumptions: what was taken of workloads that a table does not state."""

    figures: tuple[MeasuredFigure, ...]
    device_sources: tuple[str, ...]
    reasons: tuple[str, ...]
    assumptions: tuple[str, ...] = ()


def measured_trials(run: Run, device: str | None = None) -> RunMeasured:
    """Of its batches. device: the accelerator's row where the caller knows it."""
    planned: dict[str, Planned] = {}
    sources: dict[str, None] = {}
    reasons: dict[str, None] = {}
    for record in run.deployments:
        found = device_of(run.environment, run.origin, record)
        if isinstance(found, NoDevice):
            if device is None or not found.nameable:
                reasons[found.why] = None
                continue
            found = NamedAccelerator(device, "as given")
        elif device is not None:
            found = replace(found, row=device, source="as given")
        row, visible = found.row, found.visible_devices
        try:
            planned[record.deployment.deployment_id] = planned_setup(
                record.deployment, row, visible
            )
        except InputError as error:
            reasons[str(error)] = None
            continue
        sources[f"{row}, {found.source}"] = None
    figures = tuple(
        figure
        for summary in run.of(TrialSummary)
        if summary.trial.deployment_id in planned
        for figure in _of_trial(summary, planned[summary.trial.deployment_id])
    )
    return RunMeasured(figures, tuple(sources), tuple(reasons))


def _of_trial(summary: TrialSummary, planned: Planned) -> Iterator[MeasuredFigure]:
    trial, setup = summary.trial, planned.setup
    try:
        sizes = Sizes(trial.batch_size, trial.sequence_length, trial.decode_length)
    except InputError:
        return  # beyond what is estimated
    ended = summary.end is not None and summary.end.outcome
    memory = ended in (Outcome.OUT_OF_MEMORY, Outcome.SKIPPED)
    why = ""
    if setup.quantize is not None:
        why = "quantized weights: their operations are no constant of these"
    elif setup.split_devices > 1:
        why = "num_shard 1 ran another code path, its layers held by all devices in turn"
    steps: tuple[tuple[Phase, StepFigures | None, StepFigures | None], ...] = (
        ("prefill", summary.prefill, summary.prefill),
        ("decode", summary.decode_token, summary.decode_total),
    )
    for phase, step, rates in steps:
        if phase == "decode" and trial.decode_length == 1:
            continue
        known = step if has_figures(summary) else None
        yield MeasuredFigure(
            source_id=trial.trial_id,
            planned=planned,
            phase=phase,
            sizes=sizes,
            seconds=None if known is None else known.latency.mean / 1e9,
            spread=None if known is None else _spread(known),
            out_of_memory=memory,
            devices=setup.devices,
            why_not=why,
            tokens_per_s=None
            if rates is None or rates.throughput is None
            else rates.throughput.mean,
        )


def _spread(step: StepFigures) -> float:
    latency = step.latency
    return (latency.highest - latency.lowest) / 2 / latency.mean


def simulated(run: Run) -> bool:
    """Whether an estimate made its figures, in this run or before it was imported."""
    planned = any(d.deployment.simulated for d in run.deployments)
    return run.origin is Origin.SIMULATED or (run.origin is Origin.IMPORTED and planned)

"""Every measured figure of a run that can be estimated, with the setup that it was measured on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tgi_bench.analysis.devices import Device, NoDevice, device_of
from tgi_bench.analysis.planned import Planned, planned_setup
from tgi_bench.analysis.run import Origin, Run, StepFigures, TrialSummary
from tgi_bench.analysis.scaling import has_figures
from tgi_bench.errors import InputError
from tgi_bench.estimate.calibration import FORWARD
from tgi_bench.estimate.grid import Phase, Sizes
from tgi_bench.estimate.setup import Setup
from tgi_bench.estimate.tables import accelerator, model_shape
from tgi_bench.observation import Outcome, PublishedEntry, PublishedMetric
from tgi_bench.report.import_names import accelerator_row
from tgi_bench.report.imported_table import TableLayout, layout_of

ASSUMED = {
    TableLayout.TORCHCAP: "The rows of several devices do not state how many share an MLP: 2 "
    "(inferred from memory and runtime) and all of them are both estimated. Their link's rate is "
    "in no calibration.",
    TableLayout.BIGCODE: "Prompts are taken to have 7 or 9 tokens, by a hand count.",
    TableLayout.H2OGPT: "A runtime is 1 / (characters of an answer / 4 / its wall time), taken for "
    "a decode step at 300 tokens of context. Summaries are not estimated: they are several calls "
    "of an unknown number of tokens.",
}
"""What the estimate takes of an imported table's workload."""

STACKS = {
    TableLayout.TORCHCAP: FORWARD,
    TableLayout.BIGCODE: "transformers 4.25 generate",
    TableLayout.H2OGPT: "transformers 4.30 generate",
}
"""Whose code an imported table's figures are of."""

POEM_CONTEXT = 300
"""h2oGPT's answers of 2,000 to 2,900 characters are about 600 tokens: half of that on average."""

OTHER_DEGREE = 2
"""TorchCAP's "x 8" rows do not state the degree of their parallel MLPs; memory and runtime look
like 2 (inferred). Each is estimated in both readings."""


@dataclass(frozen=True, slots=True)
class Measured:
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

    figures: tuple[Measured, ...]
    device_sources: tuple[str, ...]
    reasons: tuple[str, ...]
    assumptions: tuple[str, ...] = ()


def measured(run: Run, device: str | None = None) -> RunMeasured:
    """device: the accelerator's row where the caller knows it; of trials only."""
    return _of_entries(run) if run.entries else _of_trials(run, device)


def _of_trials(run: Run, device: str | None) -> RunMeasured:
    planned: dict[str, Planned] = {}
    sources: dict[str, None] = {}
    reasons: dict[str, None] = {}
    for record in run.deployments:
        found = device_of(run.environment, run.origin, record)
        if isinstance(found, NoDevice):
            if device is None or not found.nameable:
                reasons[found.why] = None
                continue
            found = Device(device, "as given")
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
        for summary in run.trials
        if summary.trial.deployment_id in planned
        for figure in _of_trial(summary, planned[summary.trial.deployment_id])
    )
    return RunMeasured(figures, tuple(sources), tuple(reasons))


def _of_trial(summary: TrialSummary, planned: Planned) -> Iterator[Measured]:
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
        yield Measured(
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


def _of_entries(run: Run) -> RunMeasured:
    layout = layout_of(run.environment)
    figures: list[Measured] = []
    reasons: dict[str, None] = {}
    for entry in run.entries if layout is not None else ():
        row = accelerator_row(entry.accelerator)
        if layout is None or row is None:
            reasons[f"{entry.accelerator}: not in the table of accelerators"] = None
            continue
        try:
            figures += _of_entry(layout, entry, row)
        except InputError as error:
            reasons[str(error)] = None
    assumed = () if layout is None else (ASSUMED[layout],)
    return RunMeasured(tuple(figures), (), tuple(reasons), assumed)


def _of_entry(layout: TableLayout, entry: PublishedEntry, row: str) -> list[Measured]:
    setup = Setup(
        model=model_shape(entry.model),
        accelerator=accelerator(row),
        quantize=entry.quantize,
        dtype=entry.dtype or "float16",
        generator="transformers",
        split_devices=entry.devices if layout is TableLayout.H2OGPT else 1,
    )
    base = Measured(
        source_id=entry.entry_id,
        planned=Planned(setup, STACKS[layout]),
        phase="generate",
        sizes=Sizes(1, POEM_CONTEXT, 1),
        seconds=None,
        spread=None,
        out_of_memory=entry.end is not None and entry.end.outcome is Outcome.OUT_OF_MEMORY,
        devices=entry.devices,
    )
    match layout:
        case TableLayout.TORCHCAP:
            return _forward(entry, base)
        case TableLayout.BIGCODE:
            return _generate(entry, base)
        case TableLayout.H2OGPT:
            speed = entry.value(PublishedMetric.QUARTER_CHARACTERS_PER_S)
            return [replace(base, phase="decode", seconds=None if speed is None else 1 / speed)]


def _forward(entry: PublishedEntry, base: Measured) -> list[Measured]:
    if entry.batch_size is None or entry.prompt_tokens is None:
        return []
    ms = entry.value(PublishedMetric.FORWARD_MS)
    alone = replace(
        base,
        phase="forward",
        sizes=Sizes(entry.batch_size, entry.prompt_tokens, 1),
        seconds=None if ms is None else ms / 1e3,
        memory_gib=entry.value(PublishedMetric.MEMORY_GIB),
        energy_j_per_token=entry.value(PublishedMetric.ENERGY_J_PER_TOKEN),
        tokens_per_s=entry.value(PublishedMetric.PROMPT_TOKENS_PER_S),
    )
    if entry.devices == 1:
        return [alone]
    why = "several devices: the degree of their parallel MLPs is not stated"
    return [
        replace(alone, sizes=replace(alone.sizes, mlp_degree=degree), why_not=why)
        for degree in dict.fromkeys((OTHER_DEGREE, entry.devices))
    ]


def _generate(entry: PublishedEntry, base: Measured) -> list[Measured]:
    sizes = (entry.batch_size, entry.prompt_tokens, entry.new_tokens)
    if entry.end is None or None in sizes:
        return []
    batch, prompt, new = (size or 1 for size in sizes)
    # The rate has more digits than the seconds, which are printed to a hundredth.
    rate = entry.value(PublishedMetric.NEW_TOKENS_PER_S)
    seconds = None if rate is None else batch * new / rate
    return [replace(base, sizes=Sizes(batch, prompt, new), seconds=seconds, tokens_per_s=rate)]


def simulated(run: Run) -> bool:
    """Whether an estimate made its figures, in this run or before it was imported."""
    embedded = (d.deployment.embedded.engine for d in run.deployments)
    return run.origin is Origin.SIMULATED or (run.origin is Origin.IMPORTED and any(embedded))

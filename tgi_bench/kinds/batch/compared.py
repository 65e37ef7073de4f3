"""Each measured figure of a run beside what the estimate says of it, and beside the roofline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tgi_bench.analysis.planned import Planned
from tgi_bench.analysis.run import Run
from tgi_bench.errors import InputError
from tgi_bench.estimate.calibration import Calibration, find, parse
from tgi_bench.estimate.forward import forward_memory, forward_time
from tgi_bench.estimate.grid import Phase
from tgi_bench.estimate.memory import (
    MemoryNeed,
    decode_memory,
    fits,
    prefill_memory,
    prefill_step_memory,
)
from tgi_bench.estimate.setup import Setup
from tgi_bench.estimate.step_time import (
    StepTime,
    decode_time,
    generate_limit_s,
    generate_s,
    mean_decode_limit_s,
    mean_decode_s,
    prefill_limit_s,
    prefill_time,
)
from tgi_bench.estimate.tables import active_linear_parameters, vocabulary_parameters
from tgi_bench.kinds.batch.measured import MeasuredFigure, RunMeasured, simulated

SIMULATED_WITH = "Simulated with the calibration"
"""The name in a run's environment of the calibration that its embedded server computed with, as
YAML."""


@dataclass(frozen=True, slots=True)
class EstimateSaid:
    """What one set of constants says of one measured figure.

    bound, bound_share: None of a forward pass. memory_bytes: of one device; None where it is not
    estimated. energy_j_per_token: of all devices at their thermal design power. tokens_per_s:
    prompt tokens of a prefill and of a forward pass, else new ones.
    """

    seconds: float
    bound: str | None
    bound_share: float | None
    memory_bytes: float | None
    energy_j_per_token: float
    tokens_per_s: float


@dataclass(frozen=True, slots=True)
class Compared:
    """One measured figure. calibrated: None without a calibration.

    limit_s: at the data sheet's peaks; None where the workload is not known well enough.
    tokens: of all sequences, that the figure is spread over.
    """

    measured: MeasuredFigure
    uncalibrated: EstimateSaid
    calibrated: EstimateSaid | None
    limit_s: float | None
    tokens: int

    @property
    def roofline_share(self) -> float | None:
        """limit / measured: None without either."""
        if self.limit_s is None or self.measured.seconds is None:
            return None
        return self.limit_s / self.measured.seconds

    @property
    def best(self) -> EstimateSaid:
        """The calibrated one where there is one."""
        return self.calibrated or self.uncalibrated


@dataclass(frozen=True, slots=True)
class MemoryVerdict:
    """Whether one trial or entry ran out of memory, and whether the estimate says so."""

    source_id: str
    estimated_fits: bool
    fitted: bool


@dataclass(frozen=True, slots=True)
class Comparisons:
    """Of a whole run. rows: of figures that there are. memory: of all that ended.

    calibrations: used, each once; strange: sentences where one was fitted on something else.
    """

    rows: tuple[Compared, ...]
    memory: tuple[MemoryVerdict, ...]
    calibrations: tuple[Calibration, ...]
    strange: tuple[str, ...]
    device_sources: tuple[str, ...]
    reasons: tuple[str, ...]
    assumptions: tuple[str, ...]
    uncalibrated_stacks: tuple[tuple[str, str], ...]
    simulated: bool

    @property
    def word(self) -> str:
        """What stands beside the estimates: measured and simulated are different words."""
        return "Simulated" if self.simulated else "Measured"


def comparisons(run: Run, found: RunMeasured, ids: frozenset[str] | None = None) -> Comparisons:
    """found: the run's. ids: of the trials or entries to compare; None: all of them."""
    figures = _in_order([f for f in found.figures if ids is None or f.source_id in ids])
    own = simulated_with(run)
    chosen: dict[tuple[str, str], Calibration | None] = {}
    for figure in figures:
        if figure.planned.place not in chosen:
            chosen[figure.planned.place] = own or find(*figure.planned.place)
    rows = tuple(
        _compared(figure, chosen[figure.planned.place])
        for figure in figures
        if figure.seconds is not None
    )
    strange = dict.fromkeys(
        sentence
        for key, calibration in chosen.items()
        if calibration is not None and (sentence := calibration.strangeness(*key)) is not None
    )
    return Comparisons(
        rows=rows,
        memory=_memory_verdicts(figures),
        calibrations=tuple(dict.fromkeys(c for c in chosen.values() if c is not None)),
        strange=tuple(strange),
        device_sources=found.device_sources,
        reasons=found.reasons,
        assumptions=found.assumptions,
        uncalibrated_stacks=tuple(key for key, c in chosen.items() if c is None),
        simulated=simulated(run),
    )


def _in_order(figures: Sequence[MeasuredFigure]) -> tuple[MeasuredFigure, ...]:
    """All prefills of one setting, then all its decodes, as in the other tables."""
    settings: dict[tuple[Planned, int], dict[Phase, list[MeasuredFigure]]] = {}
    for figure in figures:
        phases = settings.setdefault((figure.planned, figure.sizes.prompt_tokens), {})
        phases.setdefault(figure.phase, []).append(figure)
    return tuple(
        figure for phases in settings.values() for ones in phases.values() for figure in ones
    )


def simulated_with(run: Run) -> Calibration | None:
    """The calibration that the run's embedded server computed with; None where it had none."""
    text = dict(run.environment).get(SIMULATED_WITH)
    return None if text is None else parse(text, "the run's environment")[0]


def _compared(figure: MeasuredFigure, calibration: Calibration | None) -> Compared:
    calibrated = None
    if calibration is not None:
        calibrated = said(figure, calibration.applied(figure.setup))
    return Compared(
        measured=figure,
        uncalibrated=said(figure, figure.setup),
        calibrated=calibrated,
        limit_s=_limit_s(figure),
        tokens=_tokens(figure),
    )


def _tokens(figure: MeasuredFigure) -> int:
    """Prompt tokens of a prefill and of a forward pass; new ones of a decode step or generate."""
    sizes = figure.sizes
    match figure.phase:
        case "prefill" | "forward":
            return sizes.batch_size * sizes.prompt_tokens
        case "decode":
            return sizes.batch_size
        case "generate":
            return sizes.tokens


def said(figure: MeasuredFigure, setup: Setup) -> EstimateSaid:
    """The estimate of one figure with the constants of `setup`."""
    seconds, step = _seconds(figure, setup)
    tokens = _tokens(figure)
    power_w = figure.devices * setup.accelerator.tdp_w
    return EstimateSaid(
        seconds=seconds,
        bound=None if step is None else step.bound,
        bound_share=None if step is None else step.bound_share,
        memory_bytes=_memory_bytes(figure, setup),
        energy_j_per_token=power_w * seconds / tokens,
        tokens_per_s=tokens / seconds,
    )


def _seconds(figure: MeasuredFigure, setup: Setup) -> tuple[float, StepTime[float] | None]:
    """Seconds, and the step whose bound is the figure's; a decode figure is its steps' mean."""
    sizes = figure.sizes
    batch, prompt = sizes.batch_size, sizes.prompt_tokens
    match figure.phase:
        case "prefill":
            step = prefill_time(setup, batch, prompt)
            return step.total_s, step
        case "decode":
            if sizes.new_tokens == 1:
                step = decode_time(setup, batch, prompt)
                return step.total_s, step
            middle = decode_time(setup, batch, sizes.middle_context)
            return mean_decode_s(setup, batch, prompt, sizes.new_tokens), middle
        case "generate":
            middle = decode_time(setup, batch, sizes.middle_context)
            return generate_s(setup, batch, prompt, sizes.new_tokens), middle
        case "forward":
            return forward_time(setup, batch, prompt, sizes.mlp_degree).total_s, None


def _need(figure: MeasuredFigure, setup: Setup) -> MemoryNeed[float] | None:
    sizes = figure.sizes
    batch, prompt = sizes.batch_size, sizes.prompt_tokens
    match figure.phase:
        case "prefill":
            return prefill_step_memory(setup, batch, prompt)
        case "decode":
            return decode_memory(setup, batch, prompt + sizes.new_tokens)
        case "generate":
            return prefill_memory(setup, batch, prompt, sizes.new_tokens)
        case "forward":
            return None


def _memory_bytes(figure: MeasuredFigure, setup: Setup) -> float | None:
    need = _need(figure, setup)
    if need is not None:
        return need.total_bytes
    if figure.devices > 1:
        return None  # how its layers are shared is not known
    return float(
        forward_memory(setup, figure.sizes.batch_size, figure.sizes.prompt_tokens).total_bytes
    )


def _limit_s(figure: MeasuredFigure) -> float | None:
    setup, sizes = figure.setup, figure.sizes
    batch, prompt = sizes.batch_size, sizes.prompt_tokens
    match figure.phase:
        case "prefill":
            return prefill_limit_s(setup, batch, prompt)
        case "decode":
            return mean_decode_limit_s(setup, batch, prompt, sizes.new_tokens)
        case "generate":
            return generate_limit_s(setup, batch, prompt, sizes.new_tokens)
        case "forward" if sizes.mlp_degree > 1:
            return None
        case "forward":
            # A loss needs the logits of every token, a prefill those of the last.
            device = setup.accelerator
            peak = device.fp32_flop_per_s if setup.dtype == "float32" else device.flop_per_s
            weights = active_linear_parameters(setup.model) + vocabulary_parameters(setup.model)
            compute_s = 2.0 * weights * batch * prompt / peak
            return max(compute_s, prefill_limit_s(setup, batch, prompt))


def _memory_verdicts(figures: Sequence[MeasuredFigure]) -> tuple[MemoryVerdict, ...]:
    """Of each trial or entry whose figures or whose end tell whether it fitted."""
    verdicts: dict[str, MemoryVerdict] = {}
    for figure in figures:
        if figure.phase == "forward" or figure.source_id in verdicts:
            continue
        if figure.seconds is None and not figure.out_of_memory:
            continue
        whole = replace(figure, phase="generate")
        try:
            need = _need(whole, figure.setup)
        except InputError:
            continue
        if need is not None:
            verdicts[figure.source_id] = MemoryVerdict(
                figure.source_id, fits(figure.setup, need), not figure.out_of_memory
            )
    return tuple(verdicts.values())

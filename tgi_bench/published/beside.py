"""Two runs of the same batches side by side, as a simulated one beside the report it is after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from tgi_bench.analysis.run import Origin, Run
from tgi_bench.errors import InputError
from tgi_bench.estimate.calibration import provenance
from tgi_bench.kinds.batch.compared import simulated_with
from tgi_bench.kinds.batch.estimated_measured import compared
from tgi_bench.kinds.batch.excess import excess_sentences
from tgi_bench.kinds.batch.measured import simulated
from tgi_bench.kinds.batch.metrics import StepFigures, TrialSummary
from tgi_bench.kinds.batch.scaling import has_figures
from tgi_bench.observation import Outcome, PublishedEntry
from tgi_bench.report.table import Table, markdown
from tgi_bench.report.torchcap_layout import relative_error
from tgi_bench.report.words import (
    UNDEFINED,
    cell_word,
    gpus,
    milliseconds,
    origin_line,
    quantization,
    tokens_per_s,
)

FILE_NAME = "side_by_side.md"
_STEPS = (("Prefill", "prefill"), ("Decode (token)", "decode"))


@dataclass(frozen=True, slots=True)
class _Cell:
    """What one batch of both runs has in common."""

    num_shard: int
    quantize: str | None
    sequence_length: int
    decode_length: int
    batch_size: int

    @property
    def group(self) -> tuple[int, int, str | None, int]:
        return (self.num_shard, self.sequence_length, self.quantize, self.decode_length)


@dataclass(frozen=True, slots=True)
class _Pair:
    """The same batch in both. estimated_s: of the other run's figure, by step, calibrated."""

    cell: _Cell
    own: TrialSummary
    other: TrialSummary
    estimated_s: dict[str, float]


def word_of(run: Run) -> str:
    """What a run's figures are called in the table."""
    if simulated(run):
        return "Simulated"
    return "Published" if run.origin is Origin.IMPORTED else "Measured"


def side_by_side(run: Run, other: Run) -> str:
    """Errors are (run - other) / other. InputError where the two have no batch in common."""
    if run.of(PublishedEntry) or other.of(PublishedEntry):
        which = run if run.of(PublishedEntry) else other
        raise InputError(
            f"run {which.run_id}: is a table of other figures than prefill and decode steps, with "
            "which nothing can be laid side by side"
        )
    own = _by_cell(run)
    theirs = _by_cell(other)
    known = _estimated(other)
    pairs = [
        _Pair(cell, own[cell], theirs[cell], known.get(theirs[cell].trial.trial_id, {}))
        for cell in theirs
        if cell in own
    ]
    if not pairs:
        raise InputError(
            f"runs {run.run_id} and {other.run_id} have no batch in common: num_shard, quantize, "
            "lengths and batch size must be equal"
        )
    words = (word_of(run), word_of(other))
    if words[0] == words[1]:
        words = (f"{words[0]} {run.run_id}", f"{words[1]} {other.run_id}")
    parts = [
        f"# {words[0]} beside {_inside(words[1])}: {run.plan.experiment}\n",
        f"- {words[0]}: run {run.run_id}, {run.plan.model}. {origin_line(run)}\n"
        f"- {words[1]}: run {other.run_id}, {other.plan.model}. {origin_line(other)}\n"
        + _calibration_line(run),
        _summary(pairs, words),
        _memory(pairs, words),
        excess_sentences(run).lstrip(),
        *_groups(pairs, words),
        _left_out(len(pairs), (len(own), len(theirs)), words),
    ]
    return "\n".join(part for part in parts if part)


def _by_cell(run: Run) -> dict[_Cell, TrialSummary]:
    found: dict[_Cell, TrialSummary] = {}
    for summary in run.of(TrialSummary):
        deployment, trial = run.plan.deployment(summary.trial.deployment_id), summary.trial
        cell = _Cell(
            deployment.num_shard,
            deployment.quantize,
            trial.sequence_length,
            trial.decode_length,
            trial.batch_size,
        )
        found.setdefault(cell, summary)
    return found


def _estimated(run: Run) -> dict[str, dict[str, float]]:
    """Calibrated seconds by trial and step."""
    known: dict[str, dict[str, float]] = {}
    for row in compared(run).rows:
        if row.calibrated is not None:
            by_step = known.setdefault(row.measured.source_id, {})
            by_step[row.measured.phase] = row.calibrated.seconds
    return known


def _calibration_line(run: Run) -> str:
    calibration = simulated_with(run)
    return "" if calibration is None else f"- {provenance(calibration)}\n"


def _latency_s(summary: TrialSummary, step: str) -> float | None:
    figures = summary.prefill if step == "prefill" else summary.decode_token
    if figures is None or not has_figures(summary):
        return None
    return figures.latency.mean / 1e9


def _rate(summary: TrialSummary, step: str) -> float | None:
    figures: StepFigures | None = summary.prefill if step == "prefill" else summary.decode_total
    if figures is None or figures.throughput is None or not has_figures(summary):
        return None
    return figures.throughput.mean


def _word(summary: TrialSummary) -> str:
    if summary.end is not None and summary.end.outcome is Outcome.OK:
        return UNDEFINED
    return cell_word(summary.end)


def _summary(pairs: Sequence[_Pair], words: tuple[str, str]) -> str:
    """For each num_shard, weights and step: how far the run is off, and the estimate itself."""
    groups: dict[tuple[int, str | None, str], list[_Pair]] = {}
    for pair in pairs:
        for _, step in _STEPS:
            groups.setdefault((pair.cell.num_shard, pair.cell.quantize, step), []).append(pair)
    titles = {step: title for title, step in _STEPS}
    rows = []
    for (num_shard, quantize, step), group in groups.items():
        both = [
            (mine, theirs, pair.estimated_s.get(step))
            for pair in group
            if (mine := _latency_s(pair.own, step)) is not None
            and (theirs := _latency_s(pair.other, step)) is not None
        ]
        if not both:
            continue
        errors = [abs(mine / theirs - 1) for mine, theirs, _ in both]
        estimated = [abs(e / theirs - 1) for _, theirs, e in both if e is not None]
        rows.append(
            (
                str(num_shard),
                quantize or "none",
                titles[step],
                str(len(both)),
                f"{mean(errors):.1%}",
                f"{mean(estimated):.1%}" if len(estimated) == len(both) else UNDEFINED,
                f"{max(errors):.1%}",
            )
        )
    headers = (
        "num_shard",
        "quantize",
        "Step",
        "Batches",
        f"Mean error, {_inside(words[0])}",
        "Mean error, calibrated estimate",
        "Largest error",
    )
    return (
        "# How far apart\n\n"
        + markdown(Table(headers, tuple(rows), frozenset({0, 3, 4, 5, 6})))
        + f"\nError = ({words[0]} - {words[1]}) / {words[1]}; means are of its absolute value. The "
        "calibrated estimate is what the step takes by the constants alone, without a client and "
        "this machine's cores.\n"
    )


def _memory(pairs: Sequence[_Pair], words: tuple[str, str]) -> str:
    """Which batches ran out of memory in both, and where the two differ."""
    out = (Outcome.OUT_OF_MEMORY, Outcome.SKIPPED)

    def ran_out(summary: TrialSummary) -> bool:
        return summary.end is not None and summary.end.outcome in out

    ends = [(pair.cell, ran_out(pair.own), ran_out(pair.other)) for pair in pairs]
    same = sum(mine == theirs for _, mine, theirs in ends)
    text = (
        f"Out of memory: {sum(mine for _, mine, _ in ends)} batches {_inside(words[0])}, "
        f"{sum(theirs for _, _, theirs in ends)} {_inside(words[1])}; {same} of {len(ends)} cells "
        "agree."
    )
    for cell, mine, theirs in ends:
        if mine != theirs:
            text += f" Otherwise: num_shard {cell.num_shard}, batch size {cell.batch_size}."
    return f"{text}\n"


def _groups(pairs: Sequence[_Pair], words: tuple[str, str]) -> list[str]:
    groups: dict[tuple[int, int, str | None, int], list[_Pair]] = {}
    for pair in pairs:
        groups.setdefault(pair.cell.group, []).append(pair)
    parts, seen = [], -1
    for (num_shard, length, quantize, _), group in groups.items():
        if num_shard != seen:
            parts.append(f"# Tensor Parallel (TP) - {gpus(num_shard)}\n")
            seen = num_shard
        parts.append(f"## Sequence Length {length}, {quantization(quantize)}\n")
        parts.append(markdown(_table(group, words)))
    return parts


def _table(group: Sequence[_Pair], words: tuple[str, str]) -> Table:
    headers = (
        "Step",
        "Batch Size",
        f"Latency: {words[1]}",
        "Latency: Estimated",
        f"Latency: {words[0]}",
        "Latency: Error",
        f"Throughput: {words[1]}",
        f"Throughput: {words[0]}",
        "Throughput: Error",
    )
    rows = tuple(
        (title, str(pair.cell.batch_size), *_cells(pair, step))
        for title, step in _STEPS
        for pair in group
    )
    return Table(headers, rows, frozenset(range(1, len(headers))))


def _cells(pair: _Pair, step: str) -> tuple[str, ...]:
    latencies = (_latency_s(pair.other, step), _latency_s(pair.own, step))
    rates = (_rate(pair.other, step), _rate(pair.own, step))
    ends = (_word(pair.other), _word(pair.own))
    shown = [
        end if value is None else milliseconds(value * 1e9)
        for value, end in zip(latencies, ends, strict=True)
    ]
    estimated = pair.estimated_s.get(step)
    return (
        shown[0],
        UNDEFINED if estimated is None else milliseconds(estimated * 1e9),
        shown[1],
        _error(latencies),
        *(
            end if value is None else tokens_per_s(value)
            for value, end in zip(rates, ends, strict=True)
        ),
        _error(rates),
    )


def _error(values: tuple[float | None, float | None]) -> str:
    error = relative_error(values[1], values[0])
    return UNDEFINED if error is None else f"{error:+.1%}"


def _left_out(common: int, counts: tuple[int, int], words: tuple[str, str]) -> str:
    return (
        f"Batches of both: {common}; {_inside(words[0])} only: {counts[0] - common}; "
        f"{_inside(words[1])} only: {counts[1] - common}.\n"
    )


def _inside(word: str) -> str:
    """Within a sentence; a run's id keeps its letters."""
    return word[0].lower() + word[1:]

"""What of a run's figures is estimated, and both side by side for CSV and JSON."""

from __future__ import annotations

from dataclasses import replace

from tgi_bench.analysis.accelerator_of import published_row
from tgi_bench.analysis.planned import Planned
from tgi_bench.analysis.run import Run, TableLayout, layout_of
from tgi_bench.errors import InputError
from tgi_bench.estimate.calibration import FORWARD
from tgi_bench.estimate.grid import Sizes
from tgi_bench.estimate.setup import Setup
from tgi_bench.estimate.tables import accelerator, model_shape
from tgi_bench.kinds.batch.compared import Compared, Comparisons, EstimateSaid, comparisons
from tgi_bench.kinds.batch.measured import MeasuredFigure, RunMeasured, measured_trials
from tgi_bench.observation import Outcome, PublishedEntry, PublishedMetric
from tgi_bench.report.estimated_answer import calibration_json
from tgi_bench.report.json_text import Json
from tgi_bench.report.table import Table, csv_text
from tgi_bench.report.torchcap_layout import relative_error


def _fields(
    run: Run, found: Comparisons, row: Compared, word: str, said: EstimateSaid
) -> dict[str, Json]:
    """observed: measured or simulated, as observed_kind says; error is relative to it."""
    figure = row.measured
    return {
        "run_id": run.run_id,
        "origin": run.origin.value,
        "source_id": figure.source_id,
        "step": figure.phase,
        "model": figure.setup.model.name,
        "accelerator": figure.setup.accelerator.name,
        "devices": figure.devices,
        "num_shard": figure.setup.num_shard,
        "quantize": figure.setup.quantize,
        "dtype": figure.setup.dtype,
        "batch_size": figure.sizes.batch_size,
        "prompt_tokens": figure.sizes.prompt_tokens,
        "new_tokens": figure.sizes.new_tokens,
        "mlp_degree": figure.sizes.mlp_degree,
        "constants": word,
        "estimated_s": said.seconds,
        "observed_kind": found.word.lower(),
        "observed_s": figure.seconds,
        "error": relative_error(said.seconds, figure.seconds),
        "roofline_s": row.limit_s,
        "roofline_share": row.roofline_share,
        "bound": said.bound,
        "bound_share": said.bound_share,
        "estimated_memory_bytes": said.memory_bytes,
        "estimated_energy_j_per_token": said.energy_j_per_token,
        "estimated_tokens_per_s": said.tokens_per_s,
        "observed_tokens_per_s": (
            None if figure.seconds is None else figure.tokens_per_s or row.tokens / figure.seconds
        ),
    }


def _all_fields(run: Run, found: Comparisons) -> list[dict[str, Json]]:
    return [
        _fields(run, found, row, word, said)
        for row in found.rows
        for word, said in (("uncalibrated", row.uncalibrated), ("calibrated", row.calibrated))
        if said is not None
    ]


def estimates_json(run: Run) -> dict[str, Json]:
    """The keys `estimates` and `calibrations` of the JSON document."""
    found = compared(run)
    rows: list[Json] = []
    for fields in _all_fields(run, found):
        rows.append({k: v for k, v in fields.items() if k not in ("run_id", "origin")})
    return {
        "estimates": rows,
        "calibrations": [calibration_json(c) for c in found.calibrations],
    }


def estimates_csv(run: Run) -> str:
    """One row a figure and set of constants; empty where nothing is estimated."""
    rows = _all_fields(run, compared(run))
    cells = tuple(tuple(map(_csv, fields.values())) for fields in rows)
    return csv_text(Table(tuple(rows[0]), cells)) if rows else ""


def _csv(value: Json) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else repr(value)


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


def measured(run: Run, device: str | None = None) -> RunMeasured:
    """device: the accelerator's row where the caller knows it; of trials only."""
    return _of_entries(run) if run.of(PublishedEntry) else measured_trials(run, device)


def compared(run: Run, ids: frozenset[str] | None = None) -> Comparisons:
    """ids: of the trials or entries to compare; None: all of them."""
    return comparisons(run, measured(run), ids)


def _of_entries(run: Run) -> RunMeasured:
    layout = layout_of(run.environment)
    figures: list[MeasuredFigure] = []
    reasons: dict[str, None] = {}
    for entry in run.of(PublishedEntry) if layout is not None else ():
        row = published_row(entry.accelerator)
        if layout is None or row is None:
            reasons[f"{entry.accelerator}: not in the table of accelerators"] = None
            continue
        try:
            figures += _of_entry(layout, entry, row)
        except InputError as error:
            reasons[str(error)] = None
    assumed = () if layout is None else (ASSUMED[layout],)
    return RunMeasured(tuple(figures), (), tuple(reasons), assumed)


def _of_entry(layout: TableLayout, entry: PublishedEntry, row: str) -> list[MeasuredFigure]:
    setup = Setup(
        model=model_shape(entry.model),
        accelerator=accelerator(row),
        quantize=entry.quantize,
        dtype=entry.dtype or "float16",
        generator="transformers",
        split_devices=entry.devices if layout is TableLayout.H2OGPT else 1,
    )
    base = MeasuredFigure(
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


def _forward(entry: PublishedEntry, base: MeasuredFigure) -> list[MeasuredFigure]:
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


def _generate(entry: PublishedEntry, base: MeasuredFigure) -> list[MeasuredFigure]:
    sizes = (entry.batch_size, entry.prompt_tokens, entry.new_tokens)
    if entry.end is None or None in sizes:
        return []
    batch, prompt, new = (size or 1 for size in sizes)
    # The rate has more digits than the seconds, which are printed to a hundredth.
    rate = entry.value(PublishedMetric.NEW_TOKENS_PER_S)
    seconds = None if rate is None else batch * new / rate
    return [replace(base, sizes=Sizes(batch, prompt, new), seconds=seconds, tokens_per_s=rate)]

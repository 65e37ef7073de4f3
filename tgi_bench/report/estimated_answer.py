"""What `tgi-bench estimate` answers: calibrated and uncalibrated figures of a matrix, as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tgi_bench.estimate.calibration import Calibration
from tgi_bench.estimate.grid import Estimate, StepEstimate
from tgi_bench.estimate.tables import parameters
from tgi_bench.report.json_text import json_text
from tgi_bench.report.table import Table, csv_text, markdown

GIB = 2**30
CONSTANTS = "Constants"
STEP_COLUMNS = 3
"""Columns after CONSTANTS of the prefill step, and as many of the decode step; then the whole's."""

UNCALIBRATED = "uncalibrated"
CALIBRATED = "calibrated"
CALIBRATED_ELSEWHERE = "calibrated elsewhere"
"""Of a calibration that was fitted on another accelerator or stack."""

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


@dataclass(frozen=True, slots=True)
class Answer:
    """One configuration. calibrated: None where there is no calibration for it.

    strangeness: what must be said where the calibration was fitted on something else; else "".
    """

    stack: str
    uncalibrated: Estimate
    calibrated: Estimate | None
    strangeness: str = ""

    @property
    def lines(self) -> tuple[tuple[str, Estimate], ...]:
        """Which constants, and what they say."""
        plain = ((UNCALIBRATED, self.uncalibrated),)
        if self.calibrated is None:
            return plain
        word = CALIBRATED_ELSEWHERE if self.strangeness else CALIBRATED
        return (*plain, (word, self.calibrated))


@dataclass(frozen=True, slots=True)
class Answers:
    """The whole matrix. calibrations: those used, each once. remarks: sentences to be said."""

    rows: tuple[Answer, ...]
    calibrations: tuple[Calibration, ...]
    remarks: tuple[str, ...]


_Cell = Callable[[Answer, str, Estimate], str]


def _step(step: StepEstimate) -> str:
    return milliseconds(step.time.total_s)


def milliseconds(seconds: float) -> str:
    """ "139.82 ms"; four digits at least of what is shorter than 10 us."""
    ms = seconds * 1e3
    return f"{ms:.2f} ms" if ms >= 0.1 else f"{ms:.3g} ms"


def percent(share: float) -> str:
    """ "63%", "0.4%": never "0%" of something that is above it."""
    return f"{share:.0%}" if share >= 0.0995 else f"{100 * share:.2g}%"


def _figure(value: float) -> str:
    """Four significant digits at least, all of them before the point."""
    return f"{value:.1f}" if value >= 1000 else f"{value:.4g}"


def _gib(value: float) -> str:
    return f"{value / GIB:.2f}" if value >= 0.01 * GIB else f"{value / GIB:.2g}"


_ASKED: tuple[tuple[str, _Cell], ...] = (
    ("Model", lambda a, w, e: e.setup.model.name),
    ("Accelerator", lambda a, w, e: e.setup.accelerator.name),
    ("Stack", lambda a, w, e: a.stack),
    ("dtype", lambda a, w, e: e.setup.dtype),
    ("num_shard", lambda a, w, e: str(e.setup.num_shard)),
    ("quantize", lambda a, w, e: e.setup.quantize or "none"),
    ("Prompt", lambda a, w, e: str(e.sizes.prompt_tokens)),
    ("New", lambda a, w, e: str(e.sizes.new_tokens)),
    ("Batch", lambda a, w, e: str(e.sizes.batch_size)),
)
"""What tells configurations apart; what all of them share stands above the table."""

_TIMES: tuple[tuple[str, _Cell], ...] = (
    (CONSTANTS, lambda a, w, e: w),
    ("Prefill", lambda a, w, e: _step(e.prefill)),
    ("Bound", lambda a, w, e: f"{e.prefill.time.bound} {percent(e.prefill.time.bound_share)}"),
    ("Roofline", lambda a, w, e: percent(e.prefill.roofline_share)),
    ("Decode", lambda a, w, e: _step(e.decode) if e.sizes.new_tokens > 1 else "-"),
    (
        "Bound",
        lambda a, w, e: (
            f"{e.decode.time.bound} {percent(e.decode.time.bound_share)}"
            if e.sizes.new_tokens > 1
            else "-"
        ),
    ),
    (
        "Roofline",
        lambda a, w, e: percent(e.decode.roofline_share) if e.sizes.new_tokens > 1 else "-",
    ),
    ("Generate", lambda a, w, e: milliseconds(e.generate_s)),
    ("Tokens/s", lambda a, w, e: _figure(e.new_tokens_per_s)),
    ("J/token", lambda a, w, e: _figure(e.energy_j_per_token)),
    ("Fits", lambda a, w, e: fits_word(e)),
)

_MEMORY: tuple[tuple[str, _Cell], ...] = (
    ("Weights", lambda a, w, e: _gib(e.memory.weights_bytes)),
    ("KV cache", lambda a, w, e: _gib(e.memory.kv_cache_bytes)),
    ("Activations", lambda a, w, e: _gib(e.memory.activations_bytes)),
    ("Runtime", lambda a, w, e: _gib(e.memory.runtime_bytes)),
    ("Total", lambda a, w, e: _gib(e.memory.total_bytes)),
    ("Device", lambda a, w, e: _gib(e.setup.accelerator.usable_bytes)),
    ("Fits", lambda a, w, e: fits_word(e)),
)

_LEFT = frozenset(
    {"Model", "Accelerator", "Stack", "dtype", "quantize", CONSTANTS, "Bound", "Fits"}
)

DEFINITIONS = (
    "Prefill: the prefill step. Decode: a decode step in the middle of the generate. Generate: "
    "prefill and new tokens - 1 decode steps.",
    "Tokens/s: batch x new tokens / generate. J/token: all devices x their thermal design power x "
    "generate / (batch x new tokens), an upper bound.",
    "Bound: what the step waits for, and its share of the step. Roofline: what the data sheet's "
    "peaks allow at best / the step.",
    "Memory is of one device, in GiB (2^30 bytes), at the step that needs most; times of what does "
    "not fit are what they would be if it did.",
)


def fits_word(estimate: Estimate) -> str:
    """ "yes", or that one device cannot hold it."""
    return "yes" if estimate.fits else "does not fit"


def shared(answers: Answers) -> tuple[tuple[str, str], ...]:
    """Name and value of what every configuration shares, and each model's parameters."""
    said = []
    for name, cell in _ASKED:
        values = {cell(row, "", row.uncalibrated) for row in answers.rows}
        if len(values) == 1:
            said.append((name, values.pop()))
    models = {row.uncalibrated.setup.model: None for row in answers.rows}
    for model in models:
        title = "Parameters" if len(models) == 1 else f"Parameters of {model.name}"
        said.append((title, f"{parameters(model):,}"))
    return tuple(said)


def tables(answers: Answers) -> tuple[tuple[str, Table], ...]:
    """Title and table: of time and energy, and of memory."""
    varying = tuple(
        (name, cell)
        for name, cell in _ASKED
        if len({cell(row, "", row.uncalibrated) for row in answers.rows}) > 1
    )
    times = (*varying, *_TIMES)
    memory = (*varying, *_MEMORY)
    return (
        (
            "Time and energy",
            _table(times, [(a, w, e) for a in answers.rows for w, e in a.lines]),
        ),
        (
            "Memory of each device (GiB)",
            _table(memory, [(a, "", a.uncalibrated) for a in answers.rows]),
        ),
    )


def asked_columns(table: Table) -> int:
    """How many of its first columns tell its rows apart; the others are figures."""
    names = {CONSTANTS, *(name for name, _ in _ASKED)}
    return sum(header in names for header in table.headers)


def _table(
    columns: Sequence[tuple[str, _Cell]], rows: Sequence[tuple[Answer, str, Estimate]]
) -> Table:
    return Table(
        tuple(name for name, _ in columns),
        tuple(tuple(cell(*row) for _, cell in columns) for row in rows),
        frozenset(i for i, (name, _) in enumerate(columns) if name not in _LEFT),
    )


def as_markdown(answers: Answers) -> str:
    """Estimates as a page."""
    parts = [
        "# Estimates\n\n**Estimated.** Nothing here was measured.\n",
        "".join(f"- {name}: {value}\n" for name, value in shared(answers)),
        *(f"## {title}\n\n{markdown(table)}" for title, table in tables(answers)),
        "".join(f"- {remark}\n" for remark in (*answers.remarks, *DEFINITIONS)),
    ]
    return "\n".join(parts)


def as_rst(answers: Answers) -> str:
    """The same in reStructuredText."""
    from tgi_bench.report.rst_table import escaped, grid, heading

    parts = [
        f"{heading('Estimates', '=')}\n**Estimated.** Nothing here was measured.\n",
        "".join(f"- {escaped(f'{name}: {value}')}\n" for name, value in shared(answers)),
        *(f"{heading(title, '-')}\n{grid(table)}" for title, table in tables(answers)),
        "".join(f"- {escaped(remark)}\n" for remark in (*answers.remarks, *DEFINITIONS)),
    ]
    return "\n".join(parts)


def fields(answer: Answer, word: str, estimate: Estimate) -> dict[str, str | int | float | bool]:
    """Every figure with its unit in its name; those of decode are 0 nowhere, but absent."""
    setup, sizes, memory = estimate.setup, estimate.sizes, estimate.memory
    found: dict[str, str | int | float | bool] = {
        "model": setup.model.name,
        "parameters": parameters(setup.model),
        "accelerator": setup.accelerator.name,
        "stack": answer.stack,
        "dtype": setup.dtype,
        "quantize": setup.quantize or "",
        "num_shard": setup.num_shard,
        "devices": setup.devices,
        "batch_size": sizes.batch_size,
        "prompt_tokens": sizes.prompt_tokens,
        "new_tokens": sizes.new_tokens,
        "constants": word,
        "prefill_s": estimate.prefill.time.total_s,
        "prefill_bound": estimate.prefill.time.bound,
        "prefill_bound_share": estimate.prefill.time.bound_share,
        "prefill_roofline_s": estimate.prefill.limit_s,
        "prefill_roofline_share": estimate.prefill.roofline_share,
        "prompt_tokens_per_s": estimate.prompt_tokens_per_s,
    }
    if sizes.new_tokens > 1:
        found |= {
            "decode_s": estimate.decode.time.total_s,
            "decode_bound": estimate.decode.time.bound,
            "decode_bound_share": estimate.decode.time.bound_share,
            "decode_roofline_s": estimate.decode.limit_s,
            "decode_roofline_share": estimate.decode.roofline_share,
            "decode_tokens_per_s": estimate.decode_tokens_per_s,
        }
    return found | {
        "generate_s": estimate.generate_s,
        "new_tokens_per_s": estimate.new_tokens_per_s,
        "energy_j_per_token": estimate.energy_j_per_token,
        "weights_bytes": memory.weights_bytes,
        "kv_cache_bytes": memory.kv_cache_bytes,
        "activations_bytes": memory.activations_bytes,
        "runtime_bytes": memory.runtime_bytes,
        "memory_bytes": memory.total_bytes,
        "device_bytes": setup.accelerator.usable_bytes,
        "fits": estimate.fits,
    }


CSV_HEADERS = (
    "model",
    "parameters",
    "accelerator",
    "stack",
    "dtype",
    "quantize",
    "num_shard",
    "devices",
    "batch_size",
    "prompt_tokens",
    "new_tokens",
    "constants",
    "prefill_s",
    "prefill_bound",
    "prefill_bound_share",
    "prefill_roofline_s",
    "prefill_roofline_share",
    "prompt_tokens_per_s",
    "decode_s",
    "decode_bound",
    "decode_bound_share",
    "decode_roofline_s",
    "decode_roofline_share",
    "decode_tokens_per_s",
    "generate_s",
    "new_tokens_per_s",
    "energy_j_per_token",
    "weights_bytes",
    "kv_cache_bytes",
    "activations_bytes",
    "runtime_bytes",
    "memory_bytes",
    "device_bytes",
    "fits",
    "strangeness",
)


def as_csv(answers: Answers) -> str:
    """One row a configuration and set of constants; what is undefined is an empty cell."""
    rows = []
    for answer in answers.rows:
        for word, estimate in answer.lines:
            strange = answer.strangeness if word != UNCALIBRATED else ""
            known = {**fields(answer, word, estimate), "strangeness": strange}
            rows.append(tuple(_csv_cell(known.get(name, "")) for name in CSV_HEADERS))
    return csv_text(Table(CSV_HEADERS, tuple(rows)))


def _csv_cell(value: str | int | float | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)


def as_json(answers: Answers) -> str:
    """Schema `tgi-bench-estimate`, version 1: estimates, calibrations and remarks."""
    rows: list[Json] = []
    for answer in answers.rows:
        for word, estimate in answer.lines:
            row: dict[str, Json] = dict(fields(answer, word, estimate))
            row["quantize"] = estimate.setup.quantize
            row["strangeness"] = answer.strangeness if word != UNCALIBRATED else ""
            rows.append(row)
    document: Json = {
        "schema": "tgi-bench-estimate",
        "schema_version": 1,
        "origin": "estimated",
        "estimates": rows,
        "calibrations": [calibration_json(calibration) for calibration in answers.calibrations],
        "remarks": list(answers.remarks),
    }
    return json_text(document)


def calibration_json(calibration: Calibration) -> Json:
    """A calibration with its provenance."""
    held: list[Json] = [
        {"split": h.split, "groups": h.groups, "error": h.error} for h in calibration.held_out
    ]
    return {
        "accelerator": calibration.accelerator,
        "stack": calibration.stack,
        "source": calibration.source,
        "fitted": dict(calibration.fitted),
        "points": calibration.points,
        "noise": calibration.noise,
        "in_sample_error": calibration.in_sample_error,
        "uncalibrated_error": calibration.uncalibrated_error,
        "held_out": held,
    }

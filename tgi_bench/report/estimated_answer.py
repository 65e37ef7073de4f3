"""What `tgi-bench estimate` answers: calibrated and uncalibrated figures of a matrix, as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tgi_bench.estimate.calibration import Calibration, Choose, said_of
from tgi_bench.estimate.grid import Estimate, Sizes, StepEstimate, estimates
from tgi_bench.estimate.setup import Setup
from tgi_bench.estimate.tables import GIB, parameters
from tgi_bench.report.json_text import json_text
from tgi_bench.report.table import Table, csv_text, markdown

CONSTANTS = "Constants"
STEP_COLUMNS = 3
"""Columns after CONSTANTS of the prefill step, and as many of the decode step; then the whole's."""

UNCALIBRATED = "uncalibrated"
CALIBRATED = "calibrated"
CALIBRATED_ELSEWHERE = "calibrated elsewhere"
"""Of a calibration that was fitted on another accelerator or stack."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """One cell of the matrix before any constant is chosen."""

    stack: str
    setup: Setup
    sizes: Sizes


@dataclass(frozen=True, slots=True)
class EstimatedConfiguration:
    """One configuration. calibrated: None where there is no calibration for it.

    strangeness: what must be said where the calibration was fitted on something else; else "".
    """

    stack: str
    uncalibrated: Estimate
    calibrated: Estimate | None
    strangeness: str = ""

    @property
    def lines(self) -> tuple[AnswerLine, ...]:
        """What each set of constants says."""
        plain = AnswerLine(self.stack, UNCALIBRATED, self.uncalibrated)
        if self.calibrated is None:
            return (plain,)
        word = CALIBRATED_ELSEWHERE if self.strangeness else CALIBRATED
        return plain, AnswerLine(self.stack, word, self.calibrated, self.strangeness)


@dataclass(frozen=True, slots=True)
class AnswerLine:
    """One configuration with one set of constants, named by `word`."""

    stack: str
    word: str
    estimate: Estimate
    strangeness: str = ""

    @property
    def setup(self) -> Setup:
        """What is estimated."""
        return self.estimate.setup


@dataclass(frozen=True, slots=True)
class Answers:
    """The whole matrix. calibrations: those used, each once. remarks: sentences to be said."""

    rows: tuple[EstimatedConfiguration, ...]
    calibrations: tuple[Calibration, ...]
    remarks: tuple[str, ...]


def answers(asked: Sequence[Configuration], choose: Choose, remarks: Sequence[str] = ()) -> Answers:
    """The figures of each configuration, uncalibrated and where there is one calibrated."""
    chosen: dict[tuple[str, str], Calibration | None] = {}
    for one in asked:
        key = (one.setup.accelerator.name, one.stack)
        if key not in chosen:
            chosen[key] = choose(*key)
    plain = estimates([(one.setup, one.sizes) for one in asked])
    own = [chosen[one.setup.accelerator.name, one.stack] for one in asked]
    fitted = iter(
        estimates(
            [
                (calibration.applied(one.setup), one.sizes)
                for one, calibration in zip(asked, own, strict=True)
                if calibration is not None
            ]
        )
    )
    rows = []
    for one, uncalibrated, calibration in zip(asked, plain, own, strict=True):
        strange = None
        if calibration is not None:
            strange = calibration.strangeness(one.setup.accelerator.name, one.stack)
        calibrated = None if calibration is None else next(fitted)
        rows.append(EstimatedConfiguration(one.stack, uncalibrated, calibrated, strange or ""))
    used = tuple(dict.fromkeys(c for c in chosen.values() if c is not None))
    said = dict.fromkeys(word for key, found in chosen.items() for word in said_of(found, *key))
    return Answers(tuple(rows), used, (*remarks, *said))


Value = None | bool | int | float | str


@dataclass(frozen=True, slots=True)
class AnswerColumn:
    """One figure of a line, in JSON, CSV and in tables.

    key: its name in JSON and CSV; "" of what tables alone have. value: None where it is undefined.
    title: of its column; "" where no table has one. text: of a cell's value; none: its cell
    without a value. right: how the column is aligned.
    """

    key: str
    value: Callable[[AnswerLine], Value]
    title: str = ""
    text: Callable[[Any], str] = str
    none: str = "-"
    right: bool = True

    def cell(self, line: AnswerLine) -> str:
        """As a table shows it."""
        value = self.value(line)
        return self.none if value is None else self.text(value)


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


def fits_word(fits: bool) -> str:
    """ "yes", or that one device cannot hold it."""
    return "yes" if fits else "does not fit"


def _step(
    name: str, title: str, of: Callable[[Estimate], StepEstimate | None]
) -> tuple[AnswerColumn, ...]:
    """of: None where there is no such step."""

    def read(value: Callable[[StepEstimate], Value]) -> Callable[[AnswerLine], Value]:
        return lambda line: None if (step := of(line.estimate)) is None else value(step)

    return (
        AnswerColumn(f"{name}_s", read(lambda step: step.time.total_s), title, milliseconds),
        AnswerColumn(
            "",
            read(lambda step: f"{step.time.bound} {percent(step.time.bound_share)}"),
            "Bound",
            right=False,
        ),
        AnswerColumn(f"{name}_bound", read(lambda step: step.time.bound)),
        AnswerColumn(f"{name}_bound_share", read(lambda step: step.time.bound_share)),
        AnswerColumn(f"{name}_roofline_s", read(lambda step: step.limit_s)),
        AnswerColumn(
            f"{name}_roofline_share", read(lambda s: s.roofline_share), "Roofline", percent
        ),
    )


def _decodes(estimate: Estimate) -> bool:
    return estimate.sizes.new_tokens > 1


_ASKED = (
    AnswerColumn("model", lambda x: x.setup.model.name, "Model", right=False),
    AnswerColumn("parameters", lambda x: parameters(x.setup.model)),
    AnswerColumn("accelerator", lambda x: x.setup.accelerator.name, "Accelerator", right=False),
    AnswerColumn("stack", lambda x: x.stack, "Stack", right=False),
    AnswerColumn("dtype", lambda x: x.setup.dtype, "dtype", right=False),
    AnswerColumn("quantize", lambda x: x.setup.quantize, "quantize", none="none", right=False),
    AnswerColumn("num_shard", lambda x: x.setup.num_shard, "num_shard"),
    AnswerColumn("devices", lambda x: x.setup.devices),
    AnswerColumn("batch_size", lambda x: x.estimate.sizes.batch_size, "Batch"),
    AnswerColumn("prompt_tokens", lambda x: x.estimate.sizes.prompt_tokens, "Prompt"),
    AnswerColumn("new_tokens", lambda x: x.estimate.sizes.new_tokens, "New"),
)

_DECODE = (
    *_step("decode", "Decode", lambda e: e.decode if _decodes(e) else None),
    AnswerColumn(
        "decode_tokens_per_s",
        lambda x: x.estimate.decode_tokens_per_s if _decodes(x.estimate) else None,
    ),
)
"""Without a decode step JSON has none of their keys."""

_FITS = AnswerColumn("fits", lambda x: x.estimate.fits, "Fits", fits_word, right=False)

_TIMES = (
    AnswerColumn("constants", lambda x: x.word, CONSTANTS, right=False),
    *_step("prefill", "Prefill", lambda e: e.prefill),
    AnswerColumn("prompt_tokens_per_s", lambda x: x.estimate.prompt_tokens_per_s),
    *_DECODE,
    AnswerColumn("generate_s", lambda x: x.estimate.generate_s, "Generate", milliseconds),
    AnswerColumn("new_tokens_per_s", lambda x: x.estimate.new_tokens_per_s, "Tokens/s", _figure),
    AnswerColumn("energy_j_per_token", lambda x: x.estimate.energy_j_per_token, "J/token", _figure),
)

_MEMORY = (
    AnswerColumn("weights_bytes", lambda x: x.estimate.memory.weights_bytes, "Weights", _gib),
    AnswerColumn("kv_cache_bytes", lambda x: x.estimate.memory.kv_cache_bytes, "KV cache", _gib),
    AnswerColumn(
        "activations_bytes", lambda x: x.estimate.memory.activations_bytes, "Activations", _gib
    ),
    AnswerColumn("runtime_bytes", lambda x: x.estimate.memory.runtime_bytes, "Runtime", _gib),
    AnswerColumn("memory_bytes", lambda x: x.estimate.memory.total_bytes, "Total", _gib),
    AnswerColumn("device_bytes", lambda x: x.setup.accelerator.usable_bytes, "Device", _gib),
    _FITS,
)

_STRANGENESS = AnswerColumn("strangeness", lambda x: x.strangeness)

_DATA = tuple(c for c in (*_ASKED, *_TIMES, *_MEMORY, _STRANGENESS) if c.key)
"""In the order of CSV and JSON."""

_TITLES = "Model Accelerator Stack dtype num_shard quantize Prompt New Batch"
_TABLE_ORDER = tuple(next(c for c in _ASKED if c.title == title) for title in _TITLES.split())
"""What tells configurations apart; what all of them share stands above the table."""

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


def shared(answers: Answers) -> tuple[tuple[str, str], ...]:
    """Name and value of what every configuration shares, and each model's parameters."""
    varying = _varying(answers)
    first = answers.rows[0].lines[0]
    said = [(one.title, one.cell(first)) for one in _TABLE_ORDER if one not in varying]
    models = {row.uncalibrated.setup.model: None for row in answers.rows}
    for model in models:
        title = "Parameters" if len(models) == 1 else f"Parameters of {model.name}"
        said.append((title, f"{parameters(model):,}"))
    return tuple(said)


def _varying(answers: Answers) -> tuple[AnswerColumn, ...]:
    """Of what was asked, in which configurations differ."""
    plain = [answer.lines[0] for answer in answers.rows]
    return tuple(one for one in _TABLE_ORDER if len({one.cell(line) for line in plain}) > 1)


def tables(answers: Answers) -> tuple[tuple[str, Table], ...]:
    """Title and table: of time and energy, and of memory."""
    varying = _varying(answers)
    lines = [line for answer in answers.rows for line in answer.lines]
    plain = [answer.lines[0] for answer in answers.rows]
    return (
        ("Time and energy", _table((*varying, *_TIMES, _FITS), lines)),
        ("Memory of each device (GiB)", _table((*varying, *_MEMORY), plain)),
    )


def asked_columns(table: Table) -> int:
    """How many of its first columns tell its rows apart; the others are figures."""
    names = {CONSTANTS, *(column.title for column in _TABLE_ORDER)}
    return sum(header in names for header in table.headers)


def _table(columns: Sequence[AnswerColumn], lines: Sequence[AnswerLine]) -> Table:
    shown = [column for column in columns if column.title]
    return Table(
        tuple(column.title for column in shown),
        tuple(tuple(column.cell(line) for column in shown) for line in lines),
        frozenset(place for place, column in enumerate(shown) if column.right),
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


def as_csv(answers: Answers) -> str:
    """One row a configuration and set of constants; what is undefined is an empty cell."""
    rows = tuple(
        tuple(_csv_cell(column.value(line)) for column in _DATA)
        for answer in answers.rows
        for line in answer.lines
    )
    return csv_text(Table(tuple(column.key for column in _DATA), rows))


def _csv_cell(value: Value) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case _:
            return repr(value)


def as_json(answers: Answers) -> str:
    """Schema `tgi-bench-estimate`, version 1: estimates, calibrations and remarks."""
    document = {
        "schema": "tgi-bench-estimate",
        "schema_version": 1,
        "origin": "estimated",
        "estimates": [_values(line) for answer in answers.rows for line in answer.lines],
        "calibrations": [calibration_json(calibration) for calibration in answers.calibrations],
        "remarks": list(answers.remarks),
    }
    return json_text(document)


def _values(line: AnswerLine) -> dict[str, Value]:
    values = {column: column.value(line) for column in _DATA}
    return {c.key: v for c, v in values.items() if v is not None or c not in _DECODE}


def calibration_json(calibration: Calibration) -> dict[str, Any]:
    """A calibration with its provenance."""
    return {**asdict(calibration), "fitted": dict(calibration.fitted)}

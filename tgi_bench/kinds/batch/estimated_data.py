"""Estimates beside the figures of a run, for its CSV and JSON documents."""

from __future__ import annotations

from tgi_bench.analysis.run import Run
from tgi_bench.kinds.batch.compared import Compared, Comparisons, EstimateSaid
from tgi_bench.kinds.batch.estimated_measured import compared
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

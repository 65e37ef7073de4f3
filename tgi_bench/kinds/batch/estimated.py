"""Estimated beside measured: the section of a page, and its rows for CSV and JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean, median

from tgi_bench.analysis.run import Run
from tgi_bench.estimate.calibration import none_published, provenance
from tgi_bench.kinds.batch.compared import Compared, Comparisons, EstimateSaid
from tgi_bench.kinds.batch.estimated_measured import compared
from tgi_bench.kinds.batch.metrics import TrialSummary
from tgi_bench.report.estimated_answer import milliseconds, percent
from tgi_bench.report.rst_table import escaped, grid, heading
from tgi_bench.report.table import Table, markdown
from tgi_bench.report.torchcap_layout import (
    Comparison,
    Figures,
    comparison_markdown,
    comparison_rst,
    relative_error,
)
from tgi_bench.report.words import UNDEFINED

GIB = 2**30
PHASES = {
    "prefill": "Prefill",
    "decode": "Decode (token)",
    "generate": "Generate",
    "forward": "Forward",
}
_LISTED = 8

_COMMON = (
    "Memory is what one device needs at that step; energy is all devices at their thermal design "
    "power, an upper bound, for each token that throughput counts: prompt tokens of a prefill and "
    "of a forward pass, new tokens else."
)


def title(found: Comparisons) -> str:
    """ "Estimated beside measured"."""
    return f"Estimated beside {found.word.lower()}"


def section(run: Run, ids: frozenset[str] | None = None) -> str:
    """The section of a Markdown page; empty where nothing is estimated.

    ids: of the page's trials; None: all of the run's, and its entries.
    """
    found = compared(run, ids)
    if not found.rows:
        return ""
    parts = [
        f"# {title(found)}\n",
        "".join(f"{line}\n" for line in _intro(found)),
        f"## Percent of the roofline\n\n{markdown(roofline(found))}\n{ROOFLINE_SENTENCE}\n",
        f"## Uncalibrated\n\n{comparison_markdown(_rows(found, _plain), 3, found.word)}",
        _errors(found, _plain),
    ]
    fitted = _rows(found, _fitted)
    if fitted:
        said = "".join(f"{line}\n" for line in _calibrated_lines(found))
        parts += [
            f"## Calibrated\n\n{said}",
            comparison_markdown(fitted, 3, found.word),
            _errors(found, _fitted),
        ]
    else:
        parts.append("".join(f"{line}\n" for line in _missing(found)))
    parts += [f"{_COMMON}\n", _memory_lines(found)]
    return "\n".join(part for part in parts if part)


def rst_section(run: Run) -> str:
    """The same in reStructuredText, of the whole run; empty where nothing is estimated."""
    found = compared(run)
    if not found.rows:
        return ""
    intro = "".join(f"{escaped(line)}\n" for line in _intro(found))
    parts = [
        heading(title(found), "-"),
        intro,
        f"{heading('Percent of the roofline', '~')}\n{grid(roofline(found))}\n"
        f"{escaped(ROOFLINE_SENTENCE)}\n",
        heading("Uncalibrated", "~"),
        comparison_rst(_rows(found, _plain), '"', found.word),
        escaped(_errors(found, _plain)) + "\n",
    ]
    fitted = _rows(found, _fitted)
    if fitted:
        parts += [
            heading("Calibrated", "~"),
            "".join(f"- {escaped(line.removeprefix('- '))}\n" for line in _calibrated_lines(found)),
            comparison_rst(fitted, '"', found.word),
            escaped(_errors(found, _fitted)) + "\n",
        ]
    else:
        parts.append("".join(f"{escaped(line)}\n" for line in _missing(found)))
    parts += [f"{escaped(_COMMON)}\n", f"{escaped(_memory_lines(found))}\n"]
    return "\n".join(part for part in parts if part.strip())


ROOFLINE_SENTENCE = (
    "Roofline: the step at the data sheet's peaks, nothing read twice, no host. Percent: roofline "
    "/ the figure. Bound: what the estimate says that the step waits for, and its share."
)


def roofline(found: Comparisons) -> Table:
    """Each figure beside the least that the hardware allows."""
    known = [row for row in found.rows if row.limit_s is not None]
    names = _names(known)
    rows = tuple(
        (
            *(value for _, value in _place(row, names)),
            milliseconds(row.measured.seconds),
            milliseconds(row.limit_s),
            UNDEFINED if row.roofline_share is None else percent(row.roofline_share),
            _bound(row.best),
        )
        for row in known
        if row.measured.seconds is not None and row.limit_s is not None
    )
    headers = (*names, found.word, "Roofline", "Percent", "Bound")
    left = {"Model", "Device", "quantize", "dtype", "Step", "Bound"}
    return Table(headers, rows, frozenset(i for i, h in enumerate(headers) if h not in left))


def _bound(said: EstimateSaid) -> str:
    if said.bound is None or said.bound_share is None:
        return UNDEFINED
    return f"{said.bound} {percent(said.bound_share)}"


def _intro(found: Comparisons) -> tuple[str, ...]:
    lines = [f"The accelerator is {source}." for source in found.device_sources]
    if found.simulated:
        lines.append(
            "An estimate made these figures: the errors below are of the simulation, not of the "
            "estimate against a device."
        )
    lines += found.assumptions
    lines += [f"Not estimated: {reason}." for reason in found.reasons]
    return tuple(lines)


def _calibrated_lines(found: Comparisons) -> tuple[str, ...]:
    lines = [f"- {provenance(calibration)}" for calibration in found.calibrations]
    if found.calibrations and not found.simulated:
        lines.append("- Errors against the figures that it was fitted to are in sample.")
    lines += [f"- **Not of this stack**: {sentence}." for sentence in found.strange]
    return (*lines, *(f"- {line}" for line in _missing(found)))


def _missing(found: Comparisons) -> tuple[str, ...]:
    return tuple(none_published(*key) for key in found.uncalibrated_stacks)


_Choice = Callable[[Compared], EstimateSaid | None]


def _plain(row: Compared) -> EstimateSaid | None:
    return row.uncalibrated


def _fitted(row: Compared) -> EstimateSaid | None:
    return row.calibrated


def _rows(found: Comparisons, choice: _Choice) -> list[Comparison]:
    """Rows that the constants say something of."""
    names = tuple(name for name in _names(found.rows) if name not in ("Model", "Device"))
    rows = []
    for row in found.rows:
        said, seconds = choice(row), row.measured.seconds
        if said is None or seconds is None:
            continue
        rows.append(
            Comparison(
                model=row.measured.setup.model.name,
                accelerator=row.measured.setup.accelerator.name,
                num_shard=row.measured.devices,
                estimated=Figures(
                    runtime_ms=said.seconds * 1e3,
                    memory_gib=None if said.memory_bytes is None else said.memory_bytes / GIB,
                    energy_j_per_token=said.energy_j_per_token,
                    tokens_per_s=said.tokens_per_s,
                ),
                measured=Figures(
                    runtime_ms=seconds * 1e3,
                    memory_gib=row.measured.memory_gib,
                    energy_j_per_token=row.measured.energy_j_per_token,
                    tokens_per_s=row.measured.tokens_per_s or row.tokens / seconds,
                ),
                before=_place(row, names),
            )
        )
    return rows


_PLACES: tuple[tuple[str, Callable[[Compared], str]], ...] = (
    ("Step", lambda r: PHASES[r.measured.phase]),
    ("num_shard", lambda r: str(r.measured.setup.num_shard)),
    ("quantize", lambda r: r.measured.setup.quantize or "none"),
    ("dtype", lambda r: r.measured.setup.dtype),
    ("Prompt tokens", lambda r: str(r.measured.sizes.prompt_tokens)),
    ("New tokens", lambda r: str(r.measured.sizes.new_tokens)),
    ("Batch Size", lambda r: str(r.measured.sizes.batch_size)),
    ("MLP degree", lambda r: str(r.measured.sizes.mlp_degree)),
    ("Model", lambda r: r.measured.setup.model.name),
    ("Device", lambda r: _device(r)),
)
"""What tells figures apart: a column where they differ in it; Step always."""


def _device(row: Compared) -> str:
    name, devices = row.measured.setup.accelerator.name, row.measured.devices
    return name if devices == 1 else f"{name} x {devices}"


def _names(rows: Sequence[Compared]) -> tuple[str, ...]:
    return tuple(
        name for name, value in _PLACES if name == "Step" or len({value(row) for row in rows}) > 1
    )


def _place(row: Compared, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value(row)) for name, value in _PLACES if name in names)


def _errors(found: Comparisons, choice: _Choice) -> str:
    """Mean |Error| of the runtime, for each step; empty without a row."""
    words = [f"{name} {error:.1%}" for name, error in mean_errors(found, choice)]
    return f"Mean |Error| of the runtime: {', '.join(words)}.\n" if words else ""


def mean_errors(found: Comparisons, choice: _Choice) -> tuple[tuple[str, float], ...]:
    """Of each step the mean of |estimated - measured| / measured; several devices by themselves."""
    by_step: dict[str, list[float]] = {}
    mixed = len({row.measured.devices > 1 for row in found.rows}) > 1
    for row in found.rows:
        said = choice(row)
        error = None if said is None else relative_error(said.seconds, row.measured.seconds)
        if error is not None:
            name = PHASES[row.measured.phase]
            if mixed:
                several = row.measured.devices > 1
                name += " on several devices" if several else " on one device"
            by_step.setdefault(name, []).append(abs(error))
    return tuple((name, mean(errors)) for name, errors in by_step.items())


def _memory_lines(found: Comparisons) -> str:
    """Of how many trials the estimate tells rightly whether they fit."""
    if not found.memory:
        return ""
    wrong = [v for v in found.memory if v.estimated_fits != v.fitted]
    out = sum(not v.fitted for v in found.memory)
    right = len(found.memory) - len(wrong)
    text = (
        f"Out of memory: {out} of {len(found.memory)} batches were; the estimate tells {right} of "
        f"{len(found.memory)} as they were."
    )
    if wrong:
        named = ", ".join(
            f"{v.source_id} ({'fits' if v.estimated_fits else 'does not fit'} by the estimate)"
            for v in wrong[:_LISTED]
        )
        more = f" and {len(wrong) - _LISTED} more" if len(wrong) > _LISTED else ""
        text += f" Otherwise: {named}{more}."
    return f"{text}\n"


def summary_section(run: Run) -> str:
    """For the page that a reader opens first: a row for each num_shard and step."""
    found = compared(run)
    if not found.rows:
        return _none_of_own_device(run, found)
    groups: dict[tuple[int, str], list[Compared]] = {}
    for row in found.rows:
        key = (row.measured.setup.num_shard, PHASES[row.measured.phase])
        groups.setdefault(key, []).append(row)
    rows = tuple(
        (
            str(num_shard),
            step,
            str(len(group)),
            _median_percent(group),
            _mean_error(group, _plain),
            _mean_error(group, _fitted),
        )
        for (num_shard, step), group in groups.items()
    )
    headers = (
        "num_shard",
        "Step",
        "Figures",
        "Percent of the roofline (median)",
        "Mean error, uncalibrated",
        "Mean error, calibrated",
    )
    notes = "".join(
        f"- {line}\n"
        for line in (
            *_intro(found),
            *(line.removeprefix("- ") for line in _calibrated_lines(found)),
            _memory_lines(found).rstrip(),
        )
        if line
    )
    return (
        f"# {title(found)}\n\n{markdown(Table(headers, rows, frozenset({0, 2, 3, 4, 5})))}\n{notes}"
    )


def _median_percent(group: Sequence[Compared]) -> str:
    shares = [row.roofline_share for row in group if row.roofline_share is not None]
    return percent(median(shares)) if shares else UNDEFINED


def _mean_error(group: Sequence[Compared], choice: _Choice) -> str:
    errors = []
    for row in group:
        said = choice(row)
        error = None if said is None else relative_error(said.seconds, row.measured.seconds)
        if error is not None:
            errors.append(abs(error))
    return f"{mean(errors):.1%}" if errors else UNDEFINED


def _none_of_own_device(run: Run, found: Comparisons) -> str:
    """Why batches of the engine `transformers` have no estimate; empty of other runs."""
    if not run.of(TrialSummary) or all(
        d.deployment.planned_accelerator is not None for d in run.deployments
    ):
        return ""
    why = "".join(f"Not estimated: {reason}.\n" for reason in found.reasons)
    return f"# {title(found)}\n\n{why}" if why else ""

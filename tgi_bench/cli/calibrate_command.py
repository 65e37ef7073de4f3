"""`tgi-bench calibrate`: the estimate's constants fitted to the measured times of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tgi_bench.analysis.run import Run
from tgi_bench.cli.output import echo
from tgi_bench.cli.run_view import load
from tgi_bench.cli.tables import print_folded, standard_output
from tgi_bench.errors import InputError, ResultsError
from tgi_bench.estimate.calibration import Calibration, dump
from tgi_bench.estimate.setup import ABSENT, UNCALIBRATED, check_names
from tgi_bench.estimate.tables import accelerator
from tgi_bench.kinds.batch.estimated_measured import measured
from tgi_bench.kinds.batch.measured import MeasuredFigure, simulated
from tgi_bench.report.table import Table

_SIMULATED = "SIMULATED: fitted to an estimate's own times, not to a device"


@dataclass(frozen=True, slots=True)
class CalibrateOptions:
    """output: the YAML file; None: only printed. names: the constants; () is the usual ones.

    device: the accelerator's row where the run does not name it.
    """

    output: Path | None
    names: tuple[str, ...]
    device: str | None
    simulated_ok: bool


@dataclass(frozen=True, slots=True)
class _Fitted:
    """One accelerator and stack: what came of the fit, and what was left out of it."""

    calibration: Calibration
    left_out: tuple[str, ...]


def run(paths: Sequence[Path], options: CalibrateOptions) -> None:
    """Fit, print and write; raises InputError where no calibration comes of it."""
    if options.names:
        check_names(options.names)
    if options.device is not None:
        accelerator(options.device)
    if options.output is not None and options.output.exists():
        raise InputError(f"{options.output}: exists; give -o a new file's name")
    runs = [load(path) for path in paths]
    twice = [run.run_id for run in runs if [one.run_id for one in runs].count(run.run_id) > 1]
    if twice:
        raise InputError(f"run {twice[0]} is given twice: a figure left out would have its twin in")
    figures = _figures(runs, options)
    groups: dict[tuple[str, str], list[MeasuredFigure]] = {}
    sources: dict[tuple[str, str], list[str]] = {}
    for figure, source in figures:
        groups.setdefault(figure.planned.place, []).append(figure)
        sources.setdefault(figure.planned.place, []).append(source)
    fitted: list[_Fitted] = []
    refused: list[str] = []
    for key, group in groups.items():
        try:
            source = "; ".join(dict.fromkeys(sources[key]))
            fitted.append(_fit(key, group, source, options))
        except InputError as error:
            refused.append(f"{key[1]} on {key[0]}: {error}")
    if not fitted:
        raise InputError("; ".join(refused) or _nothing(runs))
    for one in fitted:
        _print(one)
    for sentence in refused:
        echo(f"not calibrated: {sentence}")
    if options.output is None:
        echo("not kept: give -o FILE to write it")
        return
    _write(options.output, tuple(one.calibration for one in fitted))
    echo(f"wrote {options.output}: tgi-bench estimate --calibration {options.output} ...")


def _figures(runs: Sequence[Run], options: CalibrateOptions) -> list[tuple[MeasuredFigure, str]]:
    """What was measured in all runs, each with its run's name for the provenance."""
    figures: list[tuple[MeasuredFigure, str]] = []
    for one in runs:
        source = f"{one.origin.value} run {one.plan.experiment}/{one.run_id}"
        if simulated(one):
            if not options.simulated_ok:
                raise InputError(
                    f"run {one.run_id} is simulated: its times are an estimate's; with "
                    "--simulated-ok it is taken, and the calibration says so"
                )
            source += f" ({_SIMULATED})"
        found = measured(one, options.device)
        figures += [(figure, source) for figure in found.figures if figure.seconds is not None]
        if not found.figures and found.reasons:
            raise InputError(
                f"run {one.run_id}: {found.reasons[0]}; --accelerator names it"
                if "accelerator" in found.reasons[0]
                else f"run {one.run_id}: {found.reasons[0]}"
            )
    return figures


def _nothing(runs: Sequence[Run]) -> str:
    names = ", ".join(run.run_id for run in runs)
    return f"{names}: no measured batch to fit to; loads over HTTP are not fitted"


def _fit(
    key: tuple[str, str], group: Sequence[MeasuredFigure], source: str, options: CalibrateOptions
) -> _Fitted:
    # Imported here: scipy takes longer to load than most commands take.
    from tgi_bench.estimate import fitting

    used = [figure for figure in group if not figure.why_not] or list(group)
    reasons: dict[str, int] = {}
    for figure in group:
        if figure not in used:
            reasons[figure.why_not] = reasons.get(figure.why_not, 0) + 1
    points = [
        fitting.Point(figure.setup, figure.phase, figure.sizes, figure.seconds, figure.spread)
        for figure in used
        if figure.seconds is not None
    ]
    accelerator, stack = key
    names = options.names or fitting.usual_names(stack, points)
    calibration = fitting.calibrate(
        fitting.Subject(accelerator, stack, source),
        points,
        names,
        fitting.splits_of(points, len(names)),
        fitting.noise_of(points),
    )
    left_out = tuple(f"{count} left out: {reason}" for reason, count in reasons.items())
    return _Fitted(calibration, left_out)


def _print(fitted: _Fitted) -> None:
    calibration = fitted.calibration
    echo(f"{calibration.stack} on {calibration.accelerator}")
    echo(f"  fitted to {calibration.points} measured times of {calibration.source}")
    echo(f"  one measurement is taken to be within {calibration.noise:.1%}")
    for sentence in fitted.left_out:
        echo(f"  {sentence}")
    console = standard_output()
    for table in (_constants(calibration), _errors(calibration)):
        echo()
        print_folded(console, table, 1)
    echo()


def _constants(calibration: Calibration) -> Table:
    plain = UNCALIBRATED.values()
    rows = tuple(
        (
            name,
            f"{value:.4g}",
            "not modelled" if name in ABSENT else f"{plain[name]:.4g}",
            unit_of(name),
        )
        for name, value in calibration.fitted
    )
    return Table(("Constant", "Fitted", "Uncalibrated", "Unit"), rows, frozenset({1, 2}))


def unit_of(name: str) -> str:
    """A constant's unit, which its name ends in."""
    if name.endswith("_efficiency"):
        return "share of the data sheet's peak"
    if name.endswith("_operations"):
        return "operations"
    return "s"


def _errors(calibration: Calibration) -> Table:
    rows = [
        ("uncalibrated", "-", f"{calibration.uncalibrated_error:.2%}"),
        ("in sample", "-", f"{calibration.in_sample_error:.2%}"),
        *(
            (f"{one.split} left out", str(one.groups), f"{one.error:.2%}")
            for one in calibration.held_out
        ),
    ]
    return Table(
        ("Mean |estimated - measured| / measured", "Groups", "Error"),
        tuple(rows),
        frozenset({1, 2}),
    )


def _write(path: Path, calibrations: tuple[Calibration, ...]) -> None:
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(dump(calibrations))
    except FileExistsError:
        raise InputError(f"{path}: exists; give -o a new file's name") from None
    except OSError as error:
        raise ResultsError(f"{path}: cannot be written: {error.strerror}") from None

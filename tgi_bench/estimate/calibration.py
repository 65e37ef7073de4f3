"""A calibration: constants fitted for one accelerator and software stack, and where from.

A YAML file holds one or several of them; calibrations.yaml beside this file those of the published
tables. Nothing here fits: `calibrate` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from math import isfinite

from tgi_bench.errors import InputError
from tgi_bench.estimate.constants import UNCALIBRATED, Constants, check_names
from tgi_bench.estimate.setup import Setup

FILE = "calibrations.yaml"


@dataclass(frozen=True, slots=True)
class HeldOut:
    """How far constants fitted without one group of points are off on it, all groups in turn.

    split: what one group is, in words ("one point", "one num_shard").
    error: mean of |estimated / measured - 1| over all points.
    """

    split: str
    groups: int
    error: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Fitted constants with their provenance.

    stack: server and version, or library, in words; figures of another stack are not its own.
    fitted: names and values; every other constant is UNCALIBRATED's.
    source: the run or the published table that it was fitted to.
    noise: relative standard deviation of one measurement that the fit took.
    in_sample_error: mean of |estimated / measured - 1| over the points that it was fitted to;
        uncalibrated_error: the same of UNCALIBRATED.
    """

    accelerator: str
    stack: str
    source: str
    fitted: tuple[tuple[str, float], ...]
    points: int
    noise: float
    in_sample_error: float
    uncalibrated_error: float
    held_out: tuple[HeldOut, ...]

    def __post_init__(self) -> None:
        check_names(tuple(name for name, _ in self.fitted))
        if self.points < len(self.fitted):
            raise InputError(
                f"too few measurements for a calibration: {self.points} for "
                f"{len(self.fitted)} constants"
            )

    @property
    def constants(self) -> Constants:
        """UNCALIBRATED with the fitted ones in place; InputError for one outside its range."""
        return replace(UNCALIBRATED, **dict(self.fitted))

    def strangeness(self, accelerator: str, stack: str) -> str | None:
        """What must be said where it is used for them; None where it was fitted on both."""
        other = []
        if accelerator != self.accelerator:
            other.append(f"{self.accelerator}, not {accelerator}")
        if stack != self.stack:
            other.append(f"{self.stack!r}, not {stack!r}")
        return f"the calibration was fitted on {' and on '.join(other)}" if other else None

    def applied(self, setup: Setup) -> Setup:
        """The setup with its constants; `strangeness` says what must be said beside it."""
        return replace(setup, constants=self.constants)


def _mapping(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise InputError(f"{where} is not a mapping of names")
    return value


def _text(row: Mapping[str, object], key: str, where: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value:
        raise InputError(f"{where}: {key} is missing or not a text")
    return value


def _figure(row: Mapping[str, object], key: str, where: str) -> float:
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise InputError(f"{where}: {key} is missing or not a number")
    return float(value)


def _list(row: Mapping[str, object], key: str, where: str) -> list[object]:
    value = row.get(key)
    if not isinstance(value, list):
        raise InputError(f"{where}: {key} is missing or not a list")
    return value


def _from_row(value: object, where: str) -> Calibration:
    row = _mapping(value, where)
    fitted = _mapping(row.get("fitted"), f"{where}: fitted")
    held_out = [_mapping(one, f"{where}: held_out") for one in _list(row, "held_out", where)]
    calibration = Calibration(
        accelerator=_text(row, "accelerator", where),
        stack=_text(row, "stack", where),
        source=_text(row, "source", where),
        fitted=tuple((name, _figure(fitted, name, where)) for name in fitted),
        points=int(_figure(row, "points", where)),
        noise=_figure(row, "noise", where),
        in_sample_error=_figure(row, "in_sample_error", where),
        uncalibrated_error=_figure(row, "uncalibrated_error", where),
        held_out=tuple(
            HeldOut(
                split=_text(one, "split", where),
                groups=int(_figure(one, "groups", where)),
                error=_figure(one, "error", where),
            )
            for one in held_out
        ),
    )
    _ = calibration.constants  # out-of-range values are refused here, not at first use
    return calibration


def parse(text: str, file: str) -> tuple[Calibration, ...]:
    """The calibrations of a YAML text; InputError in one sentence that names the file."""
    import yaml

    try:
        rows = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"{file} is not YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(rows, list) or not rows:
        raise InputError(f"{file} is not a list of calibrations")
    return tuple(
        _from_row(row, f"{file}, calibration {number}") for number, row in enumerate(rows, 1)
    )


def _row(calibration: Calibration) -> dict[str, object]:
    return {
        "accelerator": calibration.accelerator,
        "stack": calibration.stack,
        "source": calibration.source,
        "fitted": {name: float(f"{value:.6g}") for name, value in calibration.fitted},
        "points": calibration.points,
        "noise": calibration.noise,
        "in_sample_error": round(calibration.in_sample_error, 5),
        "uncalibrated_error": round(calibration.uncalibrated_error, 5),
        "held_out": [
            {"split": one.split, "groups": one.groups, "error": round(one.error, 5)}
            for one in calibration.held_out
        ],
    }


def dump(calibrations: tuple[Calibration, ...]) -> str:
    """YAML that `parse` reads; figures to 6 and errors to 5 places."""
    import yaml

    rows = [_row(calibration) for calibration in calibrations]
    return yaml.safe_dump(rows, sort_keys=False, allow_unicode=True, width=100)


@cache
def published() -> tuple[Calibration, ...]:
    """The calibrations of the published tables."""
    return parse(files(__package__).joinpath(FILE).read_text(encoding="utf-8"), FILE)


def find(accelerator: str, stack: str) -> Calibration | None:
    """The published tables' calibration for exactly that accelerator and stack; None without."""
    for calibration in published():
        if calibration.strangeness(accelerator, stack) is None:
            return calibration
    return None

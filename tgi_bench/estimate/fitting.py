"""Fits a calibration's constants to measured times, and says how far it is off on held-out ones.

The only module that imports scipy.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, log
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import OptimizeResult, least_squares

from tgi_bench.errors import InputError
from tgi_bench.estimate.arithmetic import N
from tgi_bench.estimate.calibration import TRANSFORMERS, Calibration, HeldOut, published
from tgi_bench.estimate.forward import forward_time
from tgi_bench.estimate.grid import FEW, Phase, Sizes, rows_of, size_columns
from tgi_bench.estimate.setup import PRIOR, RANGES, UNCALIBRATED, Setup, check_names
from tgi_bench.estimate.step_time import decode_context, decode_time, generate_s, prefill_time

if TYPE_CHECKING:
    from tgi_bench.estimate.arithmetic import FloatArray


@dataclass(frozen=True, slots=True)
class Point:
    """One measured time. Constants of `setup` that a fit does not name stay as they are there.

    phase: one prefill step, the decode step in the middle, a whole generate, or a forward pass
        with loss. spread: (highest - lowest) / 2 / mean of the samples; None where not known.
    InputError for a time that is not a positive number.
    """

    setup: Setup
    phase: Phase
    sizes: Sizes
    measured_s: float
    spread: float | None = None

    def __post_init__(self) -> None:
        if not (isfinite(self.measured_s) and self.measured_s > 0):
            raise InputError(f"a measured time is {self.measured_s}; it must be above 0 seconds")


def _seconds(setup: Setup, phase: Phase, mlp_degree: int, sizes: tuple[N, N, N]) -> N:
    batch_size, prompt_tokens, new_tokens = sizes
    match phase:
        case "prefill":
            return prefill_time(setup, batch_size, prompt_tokens).total_s
        case "decode":
            context = decode_context(prompt_tokens, new_tokens)
            return decode_time(setup, batch_size, context).total_s
        case "generate":
            return generate_s(setup, batch_size, prompt_tokens, new_tokens)
        case "forward":
            return forward_time(setup, batch_size, prompt_tokens, mlp_degree).total_s


def estimated_s(points: Sequence[Point], values: Mapping[str, float] | None = None) -> FloatArray:
    """Estimated seconds of each point, shape (n,); `values` replace its setup's constants."""
    times = np.empty(len(points))
    groups = rows_of((point.setup, point.phase, point.sizes.mlp_degree) for point in points)
    for (setup, phase, degree), rows in groups.items():
        if values is not None:
            setup = replace(setup, constants=replace(setup.constants, **values))
        sizes = [points[row].sizes for row in rows]
        if len(rows) >= FEW:
            times[rows] = _seconds(setup, phase, degree, size_columns(sizes))
        else:
            asked = [(one.batch_size, one.prompt_tokens, one.new_tokens) for one in sizes]
            times[rows] = [_seconds(setup, phase, degree, one) for one in asked]
    return times


def measured_s(points: Sequence[Point]) -> FloatArray:
    """Measured seconds of each point, shape (n,)."""
    return np.array([point.measured_s for point in points])


PRIOR_FACTOR = 2.0
"""A constant is taken to be within this factor of the prior's at one standard deviation.

UNCALIBRATED's values are orders of magnitude; a factor of 2 is what that means here.
"""

NOISE = 0.03
"""Relative standard deviation of one measurement where its table or run states none."""

ONE_SAYS_NOTHING = 1e-6
"""A constant whose column of the measurements' Jacobian is below it has no effect on them."""

CANNOT_TELL = 1e6
"""Condition number of the column-scaled Jacobian above which constants cannot be told apart."""

LOWER_STARTS = (4, 16)
"""A share of a rate is also tried from a 4th and a 16th of its prior's value: where no
measurement is bound by that rate the estimate is flat, and a search from the prior stays there."""

PADDED_NAMES = (
    "dispatch_s",
    "kv_bandwidth_efficiency",
    "choice_dispatch_s",
    "rank_skew_s",
    "prompt_position_s",
)
"""What is fitted of TGI's padded class: the first four count in decode, the last in prefill.

Chosen after seeing the published TGI table's errors with one num_shard left out: 4.8 % in decode
and 7.8 % in prefill. compute_efficiency in place of choice_dispatch_s gave 5.4 and 8.0, in place of
rank_skew_s 6.4 and 8.4; no other set of five was tried.
"""

FLASH_NAMES = (
    "dispatch_s",
    "bandwidth_efficiency",
    "compute_efficiency",
    "rank_skew_s",
    "prompt_position_s",
)
"""What is fitted of TGI's flash class. Chosen before any measurement of it was seen."""

LOWEST_NOISE, HIGHEST_NOISE = 0.001, 0.5

FAR = 2
"""Prompts of less than this factor's difference tell nothing of leaving one out."""


@dataclass(frozen=True, slots=True)
class Fit:
    """The constants that one fit found.

    values: the fitted ones. informed: those that the measurements say something of; the others
    stay at the prior's value.
    condition: of the measurements' Jacobian, its columns scaled to length 1.
    """

    values: dict[str, float]
    informed: tuple[str, ...]
    points: int
    condition: float

    def require_regular(self) -> Fit:
        """InputError where a constant is not informed or two cannot be told apart."""
        silent = [name for name in self.values if name not in self.informed]
        if silent:
            raise InputError(
                f"singular fit: the measurements say nothing of {', '.join(silent)}; "
                "fit fewer constants or measure where it counts"
            )
        if self.condition > CANNOT_TELL:
            raise InputError(
                f"singular fit: the measurements cannot tell {', '.join(self.values)} apart; "
                "fit fewer constants"
            )
        return self


@dataclass(frozen=True, slots=True)
class Prediction:
    """One measurement and what constants fitted without it say of it. index: its row."""

    index: int
    estimated_s: float
    measured_s: float

    @property
    def error(self) -> float:
        """estimated / measured - 1."""
        return self.estimated_s / self.measured_s - 1


@dataclass(frozen=True, slots=True)
class Subject:
    """What a calibration is of: accelerator, software stack, source, all in words."""

    accelerator: str
    stack: str
    source: str


def names_for(points: Sequence[Point]) -> tuple[str, ...]:
    """The constants that measured steps of a server can be expected to tell of, at most 5.

    PADDED_NAMES or FLASH_NAMES, less rank_skew_s without num_shard above 1, and less what only
    prefill tells of where there is no prefill.
    InputError for no point, or points of both classes.
    """
    padded = {point.setup.padded for point in points}
    if len(padded) != 1:
        raise InputError(
            "a calibration needs measurements of one class of server, padded or flash; there are "
            + ("none" if not padded else "both")
        )
    shards = any(point.setup.num_shard > 1 for point in points)
    prefills = any(point.phase in ("prefill", "generate") for point in points)
    return tuple(
        name
        for name in (PADDED_NAMES if padded.pop() else FLASH_NAMES)
        if (shards or name != "rank_skew_s")
        and (prefills or name not in ("prompt_position_s", "compute_efficiency"))
    )


def usual_names(stack: str, points: Sequence[Point]) -> tuple[str, ...]:
    """What the published calibration of the same transformers fits; else as `names_for`."""
    for calibration in published():
        if calibration.stack == stack and stack.startswith(TRANSFORMERS):
            return tuple(name for name, _ in calibration.fitted)
    return names_for(points)


def splits_of(points: Sequence[Point], constants: int) -> dict[str, list[Hashable]]:
    """Labels of points that are left out together, where what remains is enough for a fit."""
    prompts = [point.sizes.prompt_tokens for point in points]
    candidates: dict[str, list[Hashable]] = {
        "one num_shard": [point.setup.num_shard for point in points],
        "one batch size": [point.sizes.batch_size for point in points],
        "one prompt length": [*prompts] if max(prompts) >= FAR * min(prompts) else [],
        "one model": [point.setup.model.name for point in points],
    }
    return {
        name: labels
        for name, labels in candidates.items()
        if 1 < len(set(labels)) < len(labels)
        and len(labels) - max(labels.count(label) for label in labels) >= max(2, constants)
    }


def noise_of(points: Sequence[Point]) -> float:
    """Mean spread of the points, from 0.5 to 50 %; NOISE where none is known."""
    spreads = [point.spread for point in points if point.spread is not None]
    return round(min(max(mean(spreads), 0.005), 0.5), 4) if spreads else NOISE


def _starts(prior: FloatArray, names: tuple[str, ...]) -> list[FloatArray]:
    """The prior, and each share alone at LOWER_STARTS of it."""
    starts = [prior]
    for factor in LOWER_STARTS:
        for position, name in enumerate(names):
            if name.endswith("_efficiency"):
                lower = prior.copy()
                lower[position] -= log(factor)
                starts.append(lower)
    return starts


def _values(names: tuple[str, ...], logs: FloatArray) -> dict[str, float]:
    """Names and values; exp(log(x)) may pass a bound by a rounding."""
    return {
        name: min(max(float(np.exp(value)), RANGES[name][0]), RANGES[name][1])
        for name, value in zip(names, logs, strict=True)
    }


def _found(best: OptimizeResult, names: tuple[str, ...], points: int, noise: float) -> Fit:
    jacobian = np.asarray(best.jac, dtype=np.float64)[:points]
    lengths = np.sqrt((jacobian**2).sum(axis=0))
    heard = lengths > ONE_SAYS_NOTHING / noise
    scaled = jacobian[:, heard] / lengths[heard]
    return Fit(
        values=_values(names, best.x),
        informed=tuple(name for name, says in zip(names, heard, strict=True) if says),
        points=points,
        condition=float(np.linalg.cond(scaled)) if heard.any() else float("inf"),
    )


def fit(points: Sequence[Point], names: tuple[str, ...], noise: float = NOISE) -> Fit:
    """Least squares on log(estimated / measured) / noise and log(constant / prior) / log(factor).

    The second term keeps a constant of which the measurements say little near PRIOR.
    noise: relative standard deviation of one measurement.
    InputError for fewer points than constants, names that check_names refuses, a noise that is
    none.
    """
    check_names(names)
    if not LOWEST_NOISE <= noise <= HIGHEST_NOISE:
        raise InputError(f"noise is {noise}; it must be from {LOWEST_NOISE} to {HIGHEST_NOISE}")
    if len(points) < max(2, len(names)):
        raise InputError(
            f"too few measurements for a calibration: {len(points)} for {len(names)} constants"
        )
    centre = np.log([PRIOR.values()[name] for name in names])
    lowest = np.log([RANGES[name][0] for name in names])
    highest = np.log([RANGES[name][1] for name in names])
    target = np.log(measured_s(points))

    def residuals(logs: FloatArray) -> FloatArray:
        data = (np.log(estimated_s(points, _values(names, logs))) - target) / noise
        return np.concatenate((data, (logs - centre) / log(PRIOR_FACTOR)))

    margin = 1e-6  # a start must lie strictly inside its bounds
    solutions = [
        least_squares(
            residuals,
            np.clip(start, lowest + margin, highest - margin),
            bounds=(lowest, highest),
            max_nfev=60,
        )
        for start in _starts(centre, names)
    ]
    best = min(solutions, key=lambda solution: float(solution.cost))
    return _found(best, names, len(points), noise)


def predictions(points: Sequence[Point], values: Mapping[str, float]) -> tuple[Prediction, ...]:
    """What the constants say of each point."""
    estimated = estimated_s(points, values)
    return tuple(
        Prediction(row, float(one), point.measured_s)
        for row, (one, point) in enumerate(zip(estimated, points, strict=True))
    )


def held_out(
    points: Sequence[Point],
    names: tuple[str, ...],
    groups: Sequence[Hashable],
    noise: float = NOISE,
) -> tuple[Prediction, ...]:
    """Each group of points predicted by constants fitted without it, in the order of points.

    groups: one label a point; as many different ones as points is leave-one-out.
    InputError for fewer than two groups, or as `fit`.
    """
    labels = dict.fromkeys(groups)
    if len(labels) < 2 or len(groups) != len(points):
        raise InputError("held-out errors need a label for each measurement and two labels or more")
    found: list[Prediction] = []
    for label in labels:
        test = [row for row, group in enumerate(groups) if group == label]
        train = [point for point, group in zip(points, groups, strict=True) if group != label]
        values = fit(train, names, noise).values
        tested = predictions([points[row] for row in test], values)
        found += [replace(one, index=test[one.index]) for one in tested]
    return tuple(sorted(found, key=lambda prediction: prediction.index))


def mean_absolute_error(predicted: Sequence[Prediction]) -> float:
    """Mean of |estimated / measured - 1|; InputError for none."""
    if not predicted:
        raise InputError("there is no prediction to take the mean error of")
    return sum(abs(prediction.error) for prediction in predicted) / len(predicted)


def calibrate(
    subject: Subject,
    points: Sequence[Point],
    names: tuple[str, ...],
    splits: Mapping[str, Sequence[Hashable]],
    noise: float = NOISE,
) -> Calibration:
    """Constants fitted to all points, with leave-one-out error and one for each of `splits`.

    splits: for each split's name one label a point; points of one label are left out together.
    InputError for too few points, a singular fit, or as `held_out`.
    """
    found = fit(points, names, noise).require_regular()
    everything = {"one point": tuple(range(len(points))), **splits}
    errors = tuple(
        HeldOut(
            split=split,
            groups=len(set(labels)),
            error=mean_absolute_error(held_out(points, names, labels, noise)),
        )
        for split, labels in everything.items()
    )
    uncalibrated = {name: UNCALIBRATED.values()[name] for name in names}
    return Calibration(
        accelerator=subject.accelerator,
        stack=subject.stack,
        source=subject.source,
        fitted=tuple(found.values.items()),
        points=len(points),
        noise=noise,
        in_sample_error=mean_absolute_error(predictions(points, found.values)),
        uncalibrated_error=mean_absolute_error(predictions(points, uncalibrated)),
        held_out=errors,
    )

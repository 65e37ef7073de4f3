"""Measured times that a calibration is fitted to, and what constants say of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Literal

import numpy as np

from tgi_bench.errors import InputError
from tgi_bench.estimate.forward import forward_time
from tgi_bench.estimate.grid import FloatArray, grid_of
from tgi_bench.estimate.setup import Setup, check_sizes
from tgi_bench.estimate.step_arrays import decode_arrays, generate_s, prefill_arrays

Phase = Literal["prefill", "decode", "generate", "forward"]


@dataclass(frozen=True, slots=True)
class Sizes:
    """What one measurement ran.

    prompt_tokens: of each sequence; in decode the tokens that it attends to.
    new_tokens: of a generate. mlp_degree: devices that share each MLP of a forward pass.
    """

    batch_size: int
    prompt_tokens: int
    new_tokens: int = 1
    mlp_degree: int = 1

    def __post_init__(self) -> None:
        check_sizes(
            batch_size=self.batch_size,
            prompt_tokens=self.prompt_tokens,
            new_tokens=self.new_tokens,
            mlp_degree=self.mlp_degree,
        )


@dataclass(frozen=True, slots=True)
class Point:
    """One measured time. Constants of `setup` that a fit does not name stay as they are there.

    phase: one prefill step, one decode step, a whole generate, or a forward pass with loss.
    InputError for a time that is not a positive number.
    """

    setup: Setup
    phase: Phase
    sizes: Sizes
    measured_s: float

    def __post_init__(self) -> None:
        if not (isfinite(self.measured_s) and self.measured_s > 0):
            raise InputError(f"a measured time is {self.measured_s}; it must be above 0 seconds")


def _phase_s(phase: Phase, setups: Sequence[Setup], sizes: Sequence[Sizes]) -> FloatArray:
    if phase == "forward":
        times = [
            forward_time(setup, size.batch_size, size.prompt_tokens, size.mlp_degree).total_s
            for setup, size in zip(setups, sizes, strict=True)
        ]
        return np.array(times)
    grid = grid_of(setups, [(s.batch_size, s.prompt_tokens, s.new_tokens) for s in sizes])
    match phase:
        case "prefill":
            return prefill_arrays(grid).total_s
        case "decode":
            return decode_arrays(grid).total_s
        case "generate":
            return generate_s(grid)


def estimated_s(points: Sequence[Point], values: Mapping[str, float] | None = None) -> FloatArray:
    """Estimated seconds of each point, shape (n,); `values` replace its setup's constants."""
    setups = {point.setup: point.setup for point in points}
    if values is not None:
        setups = {
            setup: replace(setup, constants=replace(setup.constants, **values)) for setup in setups
        }
    times = np.empty(len(points))
    rows: dict[Phase, list[int]] = {}
    for row, point in enumerate(points):
        rows.setdefault(point.phase, []).append(row)
    for phase, of_phase in rows.items():
        times[of_phase] = _phase_s(
            phase,
            [setups[points[row].setup] for row in of_phase],
            [points[row].sizes for row in of_phase],
        )
    return times


def measured_s(points: Sequence[Point]) -> FloatArray:
    """Measured seconds of each point, shape (n,)."""
    return np.array([point.measured_s for point in points])

"""Everything that is estimated of a grid of configurations, at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tgi_bench.estimate.grid import FloatArray, Grid
from tgi_bench.estimate.memory_arrays import MemoryArrays, energy_j, memory_arrays
from tgi_bench.estimate.setup import LARGEST_SIZE
from tgi_bench.estimate.step_arrays import StepArrays, decode_arrays, generate_s, prefill_arrays


@dataclass(frozen=True, slots=True)
class GridEstimate:
    """n configurations; arrays of shape (n,), every figure finite and above 0.

    prefill: the prefill step. decode: a decode step in the middle of the generate.
    generate_s: prefill and new_tokens - 1 decode steps.
    prefill_tokens_per_s: batch size * prompt tokens / prefill.
    decode_tokens_per_s: batch size / the mean decode step (`decode` where new_tokens is 1).
    generate_tokens_per_s: batch size * new tokens / generate.
    energy_j_per_token: all devices * TDP * generate / new tokens of all sequences; an upper bound.
    """

    prefill: StepArrays
    decode: StepArrays
    generate_s: FloatArray
    prefill_tokens_per_s: FloatArray
    decode_tokens_per_s: FloatArray
    generate_tokens_per_s: FloatArray
    energy_j_per_token: FloatArray
    memory: MemoryArrays


def grid_estimate(grid: Grid) -> GridEstimate:
    """The estimate of every configuration."""
    middle = np.minimum(grid.prompt_tokens + np.ceil(grid.new_tokens / 2), LARGEST_SIZE)
    prefill, decode = prefill_arrays(grid), decode_arrays(replace(grid, prompt_tokens=middle))
    seconds = generate_s(grid)
    batch, steps = grid.batch_size, grid.new_tokens - 1
    mean_step = np.where(
        steps > 0, (seconds - prefill.total_s) / np.maximum(steps, 1), decode.total_s
    )
    tokens = batch * grid.new_tokens
    return GridEstimate(
        prefill=prefill,
        decode=decode,
        generate_s=seconds,
        prefill_tokens_per_s=batch * grid.prompt_tokens / prefill.total_s,
        decode_tokens_per_s=batch / mean_step,
        generate_tokens_per_s=tokens / seconds,
        energy_j_per_token=energy_j(grid, seconds) / tokens,
        memory=memory_arrays(grid),
    )

"""Step times of a grid of configurations: the formulas of roofline.py over arrays.

A property test holds them equal to the scalar functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tgi_bench.estimate.grid import FloatArray, Grid, IntArray, SetupCosts, cost_columns

BOUNDS: tuple[Literal["compute", "memory", "interconnect", "host"], ...] = (
    "compute",
    "memory",
    "interconnect",
    "host",
)
"""What `StepArrays.bound` counts."""


@dataclass(frozen=True, slots=True)
class StepArrays:
    """Steps of n configurations, shape (n,), seconds; fields as those of roofline.StepTime.

    bound: index into BOUNDS. bound_share: the bound's own seconds / total_s, in (0, 1].
    """

    compute_s: FloatArray
    memory_s: FloatArray
    interconnect_s: FloatArray
    host_s: FloatArray
    total_s: FloatArray
    bound: IntArray
    bound_share: FloatArray


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Sequences, tokens through the layers, rows of logits, prompt tokens and positions: (n,)."""

    batch_size: FloatArray
    tokens: FloatArray
    rows: FloatArray
    prompt_tokens: FloatArray
    positions: FloatArray


@dataclass(frozen=True, slots=True)
class _Parts:
    """One step without attention: device seconds, each alone and as they overlap.

    launch_s: what overlaps with the device; 0 where launching waits, which serial_s then holds.
    """

    compute_s: FloatArray
    memory_s: FloatArray
    device_s: FloatArray
    interconnect_s: FloatArray
    launch_s: FloatArray
    serial_s: FloatArray
    all_launch_s: FloatArray


def _parts(of: SetupCosts[FloatArray], sizes: _Sizes) -> _Parts:
    batch = sizes.batch_size
    touched = of.experts * (1 - of.missed**sizes.tokens)
    weights = of.attention_weights + touched * of.expert_weights
    linear = of.linear_token * sizes.tokens
    head_read = of.head_weights + of.head_bytes * sizes.rows
    head_compute = of.head_flop * sizes.rows
    streamed = of.elementwise_token * sizes.tokens + of.logits_row * sizes.rows
    streamed += of.choice_row * batch
    link = of.collectives + of.token_link * sizes.tokens + of.row_link * sizes.rows
    serial = of.choice * batch + of.prompt_token * sizes.prompt_tokens
    serial += of.prompt_position * sizes.positions + of.skew
    return _Parts(
        compute_s=linear + head_compute,
        memory_s=weights + head_read + streamed,
        device_s=np.maximum(linear, weights)
        + np.maximum(head_compute, head_read)
        + streamed
        + link
        + of.kernels,
        interconnect_s=link,
        launch_s=of.launch * (1 - of.waits),
        serial_s=serial + of.launch * of.waits,
        all_launch_s=of.launch,
    )


def _steps(parts: _Parts, flop_s: FloatArray, bytes_s: FloatArray) -> StepArrays:
    compute = parts.compute_s + flop_s
    memory = parts.memory_s + bytes_s
    device = parts.device_s + np.maximum(flop_s, bytes_s)
    host = parts.launch_s + parts.serial_s
    total = np.maximum(device, parts.launch_s) + parts.serial_s
    each = np.stack((compute, memory, parts.interconnect_s, host))
    bound = np.where(device > parts.all_launch_s, each[:3].argmax(axis=0), 3)
    share = np.take_along_axis(each, bound[np.newaxis], axis=0)[0] / total
    return StepArrays(compute, memory, parts.interconnect_s, host, total, bound, share)


def prefill_arrays(grid: Grid) -> StepArrays:
    """One prefill step of every configuration."""
    of = cost_columns(grid)
    batch, prompt = grid.batch_size, grid.prompt_tokens
    tokens = batch * prompt
    rows = np.where(of.all_logits > 0, tokens, batch)
    pairs = tokens * prompt
    compute = of.pair * pairs + of.causal_token * tokens
    memory = of.kv_token * tokens + of.score * pairs
    return _steps(_parts(of, _Sizes(batch, tokens, rows, tokens, prompt)), compute, memory)


def _decode_parts(of: SetupCosts[FloatArray], batch_size: FloatArray) -> _Parts:
    none = np.zeros_like(batch_size)
    return _parts(of, _Sizes(batch_size, batch_size, batch_size, none, none))


def decode_arrays(grid: Grid) -> StepArrays:
    """One decode step of every configuration, `prompt_tokens` of context in each sequence."""
    of = cost_columns(grid)
    context = grid.batch_size * grid.prompt_tokens
    return _steps(
        _decode_parts(of, grid.batch_size), of.decode_flop * context, of.decode_bytes * context
    )


def generate_s(grid: Grid) -> FloatArray:
    """One prefill step and new_tokens - 1 decode steps of every configuration, seconds.

    A decode step takes max(device + a * context, launch) + serial with context from prompt + 1
    to prompt + new - 1: the steps below the crossing take launch, those above are an arithmetic
    series.
    """
    of = cost_columns(grid)
    parts = _decode_parts(of, grid.batch_size)
    batch, prompt, steps = grid.batch_size, grid.prompt_tokens, grid.new_tokens - 1
    slope = np.maximum(of.decode_flop, of.decode_bytes) * batch
    # Steps whose device time is not above the launch: context <= (launch - device) / slope.
    crossing = np.floor((parts.launch_s - parts.device_s) / slope)
    hidden = np.clip(crossing - prompt, 0, steps)
    shown = steps - hidden
    contexts = shown * prompt + (hidden + 1 + steps) * shown / 2
    decode = hidden * parts.launch_s + shown * parts.device_s + slope * contexts
    return prefill_arrays(grid).total_s + decode + steps * parts.serial_s

"""Memory and energy of a grid of configurations: the formulas of memory.py over arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tgi_bench.estimate.grid import FloatArray, Grid
from tgi_bench.estimate.memory import (
    CONCAT_COPIES,
    FFN_COPIES,
    GATHERED_COPIES,
    HIDDEN_COPIES,
    SCORE_BYTES_EXTRA,
    SCORE_COPIES,
    TRANSIENT_UTILISATION,
    device_kv_bytes_per_token,
    runtime_bytes,
)
from tgi_bench.estimate.setup import Setup


@dataclass(frozen=True, slots=True)
class MemoryArrays:
    """Bytes on each device at the step of a generate that needs most, shape (n,).

    fits: whether one device can allocate it.
    """

    weights_bytes: FloatArray
    kv_cache_bytes: FloatArray
    activations_bytes: FloatArray
    runtime_bytes: FloatArray
    total_bytes: FloatArray
    fits: NDArray[np.bool_]


def _row_bytes(setup: Setup) -> float:
    """Transient bytes of one row of logits: the rank's own part and the gathered copies."""
    whole = setup.model.vocab * setup.dtype_bytes
    return (
        float(whole) if setup.num_shard == 1 else whole / setup.num_shard + GATHERED_COPIES * whole
    )


def _score_bytes(setup: Setup) -> float:
    """Transient bytes of a pair of query and key, a layer's heads; 0 in the flash class."""
    if not setup.padded:
        return 0.0
    each = SCORE_COPIES * setup.dtype_bytes + SCORE_BYTES_EXTRA
    return each * setup.model.heads / setup.num_shard


def _ffn_bytes(setup: Setup) -> float:
    return FFN_COPIES * setup.model.ffn * setup.dtype_bytes / setup.num_shard


def memory_arrays(grid: Grid) -> MemoryArrays:
    """The step that needs most, prefill or the last decode step, of every configuration."""
    setups, batch, prompt = grid.setups, grid.batch_size, grid.prompt_tokens
    tokens = batch * prompt
    kv_token = grid.column([device_kv_bytes_per_token(setup) for setup in setups])
    hidden = grid.column([HIDDEN_COPIES * s.model.hidden * s.dtype_bytes for s in setups])
    ffn = grid.column([_ffn_bytes(setup) for setup in setups])
    score = grid.column([_score_bytes(setup) for setup in setups])
    row = grid.column([_row_bytes(setup) for setup in setups])
    copies = grid.column([CONCAT_COPIES if s.padded else 1 for s in setups])
    every_row = grid.column([s.padded or s.prompt_logprobs for s in setups]) > 0
    rows = np.where(every_row, tokens, batch)
    layer = hidden * tokens + np.maximum(ffn * tokens, score * tokens * prompt)
    prefill = np.maximum(layer, row * rows) / TRANSIENT_UTILISATION
    context = prompt + grid.new_tokens
    layer = hidden * batch + np.maximum(ffn * batch, score * batch * context)
    decode = np.maximum(layer, row * batch) / TRANSIENT_UTILISATION
    kv_prefill, kv_decode = tokens * kv_token, copies * batch * context * kv_token
    decodes = (grid.new_tokens > 1) & (kv_decode + decode > kv_prefill + prefill)
    kv_cache = np.where(decodes, kv_decode, kv_prefill)
    activations = np.where(decodes, decode, prefill)
    weights = grid.column([setup.weights_bytes for setup in setups])
    runtime = grid.column([runtime_bytes(setup) for setup in setups])
    total = weights + kv_cache + activations + runtime
    usable = grid.column([setup.accelerator.usable_bytes for setup in setups])
    return MemoryArrays(weights, kv_cache, activations, runtime, total, total <= usable)


def energy_j(grid: Grid, seconds: FloatArray) -> FloatArray:
    """devices * TDP * seconds: an upper bound, all devices at their thermal design power."""
    power_w = grid.column([s.devices * s.accelerator.tdp_w for s in grid.setups])
    return power_w * seconds

"""Many configurations at once: arrays of (setup, batch size, prompt, new tokens).

What depends on a setup alone is computed once for each distinct one, by the scalar functions,
and gathered into columns; what depends on sizes is computed over the arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tgi_bench.errors import InputError
from tgi_bench.estimate import overheads
from tgi_bench.estimate.setup import LARGEST_SIZE, Setup
from tgi_bench.estimate.step_time import (
    Step,
    after_head,
    decode_attention,
    elementwise,
    head,
    linears,
    prefill_attention,
)
from tgi_bench.estimate.tables import attention_matrix_parameters, mlp_matrix_parameters

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Figure = TypeVar("Figure", float, FloatArray)


@dataclass(frozen=True, slots=True)
class Grid:
    """Configurations: `setups[setup_index[i]]` at sizes i. All arrays of shape (n,).

    prompt_tokens: of each sequence; in decode the tokens that it attends to.
    new_tokens: of each sequence; the first of them comes from prefill.
    InputError for arrays of unequal length, a size outside 1..LARGEST_SIZE or no configuration.
    """

    setups: tuple[Setup, ...]
    setup_index: IntArray
    batch_size: FloatArray
    prompt_tokens: FloatArray
    new_tokens: FloatArray

    def __post_init__(self) -> None:
        shape = self.setup_index.shape
        if self.setup_index.ndim != 1 or not self.setup_index.size:
            raise InputError("a grid of configurations is empty or not one-dimensional")
        outside = (self.setup_index < 0) | (self.setup_index >= len(self.setups))
        if outside.any():
            raise InputError(f"setup_index must be from 0 to {len(self.setups) - 1}")
        for name, sizes in (
            ("batch_size", self.batch_size),
            ("prompt_tokens", self.prompt_tokens),
            ("new_tokens", self.new_tokens),
        ):
            if sizes.shape != shape:
                raise InputError(f"{name} has shape {sizes.shape}, setup_index {shape}")
            # Written so that NaN is refused too.
            if not bool(((sizes >= 1) & (sizes <= LARGEST_SIZE)).all()):
                raise InputError(f"{name} must be from 1 to {LARGEST_SIZE} everywhere")

    def column(self, of_setup: Sequence[float]) -> FloatArray:
        """One figure of each setup, laid out by configuration."""
        return np.asarray(of_setup, dtype=np.float64)[self.setup_index]


class SetupCosts(NamedTuple, Generic[Figure]):
    """What one setup's steps cost, for each unit that they grow with; seconds.

    Figure: float for one setup, an array of shape (n,) for the configurations of a grid.

    attention_weights, expert_weights: reading the linear weights of attention, and of one
        expert of every layer. missed: share of experts that one token does not touch.
    linear_token: computing one token's linear layers; elementwise_token its memory traffic.
    pair, causal_token: attention's computing for a pair of query and key, and for a token
        besides (the causal half counts its diagonal).
    kv_token, score: memory traffic of prefill attention for a token, and for a pair.
    decode_flop, decode_bytes: attention of one decode step for a token of context.
    head_weights, head_bytes, head_flop: the logits' matrix, and one row of logits.
    logits_row, choice_row: copies and log-softmax of a row of logits; of a sequence's last row.
    collectives, token_link, row_link: collectives' launches and hops, then a token's and a
        row's bytes.
    launch, kernels, choice, prompt_token, prompt_position, skew: the host's.
    all_logits: 1 where prefill computes the logits of every prompt token, else 0.
    waits: 1 where launching waits for the device in every linear layer, else 0.
    """

    attention_weights: Figure
    expert_weights: Figure
    experts: Figure
    missed: Figure
    linear_token: Figure
    elementwise_token: Figure
    pair: Figure
    causal_token: Figure
    kv_token: Figure
    score: Figure
    decode_flop: Figure
    decode_bytes: Figure
    head_weights: Figure
    head_bytes: Figure
    head_flop: Figure
    logits_row: Figure
    choice_row: Figure
    collectives: Figure
    token_link: Figure
    row_link: Figure
    launch: Figure
    kernels: Figure
    choice: Figure
    prompt_token: Figure
    prompt_position: Figure
    skew: Figure
    all_logits: Figure
    waits: Figure


@lru_cache(maxsize=4096)
def setup_costs(setup: Setup) -> SetupCosts[float]:
    """The costs of one setup, read off the scalar functions at sizes of 0, 1 and 2."""
    model, device = setup.model, setup.accelerator
    read_s = setup.linear_weight_bytes / setup.num_shard
    read_s /= device.bytes_per_s * setup.constants.bandwidth_efficiency
    one, two = prefill_attention(setup, 1, 1), prefill_attention(setup, 1, 2)
    context = decode_attention(setup, 1, 1)
    no_row, row = head(setup, Step(1, 1, 0, 0)), head(setup, Step(1, 1, 1, 0))
    link = overheads.collectives_s(setup, 0, 0)
    # Growth a S + b S^2 through 0, known at S = 1 and 2; the rest of a subtraction may be -1e-20.
    pair = max(0.0, (two.compute_s - 2 * one.compute_s) / 2)
    score = max(0.0, (two.memory_s - 2 * one.memory_s) / 2) if setup.padded else 0.0
    return SetupCosts(
        attention_weights=model.layers * attention_matrix_parameters(model) * read_s,
        expert_weights=model.layers * mlp_matrix_parameters(model) * read_s,
        experts=float(model.experts),
        missed=1 - model.experts_per_token / model.experts,
        linear_token=linears(setup, 1).compute_s,
        elementwise_token=elementwise(setup, 1).memory_s,
        pair=pair,
        causal_token=one.compute_s - pair,
        kv_token=one.memory_s - score,
        score=score,
        decode_flop=context.compute_s,
        decode_bytes=context.memory_s,
        head_weights=no_row.memory_s,
        head_bytes=row.memory_s - no_row.memory_s,
        head_flop=row.compute_s,
        logits_row=after_head(setup, Step(0, 0, 1, 0)).memory_s,
        choice_row=after_head(setup, Step(1, 0, 0, 0)).memory_s,
        collectives=link,
        token_link=overheads.collectives_s(setup, 1, 0) - link,
        row_link=overheads.collectives_s(setup, 0, 1) - link,
        launch=overheads.launch_s(setup),
        kernels=overheads.kernels_s(setup),
        choice=overheads.token_choice_s(setup, 1),
        prompt_token=overheads.prompt_text_s(setup, 1),
        prompt_position=overheads.prompt_positions_s(setup, 1),
        skew=overheads.rank_skew_s(setup),
        all_logits=float(setup.padded or setup.prompt_logprobs),
        waits=float(overheads.waits_for_device(setup)),
    )


def cost_columns(grid: Grid) -> SetupCosts[FloatArray]:
    """The costs of every configuration's setup."""
    rows = np.array([setup_costs(setup) for setup in grid.setups], dtype=np.float64)
    return SetupCosts(*rows[grid.setup_index].T)


def grid_of(setups: Sequence[Setup], sizes: Sequence[tuple[int, int, int]]) -> Grid:
    """One configuration a setup, with its (batch size, prompt tokens, new tokens)."""
    distinct = {setup: index for index, setup in enumerate(dict.fromkeys(setups))}
    columns = np.asarray(sizes, dtype=np.float64).reshape(len(setups), 3).T
    index = np.array([distinct[setup] for setup in setups], dtype=np.int64)
    return Grid(tuple(distinct), index, columns[0], columns[1], columns[2])

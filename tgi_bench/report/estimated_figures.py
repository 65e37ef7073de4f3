"""What the estimate says of one configuration: every figure that is shown beside a measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tgi_bench.estimate.memory import fits, prefill_memory
from tgi_bench.estimate.overheads import waits_for_device
from tgi_bench.estimate.setup import Setup, check_sizes
from tgi_bench.estimate.step_time import (
    decode_limit_s,
    decode_time,
    middle_context,
    prefill_limit_s,
    prefill_time,
)

if TYPE_CHECKING:
    from tgi_bench.estimate.grid_estimate import GridEstimate
    from tgi_bench.estimate.step_arrays import StepArrays

MANY = 400
"""Configurations from which importing numpy and computing all at once is sooner done."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What each sequence of a batch asks. new_tokens: of which prefill emits the first."""

    batch_size: int
    prompt_tokens: int
    new_tokens: int

    def __post_init__(self) -> None:
        check_sizes(
            batch_size=self.batch_size,
            prompt_tokens=self.prompt_tokens,
            new_tokens=self.new_tokens,
        )

    @property
    def middle_context(self) -> int:
        """Tokens that a decode step in the middle of the generate attends to."""
        return middle_context(self.prompt_tokens, self.new_tokens)

    @property
    def tokens(self) -> int:
        """New tokens of all sequences."""
        return self.batch_size * self.new_tokens


@dataclass(frozen=True, slots=True)
class StepEstimate:
    """One step. bound_share: the bound's own seconds / seconds, in (0, 1].

    limit_s: what the data sheet's rates allow at best; roofline_share = limit_s / seconds.
    """

    seconds: float
    bound: str
    bound_share: float
    limit_s: float

    @property
    def roofline_share(self) -> float:
        """The share of the roofline that the estimate expects."""
        return self.limit_s / self.seconds


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes on each device at the step that needs most. fits: whether one device can hold it."""

    weights_bytes: float
    kv_cache_bytes: float
    activations_bytes: float
    runtime_bytes: float
    total_bytes: float
    fits: bool


@dataclass(frozen=True, slots=True)
class Estimate:
    """One configuration. prefill: the prefill step; decode: a decode step in the middle.

    generate_s: prefill and new_tokens - 1 decode steps.
    """

    setup: Setup
    sizes: Sizes
    prefill: StepEstimate
    decode: StepEstimate
    generate_s: float
    memory: MemoryEstimate

    @property
    def prompt_tokens_per_s(self) -> float:
        """batch size * prompt tokens / prefill."""
        return self.sizes.batch_size * self.sizes.prompt_tokens / self.prefill.seconds

    @property
    def decode_tokens_per_s(self) -> float:
        """batch size / the decode step in the middle."""
        return self.sizes.batch_size / self.decode.seconds

    @property
    def new_tokens_per_s(self) -> float:
        """batch size * new tokens / generate."""
        return self.sizes.tokens / self.generate_s

    @property
    def energy_j_per_token(self) -> float:
        """All devices * TDP * generate / new tokens of all sequences: an upper bound."""
        return power_w(self.setup) * self.generate_s / self.sizes.tokens


def power_w(setup: Setup) -> float:
    """All devices at their thermal design power, W."""
    return setup.devices * setup.accelerator.tdp_w


def generate_s(setup: Setup, sizes: Sizes) -> float:
    """As roofline.generate_time_s, without its loop over steps.

    Steps that the host bounds all take the same; from the first one that it does not, each takes
    the same more than the one before.
    """
    batch, prompt, steps = sizes.batch_size, sizes.prompt_tokens, sizes.new_tokens - 1
    total = prefill_time(setup, batch, prompt).total_s
    if steps == 0:
        return total
    # Steps 1..low are the host's; where it waits for the device, each takes the sum of both.
    low, high = 0, 0 if waits_for_device(setup) else steps
    while low < high:
        middle = (low + high + 1) // 2
        if decode_time(setup, batch, prompt + middle).bound == "host":
            low = middle
        else:
            high = middle - 1
    if low:
        total += low * decode_time(setup, batch, prompt + low).total_s
    if low < steps:
        first = decode_time(setup, batch, prompt + low + 1).total_s
        last = decode_time(setup, batch, prompt + steps).total_s
        total += (steps - low) * (first + last) / 2
    return total


def estimate(setup: Setup, sizes: Sizes) -> Estimate:
    """The estimate of one configuration; InputError for sizes that no server takes."""
    batch, prompt, new = sizes.batch_size, sizes.prompt_tokens, sizes.new_tokens
    context = sizes.middle_context
    prefill, decode = prefill_time(setup, batch, prompt), decode_time(setup, batch, context)
    need = prefill_memory(setup, batch, prompt, new)
    return Estimate(
        setup=setup,
        sizes=sizes,
        prefill=StepEstimate(
            prefill.total_s,
            prefill.bound,
            prefill.bound_share,
            prefill_limit_s(setup, batch, prompt),
        ),
        decode=StepEstimate(
            decode.total_s, decode.bound, decode.bound_share, decode_limit_s(setup, batch, context)
        ),
        generate_s=generate_s(setup, sizes),
        memory=MemoryEstimate(
            weights_bytes=need.weights_bytes,
            kv_cache_bytes=need.kv_cache_bytes,
            activations_bytes=need.activations_bytes,
            runtime_bytes=need.runtime_bytes,
            total_bytes=need.total_bytes,
            fits=fits(setup, need),
        ),
    )


def estimates(configurations: Sequence[tuple[Setup, Sizes]]) -> tuple[Estimate, ...]:
    """The estimate of each; from MANY on over arrays, which needs numpy."""
    if len(configurations) < MANY:
        return tuple(estimate(setup, sizes) for setup, sizes in configurations)
    from tgi_bench.estimate.grid import grid_of
    from tgi_bench.estimate.grid_estimate import grid_estimate

    found = grid_estimate(
        grid_of(
            [setup for setup, _ in configurations],
            [(s.batch_size, s.prompt_tokens, s.new_tokens) for _, s in configurations],
        )
    )
    return tuple(
        _of_row(found, row, setup, sizes) for row, (setup, sizes) in enumerate(configurations)
    )


def _of_row(found: GridEstimate, row: int, setup: Setup, sizes: Sizes) -> Estimate:
    from tgi_bench.estimate.step_arrays import BOUNDS

    batch = sizes.batch_size

    def step(steps: StepArrays, limit_s: float) -> StepEstimate:
        return StepEstimate(
            float(steps.total_s[row]),
            BOUNDS[int(steps.bound[row])],
            float(steps.bound_share[row]),
            limit_s,
        )

    memory = found.memory
    return Estimate(
        setup=setup,
        sizes=sizes,
        prefill=step(found.prefill, prefill_limit_s(setup, batch, sizes.prompt_tokens)),
        decode=step(found.decode, decode_limit_s(setup, batch, sizes.middle_context)),
        generate_s=float(found.generate_s[row]),
        memory=MemoryEstimate(
            weights_bytes=float(memory.weights_bytes[row]),
            kv_cache_bytes=float(memory.kv_cache_bytes[row]),
            activations_bytes=float(memory.activations_bytes[row]),
            runtime_bytes=float(memory.runtime_bytes[row]),
            total_bytes=float(memory.total_bytes[row]),
            fits=bool(memory.fits[row]),
        ),
    )

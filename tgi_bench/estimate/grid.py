"""What is estimated of configurations: one by one, or many of one setup as arrays of sizes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from tgi_bench.estimate.arithmetic import column
from tgi_bench.estimate.memory import MemoryNeed, fits, prefill_memory
from tgi_bench.estimate.setup import Setup, check_sizes
from tgi_bench.estimate.step_time import (
    StepTime,
    decode_limit_s,
    decode_time,
    generate_s,
    middle_context,
    prefill_limit_s,
    prefill_time,
)

if TYPE_CHECKING:
    from tgi_bench.estimate.arithmetic import FloatArray

MANY = 400
"""Configurations from which importing numpy and computing on arrays is sooner done."""

FEW = 6
"""Sizes of one setup below which numbers are sooner done, though numpy is there."""

Key = TypeVar("Key", bound=Hashable)

Phase = Literal["prefill", "decode", "generate", "forward"]
"""What one figure is of: a prefill step, a decode step, a whole generate, a forward pass."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What each sequence of a batch asks.

    prompt_tokens: in a single decode step the tokens that it attends to. new_tokens: of which
    prefill emits the first. mlp_degree: devices that share each MLP of a forward pass.
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

    @property
    def middle_context(self) -> int:
        """Tokens that a decode step in the middle of the generate attends to."""
        return int(middle_context(self.prompt_tokens, self.new_tokens))

    @property
    def tokens(self) -> int:
        """New tokens of all sequences."""
        return self.batch_size * self.new_tokens


@dataclass(frozen=True, slots=True)
class StepEstimate:
    """One step. limit_s: what the data sheet's rates allow at best."""

    time: StepTime[float]
    limit_s: float

    @property
    def roofline_share(self) -> float:
        """The share of the roofline that the estimate expects: limit / step."""
        return self.limit_s / self.time.total_s


@dataclass(frozen=True, slots=True)
class Estimate:
    """One configuration. prefill: the prefill step; decode: a decode step in the middle.

    generate_s: prefill and new_tokens - 1 decode steps. memory: at the step that needs most.
    """

    setup: Setup
    sizes: Sizes
    prefill: StepEstimate
    decode: StepEstimate
    generate_s: float
    memory: MemoryNeed[float]

    @property
    def fits(self) -> bool:
        """Whether one device can hold it."""
        return fits(self.setup, self.memory)

    @property
    def prompt_tokens_per_s(self) -> float:
        """batch size * prompt tokens / prefill."""
        return self.sizes.batch_size * self.sizes.prompt_tokens / self.prefill.time.total_s

    @property
    def decode_tokens_per_s(self) -> float:
        """batch size / the decode step in the middle."""
        return self.sizes.batch_size / self.decode.time.total_s

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


def estimate(setup: Setup, sizes: Sizes) -> Estimate:
    """The estimate of one configuration; InputError for sizes that no server takes."""
    batch, prompt, new = sizes.batch_size, sizes.prompt_tokens, sizes.new_tokens
    context = sizes.middle_context
    memory = prefill_memory(setup, batch, prompt, new)
    return Estimate(
        setup=setup,
        sizes=sizes,
        prefill=StepEstimate(
            prefill_time(setup, batch, prompt), prefill_limit_s(setup, batch, prompt)
        ),
        decode=StepEstimate(
            decode_time(setup, batch, context), decode_limit_s(setup, batch, context)
        ),
        generate_s=generate_s(setup, batch, prompt, new),
        memory=memory,
    )


def estimates(configurations: Sequence[tuple[Setup, Sizes]]) -> tuple[Estimate, ...]:
    """The estimate of each; from MANY on over arrays, which needs numpy."""
    if len(configurations) < MANY:
        return tuple(estimate(setup, sizes) for setup, sizes in configurations)
    found: dict[int, Estimate] = {}
    for setup, rows in rows_of(setup for setup, _ in configurations).items():
        asked = [configurations[row][1] for row in rows]
        together = len(rows) >= FEW
        answers = _at_once(setup, asked) if together else (estimate(setup, one) for one in asked)
        found.update(zip(rows, answers, strict=True))
    return tuple(found[row] for row in range(len(configurations)))


def rows_of(keys: Iterable[Key]) -> dict[Key, list[int]]:
    """The places of each key, in the order of their firsts."""
    rows: dict[Key, list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    return rows


def size_columns(sizes: Sequence[Sizes]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Batch sizes, prompt tokens, new tokens; each of shape (n,)."""
    return (
        column([one.batch_size for one in sizes]),
        column([one.prompt_tokens for one in sizes]),
        column([one.new_tokens for one in sizes]),
    )


def _at_once(setup: Setup, asked: Sequence[Sizes]) -> Iterator[Estimate]:
    """As `estimate` of each."""
    batch, prompt, new = size_columns(asked)
    context = middle_context(prompt, new)
    needs = _needs(prefill_memory(setup, batch, prompt, new))
    prefills = _steps(prefill_time(setup, batch, prompt), prefill_limit_s(setup, batch, prompt))
    decodes = _steps(decode_time(setup, batch, context), decode_limit_s(setup, batch, context))
    whole: list[float] = generate_s(setup, batch, prompt, new).tolist()
    for figures in zip(asked, prefills, decodes, whole, needs, strict=True):
        yield Estimate(setup, *figures)


def _steps(times: StepTime[FloatArray], limits_s: FloatArray) -> Iterator[StepEstimate]:
    for compute_s, memory_s, interconnect_s, device_s, choice_s, limit_s in zip(
        times.compute_s.tolist(),
        times.memory_s.tolist(),
        times.interconnect_s.tolist(),
        times.device_s.tolist(),
        times.choice_s.tolist(),
        limits_s.tolist(),
        strict=True,
    ):
        time = StepTime(
            compute_s=compute_s,
            memory_s=memory_s,
            interconnect_s=interconnect_s,
            device_s=device_s,
            launch_s=times.launch_s,
            waits=times.waits,
            choice_s=choice_s,
        )
        yield StepEstimate(time, limit_s)


def _needs(needs: MemoryNeed[FloatArray]) -> Iterator[MemoryNeed[float]]:
    for kv_cache, activations, block in zip(
        needs.kv_cache_bytes.tolist(),
        needs.activations_bytes.tolist(),
        needs.largest_block_bytes.tolist(),
        strict=True,
    ):
        yield MemoryNeed(needs.weights_bytes, kv_cache, activations, needs.runtime_bytes, block)

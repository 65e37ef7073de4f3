"""Time of the collectives between the devices of one tensor-parallel deployment.

Launch and share of the link's rate are `setup.constants`'; a hop is an order of magnitude.
"""

from __future__ import annotations

from tgi_bench.estimate.setup import Setup

NVLINK_HOP_S = 1.5e-6
PCIE_HOP_S = 5e-6
"""One message from a device to its neighbour in the ring, seconds."""


def uses_nvlink(setup: Setup) -> bool:
    """Whether all devices lie in one NVLink domain; else the ring crosses PCIe."""
    return 1 < setup.num_shard <= setup.accelerator.nvlink_devices


def _link_bytes_per_s(setup: Setup) -> float:
    device = setup.accelerator
    rate = device.nvlink_bytes_per_s if uses_nvlink(setup) else device.pcie_bytes_per_s
    return rate * setup.constants.link_efficiency


def _hop_s(setup: Setup) -> float:
    return NVLINK_HOP_S if uses_nvlink(setup) else PCIE_HOP_S


def all_reduce_s(setup: Setup, message_bytes: float) -> float:
    """Ring all-reduce: launch + 2(N-1) hops + 2(N-1)/N * bytes / link rate; 0 for N = 1."""
    n = setup.num_shard
    if n == 1:
        return 0.0
    transfer = 2 * (n - 1) / n * message_bytes / _link_bytes_per_s(setup)
    return setup.constants.collective_launch_s + 2 * (n - 1) * _hop_s(setup) + transfer


def all_gather_s(setup: Setup, gathered_bytes: float) -> float:
    """Ring all-gather: launch + (N-1) hops + (N-1)/N * gathered bytes / link rate; 0 for N = 1."""
    n = setup.num_shard
    if n == 1:
        return 0.0
    transfer = (n - 1) / n * gathered_bytes / _link_bytes_per_s(setup)
    return setup.constants.collective_launch_s + (n - 1) * _hop_s(setup) + transfer


def reduces_per_step(setup: Setup) -> int:
    """All-reduces of one step: 2 a layer (1 with a parallel residual) and 1 of the embedding."""
    per_layer = 1 if setup.model.parallel_residual else 2
    return setup.model.layers * per_layer + 1


def step_s(setup: Setup, tokens: int, logits_tokens: int) -> float:
    """Collectives of one step: hidden states of `tokens`, then logits of `logits_tokens`."""
    hidden_bytes = tokens * setup.model.hidden * setup.dtype_bytes
    logits_bytes = logits_tokens * setup.model.vocab * setup.dtype_bytes
    reduces = reduces_per_step(setup) * all_reduce_s(setup, hidden_bytes)
    return reduces + all_gather_s(setup, logits_bytes)

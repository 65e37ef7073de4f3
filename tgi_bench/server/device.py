"""The simulated accelerator under the engine: how long a step takes, whether it fits.

Times and bytes are the estimate's, none is measured. All ranks of a deployment have the
same share of the work, so one figure stands for each of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tgi_bench.estimate.memory import (
    MemoryNeed,
    beside_pool_bytes,
    decode_memory,
    device_kv_bytes_per_token,
    kv_capacity_tokens,
    prefill_step_memory,
    runtime_bytes,
)
from tgi_bench.estimate.setup import Setup
from tgi_bench.estimate.step_time import decode_time, prefill_time
from tgi_bench.estimate.tables import accelerator, model_shape
from tgi_bench.server.behaviour import Behaviour
from tgi_bench.server.config import EngineConfig
from tgi_bench.torch_engine.memory import size_text


def setup_of(config: EngineConfig) -> Setup:
    """The estimate's names for an engine's configuration; InputError for an unknown one."""
    model = model_shape(config.model_id)
    split = model.padded and config.num_shard == 1
    return Setup(
        model=model,
        accelerator=accelerator(config.accelerator),
        num_shard=config.num_shard,
        quantize=config.quantize,
        dtype=config.dtype or "float16",
        constants=config.constants,
        split_devices=config.visible_devices if split else 1,
    )


@dataclass(frozen=True, slots=True)
class SimulatedDevice:
    """One rank's accelerator. limit_bytes: what the server may take of its memory."""

    setup: Setup
    behaviour: Behaviour
    limit_bytes: float

    @classmethod
    def of(cls, config: EngineConfig, behaviour: Behaviour) -> SimulatedDevice:
        """The device with the weights loaded; RuntimeError where they do not fit."""
        setup = setup_of(config)
        device = cls(setup, behaviour, setup.accelerator.usable_bytes * config.memory_fraction)
        # The last layer's weights are the allocation that fails.
        layer = setup.weights_bytes / setup.model.layers
        device.allocate(setup.weights_bytes + runtime_bytes(setup), layer)
        return device

    def answering_prompts(self, asked: bool) -> SimulatedDevice:
        """The device for a prefill that answers with every prompt token's log probability.

        `asked` by a request; before 0.9.0 every prefill does.
        """
        always = self.behaviour.always_sends_prefill_tokens
        return replace(self, setup=replace(self.setup, prompt_logprobs=asked or always))

    def prefill_s(self, lengths: tuple[int, ...]) -> float:
        """Seconds of a prefill step.

        Padded class: every prompt as long as the longest. Flash class: as many prompts of
        the mean length, rounded up.
        """
        return prefill_time(self.setup, len(lengths), self._width(lengths)).total_s

    def decode_s(self, contexts: tuple[int, ...]) -> float:
        """Seconds of a decode step over sequences that hold so many tokens each."""
        return decode_time(self.setup, len(contexts), self._width(contexts)).total_s

    def kv_bytes(self, contexts: tuple[int, ...]) -> float:
        """KV cache of sequences between steps, bytes; 0 of none."""
        if not contexts:
            return 0.0
        return len(contexts) * self._width(contexts) * device_kv_bytes_per_token(self.setup)

    def allocate_prefill(self, lengths: tuple[int, ...], held_bytes: float) -> None:
        """RuntimeError where a prefill step beside `held_bytes` of KV cache does not fit."""
        need = prefill_step_memory(self.setup, len(lengths), self._width(lengths))
        self._allocate_step(need, held_bytes)

    def allocate_decode(self, contexts: tuple[int, ...], held_bytes: float) -> None:
        """RuntimeError where a decode step beside `held_bytes` of other batches does not fit."""
        need = decode_memory(self.setup, len(contexts), self._width(contexts))
        self._allocate_step(need, held_bytes)

    def pool_tokens(self, prefill_tokens: int) -> int:
        """Tokens of the KV pool that a flash class's warm-up leaves room for."""
        fraction = self.limit_bytes / self.setup.accelerator.usable_bytes
        return kv_capacity_tokens(self.setup, fraction, prefill_tokens) or 0

    def allocate_beside_pool(self, lengths: tuple[int, ...], pool_tokens: int) -> None:
        """RuntimeError where a flash prefill's tensors do not fit beside its whole KV pool."""
        need = prefill_step_memory(self.setup, len(lengths), self._width(lengths))
        total_bytes = beside_pool_bytes(self.setup, need, pool_tokens)
        self.allocate(total_bytes, need.largest_block_bytes)

    def allocate(self, total_bytes: float, block_bytes: float) -> None:
        """RuntimeError in torch's words where `total_bytes` is more than there is.

        block_bytes: the allocation that fails.
        """
        if total_bytes <= self.limit_bytes:
            return
        allocated = min(max(total_bytes - block_bytes, 0.0), self.limit_bytes)
        raise RuntimeError(self._out_of_memory(block_bytes, allocated))

    def _allocate_step(self, need: MemoryNeed[float], held_bytes: float) -> None:
        self.allocate(need.total_bytes + held_bytes, need.largest_block_bytes)

    def _width(self, lengths: tuple[int, ...]) -> int:
        if self.setup.model.padded:
            return max(lengths)
        return -(-sum(lengths) // len(lengths))

    def _out_of_memory(self, block_bytes: float, allocated_bytes: float) -> str:
        total = self.setup.accelerator.usable_bytes
        free, taken = size_text(self.limit_bytes - allocated_bytes), size_text(allocated_bytes)
        block, capacity = size_text(block_bytes), size_text(total)
        if self.behaviour.names_process_in_out_of_memory:
            return (
                f"CUDA out of memory. Tried to allocate {block}. GPU 0 has a total "
                f"capacity of {capacity} of which {free} is free. Of the allocated memory "
                f"{taken} is allocated by PyTorch, and 0 bytes is reserved by PyTorch but "
                "unallocated. (simulated)"
            )
        return (
            f"CUDA out of memory. Tried to allocate {block} (GPU 0; {capacity} "
            f"total capacity; {taken} already allocated; {free} free; {taken} reserved in total "
            "by PyTorch) (simulated)"
        )

"""A model on its device: its steps and what is known of it."""

from __future__ import annotations

import inspect
import platform
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicLayer

from tgi_bench.errors import InputError
from tgi_bench.torch_engine.allocation import guarded
from tgi_bench.torch_engine.extra import version_of
from tgi_bench.torch_engine.padded_batch import PaddedBatch, left_padded
from tgi_bench.torch_engine.process_memory import available_bytes, data_bytes, data_limit_bytes
from tgi_bench.torch_engine.process_memory import peak_bytes as process_peak_bytes
from tgi_bench.torch_engine.spec import ModelSpec, WeightType
from tgi_bench.torch_engine.text_tokenizer import TextTokenizer

_PACKAGES = ("torch", "transformers", "accelerate", "bitsandbytes", "tokenizers")


@dataclass(frozen=True, slots=True)
class Placed:
    """A network whose weights are on their device, and how they are kept there."""

    network: PreTrainedModel
    device: torch.device
    weight_type: WeightType


class LoadedModel:
    """One causal model. Not for several threads.

    A step leaves nothing behind where it fails. Token choice is not its matter.
    """

    def __init__(self, spec: ModelSpec, placed: Placed, tokenizer: TextTokenizer) -> None:
        """Runs one token, so that what a first call prepares is done."""
        self.spec = spec
        self.tokenizer = tokenizer
        self.weight_type = placed.weight_type
        self.network = placed.network
        self.device = placed.device
        accepted = inspect.signature(placed.network.forward).parameters
        if "past_key_values" not in accepted:
            raise self._no_cache()
        self._takes_positions = "position_ids" in accepted
        self._keeps_logits = "logits_to_keep" in accepted
        self.kv_bytes_per_token = guarded(self._first_token)

    @property
    def device_name(self) -> str:
        """ "cpu", or CUDA's name of the device."""
        if self.device.type != "cuda":
            return "cpu"
        return str(torch.cuda.get_device_name(self.device))

    @property
    def architecture(self) -> str:
        """The class of transformers: "BloomForCausalLM"."""
        return type(self.network).__name__

    @property
    def attention(self) -> str:
        """How transformers computes attention: "sdpa", "eager"."""
        return str(self.network.config._attn_implementation)

    @property
    def parameters(self) -> int:
        """Parameters of the whole model, counted once where two places share a matrix; packed
        ones of quantized weights as their configuration counts them."""
        return int(self.network.num_parameters())

    @property
    def weights_bytes(self) -> int:
        """Bytes of the weights and buffers in this process: a rank's share of a divided model."""
        tensors = (*self.network.parameters(), *self.network.buffers())
        own = (t.to_local() if isinstance(t, DTensor) else t for t in tensors)
        return sum(int(t.nbytes) for t in own)

    @property
    def vocab(self) -> int:
        """Rows of the embedding."""
        return int(self.network.config.get_text_config().vocab_size)

    @property
    def max_positions(self) -> int | None:
        """Tokens that a sequence may have; None where the model has no such limit."""
        # transformers' own names differ; attribute_map makes this one of most of them.
        found = getattr(self.network.config.get_text_config(), "max_position_embeddings", None)
        return None if found is None else int(found)

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end an answer: the tokenizer's and those of the model's own settings.

        Empty where random weights have no tokenizer: an id says nothing then.
        """
        if not self.tokenizer.end_ids:
            return frozenset()
        named = self.network.generation_config.eos_token_id
        more = named if isinstance(named, list) else [] if named is None else [named]
        return self.tokenizer.end_ids | frozenset(more)

    @property
    def versions(self) -> tuple[tuple[str, str], ...]:
        """Name and version of the libraries that compute."""
        found = [(name, version_of(name)) for name in _PACKAGES]
        found.append(("python", platform.python_version()))
        if self.device.type == "cuda":
            found.append(("cuda", str(torch.version.cuda)))
        return tuple((name, version) for name, version in found if version)

    def check(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> None:
        """Raise ValueError for prompts that the model cannot take with so many new tokens."""
        limit = self.max_positions
        for prompt in prompts:
            if not prompt:
                raise ValueError("a prompt has no token")
            if not 0 <= min(prompt) <= max(prompt) < self.vocab:
                raise ValueError(f"a prompt has a token id outside 0 .. {self.vocab - 1}")
            # The last new token is never read.
            if limit is not None and len(prompt) + new_tokens - 1 > limit:
                raise ValueError(
                    f"{len(prompt)} prompt tokens and {new_tokens} new ones are more than the "
                    f"{limit} positions of the model"
                )

    def padded(self, prompts: Sequence[Sequence[int]]) -> PaddedBatch:
        """A batch before its prefill step, on the device; raises OutOfMemory."""
        return guarded(lambda: left_padded(prompts, self.device))

    def prefill(self, batch: PaddedBatch, all_logits: bool = False) -> torch.Tensor:
        """The prefill step: logits [batch, vocab] of each prompt's last token.

        all_logits: [batch, tokens, vocab] of every prompt token instead, padding included.
        Raises OutOfMemory; the batch is of no use then.
        """

        def step() -> torch.Tensor:
            keep = {} if all_logits or not self._keeps_logits else {"logits_to_keep": 1}
            logits = self._forward(batch, keep)
            batch.positions = batch.positions[:, -1:] + 1
            return logits if all_logits else logits[:, -1]

        return guarded(step)

    def decode(self, batch: PaddedBatch) -> torch.Tensor:
        """One decode step of `batch.ids`: logits [batch, vocab]; the cache grows by a token.

        Raises OutOfMemory; the batch is of no use then.
        """

        def step() -> torch.Tensor:
            batch.mask = torch.cat((batch.mask, batch.mask.new_ones((len(batch.lengths), 1))), 1)
            logits = self._forward(batch, {})
            batch.positions = batch.positions + 1
            batch.lengths = [length + 1 for length in batch.lengths]
            return logits[:, -1]

        return guarded(step)

    def synchronise(self) -> None:
        """Returns when the device has done all that it was told."""
        if self.device.type == "cuda":
            for index in range(torch.cuda.device_count() if self.spec.layer_split else 1):
                torch.cuda.synchronize(index if self.spec.layer_split else self.device)

    def free_bytes(self) -> int | None:
        """Memory that this process can still take of the device; None where that is not known."""
        if self.device.type == "cuda":
            free, total = torch.cuda.mem_get_info(self.device)
            # What torch has reserved and not given out is free too.
            held = torch.cuda.memory_reserved(self.device)
            unused = held - torch.cuda.memory_allocated(self.device)
            allowed = total * self.spec.memory_fraction - held
            return int(max(0, min(free, allowed) + unused))
        available, taken, limit = available_bytes(), data_bytes(), data_limit_bytes()
        if available is None or taken is None or limit is None:
            return available
        return max(0, min(available, limit - taken))

    def peak_bytes(self) -> int | None:
        """CUDA: the most memory that torch had allocated since `reset_peak`, of all devices that
        layers lie on. CPU: the most that was resident in the process since it began, libraries
        included; None where the system does not say."""
        if self.device.type != "cuda":
            return process_peak_bytes()
        return sum(int(torch.cuda.max_memory_allocated(index)) for index in self._devices())

    def reset_peak(self) -> None:
        """Begin a new peak; on the CPU it stays that of the process."""
        if self.device.type == "cuda":
            for index in self._devices():
                torch.cuda.reset_peak_memory_stats(index)

    def _devices(self) -> list[int]:
        if self.spec.layer_split:
            return list(range(torch.cuda.device_count()))
        return [int(self.device.index)]

    def _forward(self, batch: PaddedBatch, more: dict[str, int]) -> torch.Tensor:
        positions = {"position_ids": batch.positions} if self._takes_positions else {}
        with torch.inference_mode():
            answer = self.network(
                input_ids=batch.ids,
                attention_mask=batch.mask,
                past_key_values=batch.cache,
                use_cache=True,
                return_dict=True,
                **positions,
                **more,
            )
        return answer.logits

    def _first_token(self) -> int:
        """Bytes of one token in the KV cache; raises InputError for another kind of cache."""
        batch = left_padded([[0]], self.device)
        self._forward(batch, {})
        layers = batch.cache.layers
        if not layers or not all(type(layer) is DynamicLayer for layer in layers):
            raise self._no_cache()
        return sum(int(layer.keys.nbytes + layer.values.nbytes) for layer in layers)

    def _no_cache(self) -> InputError:
        return InputError(
            f"{self.architecture} keeps a state that is no KV cache of tokens: the engine cannot "
            "join and filter it"
        )

"""A model on its device: its steps, and the padded batches that they are of."""

from __future__ import annotations

import inspect
import platform
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch.distributed.tensor import DTensor
from torch.nn.functional import pad
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from tgi_bench.errors import InputError
from tgi_bench.torch_engine.memory import (
    OutOfMemory,
    available_bytes,
    data_bytes,
    data_limit_bytes,
    size_text,
)
from tgi_bench.torch_engine.memory import peak_bytes as process_peak_bytes
from tgi_bench.torch_engine.spec import ModelSpec, WeightType, version_of
from tgi_bench.torch_engine.tokenizers import TextTokenizer


@dataclass(slots=True)
class PaddedBatch:
    """Rows that are decoded together, between two steps: one KV cache, padded at the left.

    As TGI's padded CausalLM class keeps them. The cache is transformers' DynamicCache, the one that
    `model.generate` makes; each layer's keys and values have the shape
    [batch, KV heads, tokens, head size], and every step concatenates one token. Sliding windows
    are kept whole and masked: rows of several lengths could not be joined otherwise.

    cache: of `width` tokens a row. mask: [batch, width], 1 where the cache holds a token and 0
        where it holds padding. positions, ids: [batch, 1], of the tokens that go in next.
    lengths: tokens of each row in the cache.
    """

    cache: DynamicCache
    mask: torch.Tensor
    positions: torch.Tensor
    ids: torch.Tensor
    lengths: list[int]

    @property
    def width(self) -> int:
        """Tokens of a row with its padding."""
        return int(self.mask.shape[1])

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows, in this order, and no more padding than they need."""
        if list(rows) == list(range(len(self.lengths))):
            return
        trim = self.width - max(self.lengths[row] for row in rows)
        index = torch.tensor(rows, device=self.mask.device)
        for layer in self.cache.layers:
            at = index.to(layer.keys.device)
            # One layer after the other: the old and the new of one are held at once.
            layer.keys = layer.keys[at][..., trim:, :]
            layer.values = layer.values[at][..., trim:, :]
        self.mask = self.mask[index][:, trim:]
        self.positions, self.ids = self.positions[index], self.ids[index]
        self.lengths = [self.lengths[row] for row in rows]


def left_padded(rows: Sequence[Sequence[int]], device: torch.device) -> PaddedBatch:
    """Prompts before their prefill: positions and ids are [batch, width], the cache is empty.

    Padding has id 0 and position 0; the mask takes it out.
    """
    lengths = [len(row) for row in rows]
    width = max(lengths)
    ids = torch.tensor([[0] * (width - len(row)) + list(row) for row in rows])
    missing = width - torch.tensor(lengths)[:, None]
    mask = (torch.arange(width)[None] >= missing).long()
    positions = (mask.cumsum(dim=1) - 1).clamp_(min=0)
    return PaddedBatch(
        cache=DynamicCache(),
        mask=mask.to(device),
        positions=positions.to(device),
        ids=ids.to(device),
        lengths=lengths,
    )


def joined_rows(batches: Sequence[PaddedBatch]) -> PaddedBatch:
    """The rows of all batches, in order, padded to the widest. The batches are used up."""
    first = batches[0]
    if len(batches) == 1:
        return first
    width = max(batch.width for batch in batches)
    missing = [width - batch.width for batch in batches]
    for at, layer in enumerate(first.cache.layers):
        parts = [batch.cache.layers[at] for batch in batches]
        layer.keys, layer.values = (
            _stacked([part.keys for part in parts], missing),
            _stacked([part.values for part in parts], missing),
        )
        for part in parts[1:]:
            part.keys = part.values = None  # freed layer by layer
    first.mask = torch.cat([pad(b.mask, (m, 0)) for b, m in zip(batches, missing, strict=True)])
    first.positions = torch.cat([batch.positions for batch in batches])
    first.ids = torch.cat([batch.ids for batch in batches])
    first.lengths = [length for batch in batches for length in batch.lengths]
    return first


def _stacked(tensors: Sequence[torch.Tensor], missing: Sequence[int]) -> torch.Tensor:
    """One over the other, each with zeros for the tokens that it lacks at the left."""
    padded = [pad(t, (0, 0, m, 0)) if m else t for t, m in zip(tensors, missing, strict=True)]
    return torch.cat(padded)


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


T = TypeVar("T")

_CPU_ALLOCATION = re.compile(r"can't allocate memory: you tried to allocate (\d+) bytes")
_ELSEWHERE = ("out of memory", "ALLOC_FAILED", "std::bad_alloc")
"""In errors that are no OutOfMemoryError: of cuBLAS, of the driver, of C++."""


def guarded(step: Callable[[], T]) -> T:
    """The step's result; raises OutOfMemory where memory does not suffice for it."""
    try:
        return step()
    except (RuntimeError, MemoryError) as error:
        told = _told(error)
        if told is None:
            raise
    # Out of the handler: the tensors that the failed step's frames held are free by now.
    raise OutOfMemory(told)


def _told(error: RuntimeError | MemoryError) -> str | None:
    """The sentence; None where the error is another one."""
    text = str(error)
    if isinstance(error, OutOfMemory | torch.cuda.OutOfMemoryError):
        return text
    if (found := _CPU_ALLOCATION.search(text)) is not None:
        return f"CPU out of memory. Tried to allocate {size_text(int(found[1]))}. {_process()}"
    if isinstance(error, MemoryError):
        return f"CPU out of memory. Tried to allocate memory of the process. {_process()}"
    if any(mark in text for mark in _ELSEWHERE):
        return text if "out of memory" in text else f"CUDA out of memory. {text}"
    return None


def _process() -> str:
    taken, limit = data_bytes(), data_limit_bytes()
    held = "" if taken is None else f"This process has {size_text(taken)} of private memory"
    if held and limit is not None:
        held += f" of the {size_text(limit)} that it may have"
    return f"{held}." if held else ""

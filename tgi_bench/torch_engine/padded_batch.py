"""Sequences that are decoded together: one KV cache, padded at the left, and what goes with it.

As TGI's padded CausalLM class keeps them. The cache is transformers' DynamicCache, the one that
`model.generate` makes; each layer's keys and values have the shape
[batch, KV heads, tokens, head size], and every step concatenates one token. Sliding windows are
kept whole and masked: rows of several lengths could not be joined otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import pad
from transformers import DynamicCache


@dataclass(slots=True)
class PaddedBatch:
    """Rows between two steps.

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


def joined(batches: Sequence[PaddedBatch]) -> PaddedBatch:
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

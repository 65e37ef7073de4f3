"""A decode step through the transformers engine against a bare loop over the model's forward.

The same network, the same kind of cache, the same prompts; a step of one and a step of the other
take turns, and which comes first alternates, so that what the machine does beside hits both.
The figure is the median over pairs of steps of engine time / bare time. Without torch no row.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.figures import Figure

if TYPE_CHECKING:
    from tgi_bench.torch_engine.model import LoadedModel

PROMPT_TOKENS = 64
GOAL = 1.03
_STEPS = {1: 60, 32: 30}
"""Measured pairs of steps by batch size; _WARM_UPS come before."""

_WARM_UPS = 4
# 134 million parameters: a step takes some ten ms on two cores, as a small model's does.
_CONFIG = {
    "model_type": "llama",
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_key_value_heads": 12,
    "vocab_size": 32000,
    "max_position_embeddings": 1024,
}


def run() -> tuple[Figure, ...]:
    """A row for each batch size."""
    if find_spec("torch") is None or find_spec("transformers") is None:
        return ()
    from tgi_bench.torch_engine.loading import load
    from tgi_bench.torch_engine.spec import ModelSpec, Weights

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.json"
        file.write_text(json.dumps(_CONFIG), encoding="utf-8")
        model = load(ModelSpec(str(file), Weights(random=True)))
    return tuple(_figure(model, batch_size) for batch_size in _STEPS)


def _figure(model: LoadedModel, batch_size: int) -> Figure:
    sides = (_engine_steps(model, batch_size), _bare_steps(model, batch_size))
    times: tuple[list[int], list[int]] = ([], [])
    for pair in range(_WARM_UPS + _STEPS[batch_size]):
        for side in (0, 1) if pair % 2 else (1, 0):
            began_ns = time.monotonic_ns()
            sides[side]()
            times[side].append(time.monotonic_ns() - began_ns)
    engine, bare = (taken[_WARM_UPS:] for taken in times)
    ratio = statistics.median(a / b for a, b in zip(engine, bare, strict=True))
    detail = (
        f"{statistics.median(engine) / 1e6:.1f} ms, bare {statistics.median(bare) / 1e6:.1f} ms; "
        f"{len(engine)} pairs, {model.parameters / 1e6:.0f} M parameters, "
        f"{model.weight_type.value} on {model.device_name}"
    )
    name = f"a decode step of the engine / bare forward, batch {batch_size}"
    return Figure(name, GOAL, ratio, "", detail)


def _engine_steps(model: LoadedModel, batch_size: int) -> Callable[[], None]:
    """Decode RPCs as the shard answers them, without gRPC."""
    from tgi_bench.server.behaviour import Behaviour
    from tgi_bench.server.transformers_engine import TransformersEngine
    from tgi_bench.wire.messages import Batch, Request, Stopping, TokenChoice

    engine = TransformersEngine(model, Behaviour((3, 3, 7)))
    new_tokens = _WARM_UPS + max(_STEPS.values()) + 8
    requests = tuple(
        Request(
            id=row,
            text=" ".join(f"r{row}w{n}" for n in range(PROMPT_TOKENS)),
            truncate=PROMPT_TOKENS,
            choice=TokenChoice(),
            stopping=Stopping(new_tokens, ignore_eos_token=True),
        )
        for row in range(batch_size)
    )
    cached = engine.prefill(Batch(0, requests, 0, batch_size)).cached

    def step() -> None:
        nonlocal cached
        assert cached is not None
        cached = engine.decode([cached]).cached

    return step


def _bare_steps(model: LoadedModel, batch_size: int) -> Callable[[], None]:
    """What a loop over the network's forward needs, and nothing else."""
    import torch
    from transformers import DynamicCache

    ids = torch.randint(0, model.vocab, (batch_size, PROMPT_TOKENS), device=model.device)
    mask, cache = torch.ones_like(ids), DynamicCache()
    positions = torch.arange(PROMPT_TOKENS, device=model.device)[None].expand(batch_size, -1)

    def step() -> None:
        nonlocal ids, mask, positions
        with torch.inference_mode():
            logits = model.network(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            ).logits
            ids = logits[:, -1].argmax(dim=-1, keepdim=True)
            mask = torch.cat((mask, mask.new_ones((batch_size, 1))), dim=1)
            positions = positions[:, -1:] + 1
        model.synchronise()

    step()  # the prefill
    return step

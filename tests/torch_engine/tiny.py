"""Models of a few layers with random weights, one of each family, for tests."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tgi_bench.torch_engine.spec import DeviceChoice, ModelSpec, Weights

if TYPE_CHECKING:
    from tgi_bench.torch_engine.model import LoadedModel

VOCAB = 211
POSITIONS = 96

# Learned positions; rotary with grouped heads; ALiBi; and the others of the table of models.
CONFIGS: dict[str, dict[str, object]] = {
    "gpt2": {"n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": POSITIONS},
    "llama": {
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": POSITIONS,
        "initializer_range": 0.2,
    },
    "bloom": {"hidden_size": 48, "n_layer": 3, "n_head": 4, "initializer_range": 0.2},
    "opt": {
        "hidden_size": 48,
        "word_embed_proj_dim": 48,
        "ffn_dim": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_position_embeddings": POSITIONS,
        "init_std": 0.2,
    },
    "gpt_bigcode": {
        "n_embd": 48,
        "n_layer": 3,
        "n_head": 4,
        "n_positions": POSITIONS,
        "multi_query": True,
        "initializer_range": 0.2,
    },
    "mistral": {
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": POSITIONS,
        "sliding_window": 8,
        "initializer_range": 0.2,
    },
    "falcon": {
        "hidden_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "multi_query": True,
        "initializer_range": 0.2,
    },
    "gpt_neox": {
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_position_embeddings": POSITIONS,
        "initializer_range": 0.2,
    },
}
CONFIGS["gpt2"]["initializer_range"] = 0.2


def write_config(folder: Path, family: str, **changes: object) -> Path:
    """A folder with nothing but the family's config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    special = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}
    config = {"model_type": family, "vocab_size": VOCAB, **special, **CONFIGS[family], **changes}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def spec(folder: Path, seed: int = 0, num_shard: int = 1) -> ModelSpec:
    """Random weights on the CPU."""
    return ModelSpec(
        str(folder), Weights(random=True, seed=seed), DeviceChoice.CPU, num_shard=num_shard
    )


@cache
def loaded(family: str) -> LoadedModel:
    """The family's model, loaded once."""
    from tgi_bench.torch_engine.loading import load

    with tempfile.TemporaryDirectory() as folder:
        return load(spec(write_config(Path(folder), family)))


def expected(model: LoadedModel, prompt: list[int], new_tokens: int) -> list[int]:
    """What transformers' own generate gives for one prompt alone, greedily."""
    import torch

    answer = model.network.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones((1, len(prompt)), dtype=torch.long),
        max_new_tokens=new_tokens,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )
    tokens: list[int] = answer[0, len(prompt) :].tolist()
    return tokens

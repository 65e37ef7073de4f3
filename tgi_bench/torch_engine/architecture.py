"""A model's configuration: of the hub, of a folder, of a file, or of the table of models.

A row of the estimate's table says shapes; which program of transformers computes them stands here.
That both have the same number of parameters is tested.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tgi_bench.errors import InputError
from tgi_bench.estimate.tables import ModelShape, model_names, model_shape
from tgi_bench.torch_engine.spec import ModelSpec

if TYPE_CHECKING:
    from transformers import PretrainedConfig


Value = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class _Family:
    """model_type: transformers' name. more: what the row does not say of its model."""

    model_type: str
    more: tuple[tuple[str, Value], ...] = ()


_POSITIONS = (("max_position_embeddings", 2048),)


def _llama(positions: int = 4096, rope_theta: float = 1e4) -> _Family:
    more = (("max_position_embeddings", positions), ("rope_theta", rope_theta))
    return _Family("llama", more)


_FAMILIES = {
    "facebook/opt-1.3b": _Family("opt"),
    "facebook/opt-6.7b": _Family("opt"),
    "bigscience/bloomz-7b1-mt": _Family("bloom"),
    "bigscience/bloomz-1b1": _Family("bloom"),
    "bigscience/bloom": _Family("bloom"),
    "bigcode-inference-benchmark BLOOM": _Family("bloom"),
    "bigcode-inference-benchmark GPT2-MHA": _Family("gpt_bigcode"),
    "bigcode-inference-benchmark GPT2-MQA": _Family("gpt_bigcode"),
    "bigcode/santacoder": _Family("gpt_bigcode"),
    "bigcode/starcoder": _Family("gpt_bigcode"),
    "h2oai/h2ogpt-4096-llama2-7b-chat": _llama(),
    "meta-llama/Llama-2-13b": _llama(),
    "meta-llama/Llama-2-70b": _llama(),
    "meta-llama/Meta-Llama-3-8B": _llama(8192, 5e5),
    "meta-llama/Meta-Llama-3-70B": _llama(8192, 5e5),
    "mistralai/Mistral-7B-v0.1": _Family(
        "mistral", (("max_position_embeddings", 32768), ("sliding_window", 4096))
    ),
    "mistralai/Mixtral-8x7B-v0.1": _Family(
        "mixtral",
        (("max_position_embeddings", 32768), ("rope_theta", 1e6), ("sliding_window", None)),
    ),
    "tiiuae/falcon-7b": _Family("falcon", (("multi_query", True), *_POSITIONS)),
    "tiiuae/falcon-40b": _Family("falcon", (("new_decoder_architecture", True), *_POSITIONS)),
    "EleutherAI/gpt-neox-20b": _Family("gpt_neox", (("rotary_pct", 0.25), *_POSITIONS)),
    # The published rows have 1024 tokens; the models' own limit is not known.
    "AICrossSim/clm-60m": _llama(2048),
    "AICrossSim/clm-200m": _llama(2048),
    "AICrossSim/clm-400m": _llama(2048),
    "AICrossSim/clm-1.1b": _llama(2048),
}


def named_config(model: str) -> PretrainedConfig:
    """The configuration of a row; InputError for a name that is no row."""
    from transformers import AutoConfig

    shape = model_shape(model)
    family = _FAMILIES.get(model)
    if family is None:
        raise InputError(f"which architecture {model} has is not known: give its config.json")
    fields = _fields(shape, family) | dict(family.more)
    # Ids of special tokens beyond a small vocabulary would be refused; none of them is used.
    return AutoConfig.for_model(
        family.model_type, **fields, bos_token_id=0, eos_token_id=0, pad_token_id=None
    )


def named_positions(model: str) -> int | None:
    """Tokens that a sequence of a row may have; None where it has no such limit, or is no row."""
    family = _FAMILIES.get(model)
    if family is None:
        return None
    fields = _fields(model_shape(model), family) | dict(family.more)
    found = fields.get("max_position_embeddings", fields.get("n_positions"))
    return found if isinstance(found, int) else None


def _fields(shape: ModelShape, family: _Family) -> dict[str, Value]:
    """The row's figures by the names that each configuration has for them."""
    match family.model_type:
        case "bloom":
            named: dict[str, Value] = {"n_layer": shape.layers, "n_head": shape.heads}
        case "gpt_bigcode":
            named = {
                "n_layer": shape.layers,
                "n_head": shape.heads,
                "n_embd": shape.hidden,
                "n_inner": shape.ffn,
                "n_positions": shape.pos_rows,
                "multi_query": shape.kv_heads == 1,
            }
        case "opt":
            # Its learned positions begin at row 2.
            named = {
                "ffn_dim": shape.ffn,
                "word_embed_proj_dim": shape.hidden,
                "max_position_embeddings": shape.pos_rows - 2,
            }
        case "falcon":
            named = {"num_kv_heads": shape.kv_heads, "bias": shape.bias, "alibi": False}
        case "gpt_neox":
            named = {"intermediate_size": shape.ffn}
        case _:
            named = {"intermediate_size": shape.ffn, "num_key_value_heads": shape.kv_heads}
            if shape.experts > 1:
                named |= {"num_local_experts": shape.experts}
                named |= {"num_experts_per_tok": shape.experts_per_token}
    if family.model_type != "gpt_bigcode":
        named |= {"hidden_size": shape.hidden}
    if family.model_type not in ("bloom", "gpt_bigcode"):
        named |= {"num_hidden_layers": shape.layers, "num_attention_heads": shape.heads}
    return named | {"vocab_size": shape.vocab, "tie_word_embeddings": shape.tied}


def model_config(spec: ModelSpec) -> PretrainedConfig:
    """The model's configuration; raises InputError where there is none."""
    if spec.weights.random and spec.model in model_names():
        return named_config(spec.model)
    from transformers import AutoConfig

    path = Path(spec.model)
    try:
        if path.is_file():
            return AutoConfig.from_pretrained(path)
        return AutoConfig.from_pretrained(spec.model)
    except (OSError, ValueError, KeyError, json.JSONDecodeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise InputError(f"no configuration of {spec.model} can be read: {reason}") from error


_NAMES = ("max_position_embeddings", "n_positions", "max_seq_len")
"""As Llama and OPT, GPT-2 and MPT call it; BLOOM has no such limit."""


def config_positions(file: Path) -> int | None:
    """Tokens that a sequence may have; None where the file does not say, or cannot be read."""
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(said, dict):
        return None
    found = (said.get(name) for name in _NAMES)
    return next((n for n in found if isinstance(n, int) and not isinstance(n, bool)), None)

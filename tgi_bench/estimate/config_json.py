"""A Hugging Face config.json to the shape of its model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tgi_bench.errors import InputError
from tgi_bench.estimate.setup import LARGEST_SIZE
from tgi_bench.estimate.tables import ModelShape


@dataclass(frozen=True, slots=True)
class ConfigModel:
    """A model as its config.json describes it.

    doubt: what was taken for granted where the architecture is not a known one; else "".
    """

    shape: ModelShape
    doubt: str


@dataclass(frozen=True, slots=True)
class _Config:
    """A config's values by key and type; InputError names the file and the key."""

    values: Mapping[str, object]
    file: str

    def integer(self, *keys: str, default: int | None = None) -> int:
        """The first of the keys that is there and not null, from 1 to LARGEST_SIZE."""
        for key in keys:
            value = self.values.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise InputError(f"{self.file}: {key} is {value!r:.60}, not an integer")
            if not 1 <= value <= LARGEST_SIZE:
                shown = str(value) if abs(value) < 10**20 else "a number of many digits"
                raise InputError(
                    f"{self.file}: {key} is {shown}; it must be from 1 to {LARGEST_SIZE}"
                )
            return value
        if default is None:
            raise InputError(f"{self.file}: has no {' or '.join(keys)}")
        return default

    def flag(self, key: str, default: bool) -> bool:
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise InputError(f"{self.file}: {key} is {value!r:.60}, not true or false")
        return value


def _sizes(config: _Config, name: str, kv_heads: Callable[[_Config, int], int]) -> ModelShape:
    """What every architecture has; its ffn is not yet known."""
    layers = config.integer("num_hidden_layers", "n_layer", "num_layers", "n_layers")
    hidden = config.integer("hidden_size", "n_embd", "n_embed", "d_model")
    heads = config.integer("num_attention_heads", "n_head", "n_heads")
    vocab = config.integer("vocab_size")
    shared = kv_heads(config, heads)
    if config.values.get("head_dim") is None and hidden % heads:
        raise InputError(
            f"{config.file}: {heads} heads do not divide hidden_size {hidden}, and there is no "
            "head_dim"
        )
    if shared > heads or heads % shared:
        raise InputError(f"{config.file}: {shared} KV heads do not divide the {heads} heads")
    head_dim = config.integer("head_dim", default=max(1, hidden // heads))
    return ModelShape(name, layers, hidden, 0, heads, shared, head_dim, vocab)


def _all_heads(_config: _Config, heads: int) -> int:
    return heads


def _grouped(config: _Config, heads: int) -> int:
    return config.integer("num_key_value_heads", default=heads)


def _one_for_all(config: _Config, heads: int) -> int:
    return 1 if config.flag("multi_query", True) else heads


def _falcon_kv(config: _Config, heads: int) -> int:
    if config.flag("new_decoder_architecture", False):
        return config.integer("num_kv_heads", "n_head_kv", default=heads)
    return _one_for_all(config, heads)


def _gated(config: _Config, name: str) -> ModelShape:
    """Llama and those built like it: RMSNorm, rotary embedding, a gated MLP."""
    kind = config.values.get("model_type")
    sizes = _sizes(config, name, _grouped)
    gemma = isinstance(kind, str) and kind.startswith("gemma")
    experts = config.integer("num_local_experts", "num_experts", default=1)
    of_token = config.integer("num_experts_per_tok", default=1)
    if of_token > experts:
        raise InputError(f"{config.file}: {of_token} experts a token, but {experts} in all")
    kv_width = sizes.kv_heads * sizes.head_dim
    width = sizes.heads * sizes.head_dim
    bias = config.flag("attention_bias", False)
    of_layer = 0
    if bias:  # of q, k, v and the output; the MLP's is mlp_bias
        of_layer = width + 2 * kv_width + sizes.hidden
    elif kind in ("qwen2", "qwen2_moe"):
        of_layer = width + 2 * kv_width
    if kind in ("qwen3", "qwen3_moe"):  # a norm of each query's and each key's head
        of_layer += 2 * sizes.head_dim
    ffn = config.integer("intermediate_size", "ffn_dim")
    if experts > 1:
        ffn = config.integer("moe_intermediate_size", default=ffn)
    if config.flag("mlp_bias", False):
        of_layer += 2 * ffn + sizes.hidden
    return replace(
        sizes,
        ffn=ffn,
        gated_mlp=True,
        tied=config.flag("tie_word_embeddings", gemma),
        norm="rmsnorm",
        norms=4 if kind in ("gemma2", "gemma3", "gemma3_text") else 2,
        extra=sizes.layers * of_layer,
        experts=experts,
        experts_per_token=of_token,
        positional="rotary",
    )


def _opt(config: _Config, name: str) -> ModelShape:
    sizes = _sizes(config, name, _all_heads)
    projected = config.integer("word_embed_proj_dim", default=sizes.hidden)
    if projected != sizes.hidden or not config.flag("do_layer_norm_before", True):
        raise InputError(
            f"{config.file}: OPT with an embedding of another size than hidden_size, or with "
            "norms after its layers, is not estimated"
        )
    return replace(
        sizes,
        ffn=config.integer("ffn_dim"),
        tied=config.flag("tie_word_embeddings", True),
        bias=config.flag("enable_bias", True),
        pos_rows=config.integer("max_position_embeddings") + 2,
        positional="learned",
        padded=True,
    )


def _bloom(config: _Config, name: str) -> ModelShape:
    sizes = _sizes(config, name, _all_heads)
    return replace(
        sizes,
        ffn=4 * sizes.hidden,
        tied=config.flag("tie_word_embeddings", True),
        bias=True,
        extra=2 * sizes.hidden,  # the norm after the embedding
        positional="alibi",
        padded=True,
    )


def _gpt2(config: _Config, name: str) -> ModelShape:
    """GPT-2, and GPT-BigCode, which is GPT-2 with one KV head."""
    bigcode = config.values.get("model_type") == "gpt_bigcode"
    sizes = _sizes(config, name, _one_for_all if bigcode else _all_heads)
    return replace(
        sizes,
        ffn=config.integer("n_inner", default=4 * sizes.hidden),
        tied=config.flag("tie_word_embeddings", True),
        bias=True,
        pos_rows=config.integer("n_positions", "max_position_embeddings"),
        positional="learned",
        padded=not bigcode,
    )


def _falcon(config: _Config, name: str) -> ModelShape:
    sizes = _sizes(config, name, _falcon_kv)
    new = config.flag("new_decoder_architecture", False)
    parallel = new or config.flag("parallel_attn", True)
    two_norms = config.integer("num_ln_in_parallel_attn", default=2 if new else 1) == 2
    return replace(
        sizes,
        ffn=config.integer("ffn_hidden_size", default=4 * sizes.hidden),
        tied=config.flag("tie_word_embeddings", True),
        bias=config.flag("bias", False),
        norms=2 if two_norms or not parallel else 1,
        positional="alibi" if config.flag("alibi", False) else "rotary",
        parallel_residual=parallel,
    )


def _neox(config: _Config, name: str) -> ModelShape:
    return replace(
        _sizes(config, name, _all_heads),
        ffn=config.integer("intermediate_size"),
        tied=config.flag("tie_word_embeddings", False),
        bias=config.flag("attention_bias", True),
        positional="rotary",
        parallel_residual=config.flag("use_parallel_residual", True),
    )


_KNOWN: dict[str, Callable[[_Config, str], ModelShape]] = {
    **dict.fromkeys(
        (
            "llama",
            "mistral",
            "mixtral",
            "qwen2",
            "qwen3",
            "gemma",
            "gemma2",
        ),
        _gated,
    ),
    "opt": _opt,
    "bloom": _bloom,
    "gpt2": _gpt2,
    "gpt_bigcode": _gpt2,
    "falcon": _falcon,
    "RefinedWeb": _falcon,
    "RefinedWebModel": _falcon,
    "gpt_neox": _neox,
}
"""What each `model_type` is; another one with Llama's keys is read as Llama, with a doubt."""


def parse(text: str, file: str, name: str) -> ConfigModel:
    """The model of a config.json's text; InputError in one sentence that names the file.

    name: what the model is called in answers. Of a model of several parts the text's.
    """
    try:
        values = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is not JSON: {str(error).splitlines()[0]:.100}") from None
    if not isinstance(values, dict):
        raise InputError(f"{file} is not a model's config.json: it holds no object")
    inner = values.get("text_config")
    config = _Config(inner if isinstance(inner, dict) else values, file)
    kind = config.values.get("model_type")
    if not isinstance(kind, str):
        raise InputError(f"{file} is not a model's config.json: it has no model_type")
    if kind in _KNOWN:
        return ConfigModel(_KNOWN[kind](config, name), "")
    try:
        shape = _gated(config, name)
    except InputError as error:
        raise InputError(
            f"{file}: model_type {kind!r:.60} is not known, and it cannot be read as Llama's: "
            f"{str(error).removeprefix(f'{file}: ')}; known: {', '.join(_KNOWN)}"
        ) from None
    return ConfigModel(
        shape,
        f"model_type {kind!r:.60} is not known: read as Llama's architecture, so that the count "
        "of parameters may be off",
    )


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")

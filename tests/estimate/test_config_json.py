"""config.json of known models: the rows of models.yaml again; and what is refused."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tgi_bench.errors import InputError
from tgi_bench.estimate.config_json import parse
from tgi_bench.estimate.model import ModelShape, model_shape, parameters

Config = dict[str, object]

LLAMA: Config = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}
KNOWN: dict[str, Config] = {
    "meta-llama/Meta-Llama-3-8B": LLAMA,
    "meta-llama/Llama-2-13b": {
        "model_type": "llama",
        "hidden_size": 5120,
        "intermediate_size": 13824,
        "num_attention_heads": 40,
        "num_hidden_layers": 40,
        "vocab_size": 32000,
    },
    "mistralai/Mistral-7B-v0.1": {**LLAMA, "model_type": "mistral", "vocab_size": 32000},
    "mistralai/Mixtral-8x7B-v0.1": {
        **LLAMA,
        "model_type": "mixtral",
        "vocab_size": 32000,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    "facebook/opt-6.7b": {
        "model_type": "opt",
        "hidden_size": 4096,
        "ffn_dim": 16384,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "vocab_size": 50272,
        "max_position_embeddings": 2048,
        "word_embed_proj_dim": 4096,
        "do_layer_norm_before": True,
    },
    "bigscience/bloomz-7b1-mt": {
        "model_type": "bloom",
        "hidden_size": 4096,
        "n_head": 32,
        "n_layer": 30,
        "vocab_size": 250880,
    },
    "bigscience/bloom": {
        "model_type": "bloom",
        "n_embed": 14336,
        "num_attention_heads": 112,
        "n_layer": 70,
        "vocab_size": 250880,
    },
    "bigcode/starcoder": {
        "model_type": "gpt_bigcode",
        "n_embd": 6144,
        "n_head": 48,
        "n_inner": 24576,
        "n_layer": 40,
        "n_positions": 8192,
        "vocab_size": 49152,
        "multi_query": True,
    },
    "EleutherAI/gpt-neox-20b": {
        "model_type": "gpt_neox",
        "hidden_size": 6144,
        "intermediate_size": 24576,
        "num_attention_heads": 64,
        "num_hidden_layers": 44,
        "vocab_size": 50432,
        "tie_word_embeddings": False,
    },
    "tiiuae/falcon-7b": {
        "model_type": "falcon",
        "hidden_size": 4544,
        "num_attention_heads": 71,
        "num_hidden_layers": 32,
        "vocab_size": 65024,
        "multi_query": True,
        "parallel_attn": True,
        "bias": False,
        "alibi": False,
    },
    "tiiuae/falcon-40b": {
        "model_type": "falcon",
        "hidden_size": 8192,
        "num_attention_heads": 128,
        "num_kv_heads": 8,
        "num_hidden_layers": 60,
        "vocab_size": 65024,
        "new_decoder_architecture": True,
    },
}


def shape_from_config(name: str, text: str) -> ModelShape:
    return parse(text, name, name).shape


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_a_config_gives_the_table_s_row(name: str) -> None:
    shape = shape_from_config(name, json.dumps(KNOWN[name]))
    row = model_shape(name)
    assert parameters(shape) == parameters(row)
    assert dataclasses.replace(shape, positional=row.positional) == row


def test_gpt2_and_qwen2_by_hand() -> None:
    """GPT-2 has 124,439,808 parameters and Qwen2-0.5B 494,032,768, as is well known."""
    gpt2 = {
        "model_type": "gpt2",
        "n_embd": 768,
        "n_head": 12,
        "n_layer": 12,
        "n_inner": None,
        "n_positions": 1024,
        "vocab_size": 50257,
    }
    assert parameters(shape_from_config("gpt2", json.dumps(gpt2))) == 124439808
    qwen2 = {
        "model_type": "qwen2",
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_attention_heads": 14,
        "num_hidden_layers": 24,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    }
    assert parameters(shape_from_config("qwen", json.dumps(qwen2))) == 494032768


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_a_known_kind_leaves_no_doubt(name: str) -> None:
    assert parse(json.dumps(KNOWN[name]), "config.json", name).doubt == ""
    other = {**LLAMA, "model_type": "another"}
    assert "another" in parse(json.dumps(other), "config.json", name).doubt


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": None},
        {"hidden_size": None},
        {"hidden_size": -4096},
        {"hidden_size": 10**9},
        {"hidden_size": "4096"},
        {"hidden_size": True},
        {"hidden_size": 4096.0},
        {"num_attention_heads": 30},
        {"num_key_value_heads": 5},
        {"tie_word_embeddings": "no"},
        {"model_type": "mixtral", "num_local_experts": 2, "num_experts_per_tok": 3},
    ],
)
def test_a_bad_config_is_refused_in_one_sentence(change: Config) -> None:
    with pytest.raises(InputError, match=r"my/config\.json") as caught:
        shape_from_config("my/config.json", json.dumps({**LLAMA, **change}))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", "\x00\xff", "[" * 100_000])
def test_what_is_no_config_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"my\.json is not"):
        shape_from_config("my.json", text)


KINDS = sorted({str(config["model_type"]) for config in KNOWN.values()} | {"gpt2", "qwen2", "x"})


@given(
    st.sampled_from(KINDS),
    st.dictionaries(
        st.sampled_from(sorted({key for config in KNOWN.values() for key in config})),
        st.none() | st.booleans() | st.integers(-2, 5000) | st.floats() | st.text(max_size=3),
    ),
)
def test_any_config_is_a_shape_or_an_input_error(kind: str, values: Config) -> None:
    try:
        shape = shape_from_config("x", json.dumps({**values, "model_type": kind}))
    except InputError:
        return
    assert parameters(shape) > 0
    assert shape.heads % shape.kv_heads == 0

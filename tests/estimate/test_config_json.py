"""A config.json gives the shape that the table of models has, to the last parameter."""

from __future__ import annotations

import json

import pytest

from tgi_bench.errors import InputError
from tgi_bench.estimate.config_json import parse
from tgi_bench.estimate.tables import model_shape, parameters

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}

SAME = {
    "meta-llama/Meta-Llama-3-8B": LLAMA,
    "h2oai/h2ogpt-4096-llama2-7b-chat": {
        **LLAMA,
        "intermediate_size": 11008,
        "num_key_value_heads": None,
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
    "facebook/opt-1.3b": {
        "model_type": "opt",
        "hidden_size": 2048,
        "ffn_dim": 8192,
        "num_attention_heads": 32,
        "num_hidden_layers": 24,
        "vocab_size": 50272,
        "max_position_embeddings": 2048,
        "word_embed_proj_dim": 2048,
        "do_layer_norm_before": True,
    },
    "bigscience/bloomz-7b1-mt": {
        "model_type": "bloom",
        "n_embed": 4096,
        "n_layer": 30,
        "num_attention_heads": 32,
        "vocab_size": 250880,
    },
    "bigscience/bloom": {
        "model_type": "bloom",
        "hidden_size": 14336,
        "n_layer": 70,
        "n_head": 112,
        "vocab_size": 250880,
    },
    "bigcode-inference-benchmark GPT2-MHA": {
        "model_type": "gpt2",
        "n_embd": 2048,
        "n_layer": 24,
        "n_head": 16,
        "n_positions": 2048,
        "n_inner": None,
        "vocab_size": 50258,
    },
    "bigcode/starcoder": {
        "model_type": "gpt_bigcode",
        "n_embd": 6144,
        "n_layer": 40,
        "n_head": 48,
        "n_inner": 24576,
        "n_positions": 8192,
        "multi_query": True,
        "vocab_size": 49152,
    },
    "tiiuae/falcon-7b": {
        "model_type": "falcon",
        "hidden_size": 4544,
        "num_hidden_layers": 32,
        "num_attention_heads": 71,
        "multi_query": True,
        "parallel_attn": True,
        "new_decoder_architecture": False,
        "bias": False,
        "alibi": False,
        "vocab_size": 65024,
    },
    "tiiuae/falcon-40b": {
        "model_type": "RefinedWeb",
        "hidden_size": 8192,
        "n_layer": 60,
        "n_head": 128,
        "n_head_kv": 8,
        "new_decoder_architecture": True,
        "vocab_size": 65024,
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
}


@pytest.mark.parametrize("name", SAME)
def test_a_config_is_the_row_of_its_model(name: str) -> None:
    found = parse(json.dumps(SAME[name]), "config.json", name)
    row = model_shape(name)
    assert found.doubt == ""
    assert parameters(found.shape) == parameters(row)
    for field in ("layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab", "padded"):
        assert getattr(found.shape, field) == getattr(row, field), field
    assert found.shape.parallel_residual == row.parallel_residual


@pytest.mark.parametrize(
    ("config", "count"),
    [
        # Qwen/Qwen2-7B and Qwen/Qwen3-8B by their model cards' checkpoints.
        (
            {
                "model_type": "qwen2",
                "hidden_size": 3584,
                "intermediate_size": 18944,
                "num_attention_heads": 28,
                "num_hidden_layers": 28,
                "num_key_value_heads": 4,
                "vocab_size": 152064,
            },
            7_615_616_512,
        ),
        (
            {
                "model_type": "qwen3",
                "hidden_size": 4096,
                "head_dim": 128,
                "intermediate_size": 12288,
                "num_attention_heads": 32,
                "num_hidden_layers": 36,
                "num_key_value_heads": 8,
                "vocab_size": 151936,
            },
            8_190_735_360,
        ),
        # google/gemma-7b: heads wider than hidden / heads, tied.
        (
            {
                "model_type": "gemma",
                "hidden_size": 3072,
                "head_dim": 256,
                "intermediate_size": 24576,
                "num_attention_heads": 16,
                "num_hidden_layers": 28,
                "num_key_value_heads": 16,
                "vocab_size": 256000,
            },
            8_537_680_896,
        ),
    ],
)
def test_counts_of_checkpoints(config: dict[str, object], count: int) -> None:
    assert parameters(parse(json.dumps(config), "config.json", "m").shape) == count


def test_the_text_part_of_a_model_of_several() -> None:
    whole = {"model_type": "llava", "text_config": LLAMA}
    assert parse(json.dumps(whole), "c", "m").shape.layers == 32


def test_an_unknown_architecture_is_read_as_llama_with_a_doubt() -> None:
    found = parse(json.dumps({**LLAMA, "model_type": "newest"}), "config.json", "m")
    assert found.shape.gated_mlp
    assert "model_type 'newest' is not known: read as Llama's architecture" in found.doubt


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "holds no object"),
        ("{}", "has no model_type"),
        ('{"model_type": 3}', "has no model_type"),
        (json.dumps({**LLAMA, "hidden_size": -4096}), "hidden_size is -4096; it must be from 1"),
        (json.dumps({**LLAMA, "hidden_size": 0}), "hidden_size is 0; it must be from 1"),
        (json.dumps({**LLAMA, "vocab_size": 10**40}), "a number of many digits; it must be"),
        (json.dumps({**LLAMA, "vocab_size": 1.5}), "vocab_size is 1.5, not an integer"),
        (json.dumps({**LLAMA, "num_hidden_layers": True}), "True, not an integer"),
        (json.dumps({**LLAMA, "num_hidden_layers": None}), "has no num_hidden_layers or n_layer"),
        (json.dumps({**LLAMA, "hidden_size": 4097}), "32 heads do not divide hidden_size 4097"),
        (json.dumps({**LLAMA, "num_key_value_heads": 5}), "5 KV heads do not divide the 32"),
        (json.dumps({**LLAMA, "num_key_value_heads": 64}), "64 KV heads do not divide the 32"),
        (json.dumps({**LLAMA, "num_experts_per_tok": 2}), "2 experts a token, but 1 in all"),
        (json.dumps({**LLAMA, "tie_word_embeddings": "no"}), "not true or false"),
        ('{"model_type": "llama", "hidden_size": NaN}', "is not JSON: NaN"),
        ('{"model_type": "tree"}', "model_type 'tree' is not known, and it cannot be read as"),
        (
            json.dumps({**SAME["facebook/opt-1.3b"], "word_embed_proj_dim": 512}),
            "embedding of another size",
        ),
    ],
)
def test_a_damaged_config_is_one_sentence(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text, "a/config.json", "m")
    said = str(caught.value)
    assert message in said
    assert said.startswith("a/config.json")
    assert "\n" not in said

"""Rows of the table of models as configurations of transformers."""

from __future__ import annotations

import pytest

from tests.torch_engine.needs_torch import skip_without_torch
from tgi_bench.errors import InputError
from tgi_bench.estimate.tables import model_names, model_shape, parameters

skip_without_torch()

import torch  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

from tgi_bench.torch_engine.architecture import (  # noqa: E402
    model_config,
    named_config,
    named_positions,
)
from tgi_bench.torch_engine.spec import ModelSpec, Weights  # noqa: E402


@pytest.mark.parametrize("model", model_names())
def test_a_row_has_as_many_parameters_as_the_estimate_says(model: str) -> None:
    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(named_config(model))
    assert network.num_parameters() == parameters(model_shape(model))


def test_positions_and_heads() -> None:
    opt, falcon = named_config("facebook/opt-1.3b"), named_config("tiiuae/falcon-7b")
    assert opt.max_position_embeddings == 2048
    assert (falcon.num_kv_heads, falcon.num_attention_heads) == (1, 71)
    assert named_config("mistralai/Mistral-7B-v0.1").sliding_window == 4096
    assert named_config("meta-llama/Meta-Llama-3-8B").rope_theta == 5e5


@pytest.mark.parametrize("model", model_names())
def test_positions_are_known_without_transformers(model: str) -> None:
    config = named_config(model)
    limit = None if config.model_type == "bloom" else config.max_position_embeddings
    assert named_positions(model) == limit


def test_random_weights_of_a_row_read_nothing() -> None:
    spec = ModelSpec("bigcode-inference-benchmark BLOOM", Weights(random=True))
    assert model_config(spec).n_layer == 24


def test_a_name_that_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="unknown model"):
        named_config("no such model")
    with pytest.raises(InputError, match="no configuration of /no/such/folder can be read"):
        model_config(ModelSpec("/no/such/folder"))

"""`tgi-bench serve --engine transformers`: a launcher's command line to a model's specification."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tgi_bench.cli.files import chooser
from tgi_bench.errors import InputError
from tgi_bench.server import command as serve_command
from tgi_bench.server.command import EngineOptions
from tgi_bench.server.config import ServerConfig
from tgi_bench.torch_engine.spec import DeviceChoice, ModelSpec, Weights, WeightType

OPTIONS = EngineOptions("3.3.7", "transformers", "no such accelerator", "cpu")


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_command, "require_extra", lambda: None)


def configured(*words: str, options: EngineOptions = OPTIONS) -> ServerConfig:
    return serve_command.configuration(options, ["--model-id", "some/model", *words], {}, chooser)


def spec_of(*words: str, options: EngineOptions = OPTIONS) -> ModelSpec:
    spec = configured(*words, options=options).engine.torch_model
    assert spec is not None
    return spec


def test_a_model_as_it_stands() -> None:
    assert spec_of() == ModelSpec("some/model", Weights(), DeviceChoice.CPU)
    assert not configured().engine.simulated


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("--dtype", "bfloat16"), WeightType.BFLOAT16),
        (("--dtype", "float16"), WeightType.FLOAT16),
        (("--quantize", "bitsandbytes"), WeightType.INT8),
        (("--quantize", "bitsandbytes-nf4"), WeightType.NF4),
        (("--quantize", "bitsandbytes-fp4"), WeightType.FP4),
    ],
)
def test_types_of_weights(words: tuple[str, ...], kind: WeightType) -> None:
    assert spec_of(*words).weights.weight_type is kind


def test_the_first_spelling_of_bfloat16() -> None:
    old = replace(OPTIONS, tgi_version="0.9.0")
    assert spec_of("--dtype", "b-float16", options=old).weights.weight_type is WeightType.BFLOAT16


def test_own_options_and_ranks() -> None:
    options = replace(OPTIONS, random_weights=True, weights_seed=7)
    words = ("--num-shard", "2", "--cuda-memory-fraction", "0.5", "--master-port", "4321")
    assert spec_of(*words, options=options) == ModelSpec(
        "some/model",
        Weights(None, True, 7),
        DeviceChoice.CPU,
        memory_fraction=0.5,
        num_shard=2,
    )
    assert configured(*words).engine.master_port == 4321


def test_a_quantization_that_it_has_not() -> None:
    with pytest.raises(InputError, match="--quantize gptq: the transformers engine has bitsandb"):
        configured("--quantize", "gptq")


def test_both_ways_to_divide() -> None:
    with pytest.raises(InputError, match="exclude each other"):
        configured("--num-shard", "2", options=replace(OPTIONS, layer_split=True))


def test_no_model() -> None:
    """The launcher's default would be downloaded."""
    with pytest.raises(InputError, match="give --model-id: an id of the Hugging Face hub"):
        serve_command.configuration(OPTIONS, [], {}, chooser)


def test_an_unknown_engine() -> None:
    options = replace(OPTIONS, engine="torch")
    with pytest.raises(InputError, match="--engine torch: unknown; allowed: simulated, transf"):
        configured(options=options)


@pytest.mark.parametrize(
    ("model", "total"),
    [
        ("facebook/opt-1.3b", 2048),
        ("tiiuae/falcon-7b", 2048),
        ("bigscience/bloomz-1b1", 4096),
        ("gpt2-folder", 1024),
        ("folder/config.json", 96),
        ("broken", 4096),
    ],
)
def test_limits_come_from_the_models_positions(tmp_path: Path, model: str, total: int) -> None:
    for name, said in {
        "gpt2-folder": json.dumps({"n_positions": 1024}),
        "folder": json.dumps({"max_position_embeddings": 96}),
        "broken": "[",
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(said, encoding="utf-8")
    named = model if "/" in model and "config" not in model else str(tmp_path / model)
    limits = serve_command.configuration(OPTIONS, ["--model-id", named], {}, chooser).limits
    assert (limits.max_total_tokens, limits.max_input_tokens) == (total, total - 1)

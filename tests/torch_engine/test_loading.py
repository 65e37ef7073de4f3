"""What can be loaded and what is refused, in one sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.torch_engine.needs_torch import skip_without_torch

skip_without_torch()

import torch  # noqa: E402

from tests.torch_engine.text_files import write_model  # noqa: E402
from tests.torch_engine.tiny import expected, loaded, spec, write_config  # noqa: E402
from tgi_bench.errors import InputError  # noqa: E402
from tgi_bench.torch_engine import loading  # noqa: E402
from tgi_bench.torch_engine.generation import generate  # noqa: E402
from tgi_bench.torch_engine.loading import load  # noqa: E402
from tgi_bench.torch_engine.spec import (  # noqa: E402
    DeviceChoice,
    ModelSpec,
    Rank,
    Weights,
    WeightType,
)


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return write_config(tmp_path / "llama", "llama")


def test_a_seed_says_the_weights(llama: Path) -> None:
    prompts = [[1, 2, 3]]
    first, again, other = (generate(load(spec(llama, seed)), prompts, 8) for seed in (1, 1, 2))
    assert first.tokens == again.tokens != other.tokens


def test_a_config_file_is_enough(llama: Path) -> None:
    model = load(spec(llama / "config.json", seed=1))
    assert model.architecture == "LlamaForCausalLM"
    assert (
        generate(model, [[1, 2, 3]], 8).tokens
        == generate(load(spec(llama, seed=1)), [[1, 2, 3]], 8).tokens
    )


def test_what_is_known_of_a_model() -> None:
    model = loaded("llama")
    # 2 x layers x KV heads x head size x 4 bytes.
    assert model.kv_bytes_per_token == 2 * 3 * 2 * 12 * 4
    assert model.weights_bytes >= model.parameters * 4
    assert (model.weight_type, model.device_name) == (WeightType.FLOAT32, "cpu")
    assert model.max_positions == 96
    assert dict(model.versions).keys() >= {"torch", "transformers", "python"}
    assert model.peak_bytes() is not None
    assert model.free_bytes() is not None


def test_real_weights_are_read(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    drawn = load(spec(folder, seed=3))
    drawn.network.save_pretrained(folder)
    model = load(ModelSpec(str(folder), device=DeviceChoice.CPU))
    assert model.tokenizer.count("hello") == 3
    assert list(generate(model, [[5, 6, 7]], 6).tokens[0]) == expected(drawn, [5, 6, 7], 6)


@pytest.mark.parametrize("kind", [WeightType.BFLOAT16, WeightType.FLOAT16])
def test_16_bits(llama: Path, kind: WeightType) -> None:
    model = load(ModelSpec(str(llama), Weights(kind, random=True), DeviceChoice.CPU))
    assert str(model.network.dtype) == f"torch.{kind.value}"
    assert model.kv_bytes_per_token == 2 * 3 * 2 * 12 * 2
    assert len(generate(model, [[1, 2], [3, 4, 5]], 4).tokens) == 2


@pytest.mark.parametrize(
    ("family", "config", "message"),
    [
        ("llama", {"model_type": "t5"}, "is a t5 model: the engine runs causal language"),
        ("llama", {"model_type": "vit"}, "is a vit model"),
        ("llama", {"model_type": "nonsense"}, "no configuration of"),
    ],
)
def test_models_that_generate_nothing(
    tmp_path: Path, family: str, config: dict[str, object], message: str
) -> None:
    folder = write_config(tmp_path, family, **config)
    with pytest.raises(InputError, match=message):
        load(spec(folder))


def test_a_model_without_a_kv_cache_of_tokens(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"model_type": "mamba", "vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1}'
    )
    with pytest.raises(InputError, match="no KV cache of tokens"):
        load(spec(tmp_path))


def test_no_weights_in_the_folder(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    with pytest.raises(InputError, match="cannot be loaded"):
        load(ModelSpec(str(folder), device=DeviceChoice.CPU))


@pytest.mark.parametrize(
    ("changes", "devices", "message"),
    [
        ({"device": DeviceChoice.CUDA}, 0, "torch finds no CUDA device here"),
        ({"num_shard": 2}, 0, "num_shard 2 needs as many CUDA devices; this machine has 0"),
        ({"num_shard": 4}, 2, "num_shard 4 needs as many CUDA devices; this machine has 2"),
        ({"num_shard": 2}, 2, "needs a process for each rank"),
        ({"num_shard": 2, "device": DeviceChoice.CPU}, 1, "hide them with CUDA_VISIBLE_DEVICES"),
        ({"layer_split": True}, 1, "at least 2 CUDA devices; this machine has 1"),
        ({"layer_split": True, "device": DeviceChoice.CPU}, 2, "at least 2 CUDA devices"),
    ],
)
def test_devices_that_are_not_there(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], devices: int, message: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: devices > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: devices)
    asked = ModelSpec("m", **changes)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=message):
        loading.device_of(asked, None)


def test_devices_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert loading.device_of(ModelSpec("m"), None) == torch.device("cuda", 0)
    assert loading.device_of(ModelSpec("m", device=DeviceChoice.CPU), None).type == "cpu"
    ranked = ModelSpec("m", num_shard=2)
    assert loading.device_of(ranked, Rank(1, 2, 29500)) == torch.device("cuda", 1)
    assert loading.device_of(ModelSpec("m", layer_split=True), None).type == "cuda"


@pytest.mark.parametrize(
    ("kind", "device", "message"),
    [
        (WeightType.INT8, "cpu", "int8 weights need a CUDA device"),
        (WeightType.NF4, "cuda", "nf4 weights need bitsandbytes, not installed here: pip install"),
    ],
)
def test_bits_that_cannot_be_had(
    monkeypatch: pytest.MonkeyPatch, kind: WeightType, device: str, message: str
) -> None:
    monkeypatch.setattr(loading, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=message):
        loading.weight_type_of(ModelSpec("m", Weights(kind)), torch.device(device))


def test_types_where_none_is_asked() -> None:
    asked = ModelSpec("m")
    assert loading.weight_type_of(asked, torch.device("cpu")) is WeightType.FLOAT32
    assert loading.weight_type_of(asked, torch.device("cuda")) is WeightType.FLOAT16


def test_a_family_without_a_tensor_parallel_plan(tmp_path: Path) -> None:
    folder = write_config(tmp_path, "bloom")
    with pytest.raises(InputError, match="no tensor-parallel plan for bloom models"):
        load(spec(folder, num_shard=2), Rank(0, 2, 29500))


def test_heads_that_cannot_be_divided(llama: Path) -> None:
    with pytest.raises(InputError, match="num_shard 3 does not divide the 4 heads"):
        load(spec(llama, num_shard=3), Rank(0, 3, 29500))


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="limits are Linux's")
def test_the_tests_themselves_still_have_memory() -> None:
    """Every load above limited this process to what was free then."""
    assert torch.ones(2**20).sum() == 2**20

"""Command lines of every engine, as a process and in an image."""

from __future__ import annotations

import pytest

from tgi_bench.engines.engine import Engine, engine_spec
from tgi_bench.launch.deployment import Reach, requested_command, server_arguments
from tgi_bench.plan.expand import expand
from tgi_bench.plan.experiment_text import load
from tgi_bench.plan.plan import Deployment

TEXT = """experiment: e
model: {model}
server:
  launcher: process
  engine: {engine}
  {keys}
batches: {{sequence_length: 8, decode_length: 2, batch_size: 1, runs: 1}}
"""
REACH = Reach("127.0.0.1", 8123)
AT = ("--host", "127.0.0.1", "--port", "8123")


def _asked(engine: str, keys: str = "constant: {}", model: str = "org/model") -> Deployment:
    text = TEXT.format(engine=engine, keys=keys, model=model)
    return expand(load(text, "e.yaml")).deployments[0]


def test_other_engines_arguments_are_handed_on() -> None:
    keys = (
        "constant: {tensor_parallel_size: 2, dtype: half, enforce-eager: true, off: false, "
        "none: null, seed: -1, gpu_memory_utilization: 0.9, host: 0.0.0.0, port: 1}"
    )
    asked = _asked("vllm", keys)
    words = (
        *("org/model", "--tensor-parallel-size", "2", "--dtype", "half", "--enforce-eager"),
        *("--seed=-1", "--gpu-memory-utilization", "0.9"),
    )
    assert server_arguments(asked, REACH, in_image=False) == (*words, *AT)
    assert server_arguments(asked, REACH, in_image=True) == ("--model", *words, *AT)
    assert requested_command(asked) == (
        "vllm", "serve", *words, "--host", "0.0.0.0", "--port", "1",
    )  # fmt: skip
    assert (asked.num_shard, asked.quantize) == (2, None)


@pytest.mark.parametrize(
    ("engine", "model", "words"),
    [
        ("sglang", "org/model", ("--model-path", "org/model")),
        ("llamacpp", "org/model:Q4_K_M", ("--hf-repo", "org/model:Q4_K_M")),
        ("llamacpp", "/models/m.gguf", ("--model", "/models/m.gguf")),
        ("llamacpp", "m.GGUF", ("--model", "m.GGUF")),
    ],
)
@pytest.mark.parametrize("in_image", [True, False])
def test_the_model(engine: str, model: str, words: tuple[str, ...], in_image: bool) -> None:
    asked = _asked(engine, model=model)
    assert server_arguments(asked, REACH, in_image) == (*words, *AT)


def test_num_shard_and_quantize_by_the_engines_own_names() -> None:
    sglang = _asked("sglang", "constant: {tp_size: 4, quantization: awq}")
    assert (sglang.num_shard, sglang.quantize) == (4, "awq")
    other = _asked("llamacpp", "constant: {num_shard: 4, quantize: awq}")
    assert (other.num_shard, other.quantize) == (1, None)


@pytest.mark.parametrize("version", ["0.8.2", "0.9.4", "3.3.7"])
def test_tgi(version: str) -> None:
    asked = _asked("tgi", f"version: {version}\n  constant: {{num_shard: 2, port: 1}}")
    words = server_arguments(asked, Reach("0.0.0.0", 80, "/s/shard", 29501), in_image=True)
    hostname = () if version == "0.8.2" else ("--hostname", "0.0.0.0")
    assert words == (
        *("--model-id", "org/model", "--num-shard", "2", *hostname, "--port", "80"),
        *("--shard-uds-path", "/s/shard", "--master-port", "29501"),
    )
    own = _asked("tgi", f"version: {version}\n  constant: {{master_port: 5}}")
    words = server_arguments(own, Reach("0.0.0.0", 80, None, 29501), in_image=True)
    assert words[words.index("--master-port") + 1 :][:1] == ("5",)
    assert "--shard-uds-path" not in words


def test_the_version_of_another_engine_is_what_is_written() -> None:
    assert _asked("vllm").tgi_version == ""
    assert _asked("vllm", "version: 0.11.0rc1").tgi_version == "0.11.0rc1"
    assert _asked("vllm", "image: vllm/vllm-openai:v0.11.0").tgi_version == "v0.11.0"
    assert not _asked("vllm").version_assumed


def test_the_table_is_whole() -> None:
    for engine in Engine:
        spec = engine_spec(engine)
        assert spec.engine is engine
        assert spec.program
        assert spec.has_shards == (engine is Engine.TGI)

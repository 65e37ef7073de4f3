"""The command line of every engine stays what it is, as a process and in an image."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from shlex import join

from tgi_bench.launch.deployment import Reach, requested_command, server_arguments
from tgi_bench.plan.experiment_text import load_plan

EXPERIMENT = """\
experiment: e
model: {model}
server:
  launcher: process
  {keys}
batches: {{sequence_length: 8, decode_length: 2, batch_size: 1, runs: 1}}
"""
ENGINES = ("vllm", "sglang", "llamacpp")
MODELS = ("org/model", "/data/model", "models/a.gguf")
ARGUMENTS = (
    "{}",
    "{a_flag: true, b-flag: false, c: null, d: -1, e: 0.5, f: two words, g: [1, 2], h: ''}",
    "{host: h, port: 1, tensor_parallel_size: 2}",
)
VERSIONS = ("0.8.2", "0.9.4", "1.4.5", "2.0.4", "3.3.7")
TGI_ARGUMENTS = (
    "{}",
    "{num_shard: 2, quantize: gptq, sharded: true, json_output: true, trust_remote_code: false, "
    "revision: -x, max_concurrent_requests: null, cors_allow_origin: 'http://a,http://b'}",
    "{port: 1, shard_uds_path: /own, master_port: 5}",
)
REACHES = {
    "as a process": (Reach("127.0.0.1", 8123, "/s/shard", 29501), False),
    "in an image": (Reach("0.0.0.0", 80), True),
}


def test_commands_stay(golden: Callable[[str, str], None]) -> None:
    asked = [
        (model, f"engine: {engine}\n  constant: {arguments}")
        for engine, model, arguments in product(ENGINES, MODELS, ARGUMENTS)
    ]
    asked += [
        ("org/model", f"version: {version}\n  constant: {arguments}")
        for version, arguments in product(VERSIONS, TGI_ARGUMENTS)
    ]
    asked.append(("org/model", "version: 0.9.4\n  constant: {hostname: h}"))
    golden("server_commands.txt", "\n".join(page(model, keys) for model, keys in asked))


def page(model: str, keys: str) -> str:
    """What is asked, what is shown as requested, and the words that a server is started with."""
    _, plan = load_plan(EXPERIMENT.format(model=model, keys=keys), "e.yaml")
    (deployment,) = plan.deployments
    lines = [f"{model}, {' '.join(keys.split())}", f"  {join(requested_command(deployment))}"]
    for name, (reach, in_image) in REACHES.items():
        lines.append(f"  {name}: {join(server_arguments(deployment, reach, in_image))}")
    return "\n".join(lines) + "\n"

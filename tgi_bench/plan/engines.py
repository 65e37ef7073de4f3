"""The inference engines that tgi-bench starts: what differs between them is this table.

Sources: launcher/src/main.rs of huggingface/text-generation-inference; the command line
references of vllm-project/vllm (`vllm serve`), sgl-project/sglang (`sglang.launch_server`) and
ggml-org/llama.cpp (tools/server/README.md), and what their images run.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Engine(StrEnum):
    """Which program serves the model."""

    TGI = "tgi"
    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMACPP = "llamacpp"


class Dialect(StrEnum):
    """In which words a server is asked for a token."""

    TGI = "tgi"
    """POST /generate."""
    OPENAI = "openai"
    """POST /v1/completions."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One engine.

    program: the words before its arguments, from the PATH. image_program: the words before them
        in a container; () where the image's entry point is the program.
    model_flag: before the model; "" where it stands alone. image_model_flag: the same in a
        container. hub_model_flag: instead of both for a model that is no path, or None.
    host_flag, port_flag: of the address that it listens at.
    shard_argument: of the tensor-parallel degree, in snake_case; None where it has none.
    quantize_argument: of the quantization; None where the model's file says it.
    container_port: the port that it listens at inside a container.
    health_path: answers 200 where it is ready, or about to be.
    has_shards: whether it opens the shards' gRPC sockets.
    api_key_variable: the environment variable that sets the key its clients must send.
    argument_variables: what the names of variables that stand for arguments begin with; ""
        where they do not, or a table knows them.
    secret_arguments: whose values are secrets; refused, for arguments are recorded.
    """

    engine: Engine
    title: str
    program: tuple[str, ...]
    image_program: tuple[str, ...]
    model_flag: str
    image_model_flag: str
    hub_model_flag: str | None
    host_flag: str
    port_flag: str
    shard_argument: str | None
    quantize_argument: str | None
    container_port: int
    health_path: str
    dialect: Dialect
    has_shards: bool
    api_key_variable: str
    argument_variables: str
    secret_arguments: tuple[str, ...]


_ENGINES = {
    spec.engine: spec
    for spec in (
        EngineSpec(
            engine=Engine.TGI,
            title="text-generation-inference",
            program=("text-generation-launcher",),
            image_program=(),
            model_flag="--model-id",
            image_model_flag="--model-id",
            hub_model_flag=None,
            host_flag="--hostname",
            port_flag="--port",
            shard_argument="num_shard",
            quantize_argument="quantize",
            container_port=80,
            health_path="/health",
            dialect=Dialect.TGI,
            has_shards=True,
            api_key_variable="API_KEY",
            argument_variables="",
            secret_arguments=("api_key", "ngrok_authtoken", "ngrok_password"),
        ),
        EngineSpec(
            engine=Engine.VLLM,
            title="vLLM",
            program=("vllm", "serve"),
            image_program=(),
            model_flag="",
            # Older images run the module of the API server, which takes no lone model.
            image_model_flag="--model",
            hub_model_flag=None,
            host_flag="--host",
            port_flag="--port",
            shard_argument="tensor_parallel_size",
            quantize_argument="quantization",
            container_port=8000,
            health_path="/health",
            dialect=Dialect.OPENAI,
            has_shards=False,
            api_key_variable="VLLM_API_KEY",
            argument_variables="",
            secret_arguments=("api_key", "hf_token"),
        ),
        EngineSpec(
            engine=Engine.SGLANG,
            title="SGLang",
            program=("python3", "-m", "sglang.launch_server"),
            image_program=("python3", "-m", "sglang.launch_server"),
            model_flag="--model-path",
            image_model_flag="--model-path",
            hub_model_flag=None,
            host_flag="--host",
            port_flag="--port",
            shard_argument="tp_size",
            quantize_argument="quantization",
            container_port=30000,
            health_path="/health",
            dialect=Dialect.OPENAI,
            has_shards=False,
            api_key_variable="SGLANG_API_KEY",
            argument_variables="",
            secret_arguments=("api_key", "admin_api_key"),
        ),
        EngineSpec(
            engine=Engine.LLAMACPP,
            title="llama.cpp",
            program=("llama-server",),
            image_program=(),
            model_flag="--model",
            image_model_flag="--model",
            hub_model_flag="--hf-repo",
            host_flag="--host",
            port_flag="--port",
            shard_argument=None,
            quantize_argument=None,
            container_port=8080,
            health_path="/health",
            dialect=Dialect.OPENAI,
            has_shards=False,
            api_key_variable="LLAMA_API_KEY",
            argument_variables="LLAMA_ARG_",
            secret_arguments=("api_key", "hf_token"),
        ),
    )
}


def engine_spec(engine: Engine) -> EngineSpec:
    """What is known of an engine."""
    return _ENGINES[engine]

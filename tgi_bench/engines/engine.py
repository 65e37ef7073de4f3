"""The inference engines that tgi-bench starts: what differs between them is this table.

Sources: launcher/src/main.rs of huggingface/text-generation-inference; the command line
references of vllm-project/vllm (`vllm serve`), sgl-project/sglang (`sglang.launch_server`) and
ggml-org/llama.cpp (tools/server/README.md), and what their images run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tgi_bench.engines.argument_values import check
from tgi_bench.engines.arguments import ArgumentValue
from tgi_bench.errors import Problem

_SECRET = frozenset(
    {
        "apikey",
        "authorization",
        "authtoken",
        "credential",
        "credentials",
        "key",
        "passphrase",
        "passwd",
        "password",
        "secret",
        "secrets",
        "token",
    }
)
"""What the last part of a secret's name is."""

_OF_TEXTS = frozenset({"bos", "cls", "eos", "mask", "pad", "sep", "stop", "unk"})
"""What is a token of a model, and no secret, with "_token" behind it."""

_NAMED = re.compile(r"--?([A-Za-z][A-Za-z0-9._-]*)(?:=(.*))?", re.ASCII | re.DOTALL)
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.+)", re.ASCII | re.DOTALL)
_HEADER = re.compile(
    r"(authorization|x-api-key|api-key|cookie)\s*:\s*\S|bearer\s+\S", re.IGNORECASE
)
_LOGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s@]*:[^/\s@]+@", re.IGNORECASE)
_ISSUED = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{16,}|gh[opsu]_[A-Za-z0-9]{20,}"
    r"|github_pat_[A-Za-z0-9_]{20,}|AKIA[0-9A-Z]{16}|glpat-[A-Za-z0-9_-]{16,}"
    r"|nvapi-[A-Za-z0-9_-]{16,}|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,})"
)
"""Secrets that say by their own form what they are: of Hugging Face, OpenAI, GitHub, AWS, ..."""


def is_secret_name(name: str) -> bool:
    """Whether a flag, an argument or a variable of that name holds a secret: HF_TOKEN, api-key.

    max_batch_total_tokens, tokenizer_name and ssl_keyfile do not, nor does eos_token.
    """
    *before, last = re.split(r"[_.-]+", name.lower())
    return last in _SECRET and not (last == "token" and before and before[-1] in _OF_TEXTS)


def secret_in(words: Sequence[str]) -> str | None:
    """What of a command looks like a secret, by its name and never its value; None: nothing.

    `--api-key $API_KEY` in a script of the command's names a variable, and is none.
    """
    return next(_secrets(words), None)


def _secrets(words: Sequence[str]) -> Iterator[str]:
    for word, following in zip(words, (*words[1:], ""), strict=True):
        given = _NAMED.fullmatch(word) or _VARIABLE.fullmatch(word)
        if given is not None:
            value = following if given[2] is None else given[2]
            if is_secret_name(given[1]) and _is_value(given[1], value):
                yield word[: given.end(1)]
        if _HEADER.search(word) and "$" not in word:
            yield "a header that authorises"
        if _LOGIN.search(word):
            yield "a URL with a password"
        if _ISSUED.search(word):
            yield "a key or a token by its form"
        if any(character.isspace() for character in word):
            yield from _secrets(_split(word))


def _is_value(name: str, text: str) -> bool:
    """Not another flag, the name of a variable, a count, or the path of a key's file."""
    path = name.lower().endswith("key") and text.startswith(("/", "./", "~/"))
    return bool(text) and not text.startswith(("-", "$")) and not text.isdecimal() and not path


def _split(script: str) -> list[str]:
    """The words of a script in the command, as of `sh -c`."""
    try:
        return shlex.split(script)
    except ValueError:
        return script.split()


_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*", re.ASCII)


def argument_problems(
    engine: Engine, version: str, arguments: Sequence[tuple[str, ArgumentValue]]
) -> tuple[Problem, ...]:
    """Every problem of these arguments; the key path is the argument's name."""
    spec = engine_spec(engine)
    secret = tuple(
        Problem(
            name,
            "is a secret, and arguments are recorded: hand it on by name, as in "
            f"server.env: [{spec.api_key_variable if name == 'api_key' else name.upper()}]",
        )
        for name, value in arguments
        if value is not None and _is_secret(engine, name)
    )
    if secret:
        return secret
    if engine is Engine.TGI:
        return check(version, arguments)
    return tuple(
        Problem(name, f"is no name of an argument of {spec.title}, as in tensor_parallel_size")
        for name, _ in arguments
        if not _NAME.fullmatch(name)
    )


def _is_secret(engine: Engine, name: str) -> bool:
    """Of other engines than TGI, whose arguments no table knows, by the name alone too."""
    if name.replace("-", "_") in engine_spec(engine).secret_arguments:
        return True
    return engine is not Engine.TGI and is_secret_name(name)


def model_arguments(engine: Engine) -> frozenset[str]:
    """The arguments that would name the model, which has a key of its own."""
    spec = engine_spec(engine)
    flags = (spec.model_flag, spec.image_model_flag, spec.hub_model_flag)
    return frozenset(flag.lstrip("-").replace("-", "_") for flag in flags if flag)


class Engine(StrEnum):
    """Which program serves the model."""

    TGI = "tgi"
    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMACPP = "llamacpp"


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

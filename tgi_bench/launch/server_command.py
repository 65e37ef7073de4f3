"""The command line of a deployment's server, whichever engine it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tgi_bench.engines.argument_values import command_line
from tgi_bench.engines.arguments import ArgumentValue, arguments_of
from tgi_bench.engines.engine import Engine, EngineSpec, engine_spec
from tgi_bench.launch.deployment import Deployment
from tgi_bench.words import shown

_PATH = re.compile(r"[./~].*|.*\.gguf", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Reach:
    """Where a server is told to listen.

    shard_uds_path: stem of the shards' sockets; None leaves the engine's own.
    master_port: of the shards' rendezvous; None leaves the engine's own.
    """

    host: str
    port: int
    shard_uds_path: str | None = None
    master_port: int | None = None


def server_arguments(deployment: Deployment, reach: Reach, in_image: bool) -> tuple[str, ...]:
    """The words after the program; where it listens comes from `reach`, not the experiment."""
    if deployment.engine is Engine.TGI:
        return _tgi_arguments(deployment, reach)
    spec = engine_spec(deployment.engine)
    own = {spec.host_flag, spec.port_flag}
    given = [(_flag(a.name), a.value) for a in deployment.arguments]
    return (
        *_model_words(spec, deployment.model, in_image),
        *_words([(flag, value) for flag, value in given if flag not in own]),
        spec.host_flag,
        reach.host,
        spec.port_flag,
        str(reach.port),
    )


def requested_command(deployment: Deployment) -> tuple[str, ...]:
    """Program and arguments as requested, without an address that nobody asked for."""
    spec = engine_spec(deployment.engine)
    given = [(a.name, a.value) for a in deployment.arguments]
    if deployment.engine is Engine.TGI:
        return (*spec.program, *command_line(deployment.tgi_version, deployment.model, given))
    words = _words([(_flag(name), value) for name, value in given])
    return (*spec.program, *_model_words(spec, deployment.model, in_image=False), *words)


def _tgi_arguments(deployment: Deployment, reach: Reach) -> tuple[str, ...]:
    own: dict[str, ArgumentValue] = {"hostname": reach.host, "port": reach.port}
    if reach.shard_uds_path is not None:
        own["shard_uds_path"] = reach.shard_uds_path
    if reach.master_port is not None and deployment.argument("master_port") is None:
        own["master_port"] = reach.master_port
    known = {spec.name for spec in arguments_of(deployment.tgi_version)}
    arguments = [(a.name, a.value) for a in deployment.arguments if a.name not in own]
    arguments.extend((name, value) for name, value in own.items() if name in known)
    return command_line(deployment.tgi_version, deployment.model, arguments)


def _model_words(spec: EngineSpec, model: str, in_image: bool) -> tuple[str, ...]:
    flag = spec.image_model_flag if in_image else spec.model_flag
    if spec.hub_model_flag is not None and not _PATH.fullmatch(model):
        flag = spec.hub_model_flag
    return (flag, model) if flag else (model,)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _words(arguments: Sequence[tuple[str, ArgumentValue]]) -> tuple[str, ...]:
    """True is a bare flag; None and False are not passed."""
    words: list[str] = []
    for flag, value in arguments:
        match value:
            case None | False:
                continue
            case True:
                words.append(flag)
            case _:
                text = str(value) if isinstance(value, str) else shown(value)
                # A separate word that starts with a dash would be read as another flag.
                words += [f"{flag}={text}"] if text.startswith("-") else [flag, text]
    return tuple(words)

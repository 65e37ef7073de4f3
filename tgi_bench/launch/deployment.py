"""One server of an experiment: its launcher, version, arguments and id, and its command line."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256

from tgi_bench.engines.argument_values import command_line
from tgi_bench.engines.arguments import ArgumentValue, arguments_of
from tgi_bench.engines.engine import Engine, EngineSpec, engine_spec
from tgi_bench.launch.launcher import Launcher
from tgi_bench.words import shown

MODEL_SERVED = "Model served"
"""The detail of a start's ServerFacts that names the model as a running server said it."""

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,40}", re.ASCII)
_LOOKS_OTHERWISE = re.compile(r"none|null|true|false|[0-9.]+(e[-0-9]+)?", re.ASCII | re.IGNORECASE)
_MOST = 120


@dataclass(frozen=True, slots=True)
class LauncherArgument:
    """One argument of the server's program as requested: snake_case name and value."""

    name: str
    value: ArgumentValue
    variable: bool
    """True where the experiment varies it, False where it is constant."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds that each phase of a start may take.

    pull_s: the image. download_s: the model's weights. load_s: everything else up to /health.
    probe_s: from /health to the first generated token.
    """

    pull_s: float
    download_s: float
    load_s: float
    probe_s: float


@dataclass(frozen=True, slots=True)
class Deployment:
    """One server: a launcher, a version and one combination of launcher arguments.

    deployment_id: the variable arguments, fit for a file name ("num_shard-2+quantize-none");
        "default" where nothing varies.
    tgi_version: "0.9.4"; from the image's tag or the experiment's `version`. Of another engine
        its own version as these say it; "" where they do not.
    version_assumed: True where neither said it and the newest known version was taken.
    arguments: constant ones first, then variable ones, each in the experiment's order; a
        variable argument whose value is None is kept (it is passed as "not given").
    accelerator: what the experiment says, or is taken to say, that it is estimated for.
    env: names of environment variables that are handed on to the server.
    """

    deployment_id: str
    launcher: Launcher
    model: str
    image: str | None
    tgi_version: str
    version_assumed: bool
    arguments: tuple[LauncherArgument, ...]
    accelerator: str
    engine: Engine
    env: tuple[str, ...]
    timeouts: Timeouts

    @property
    def fields(self) -> dict[str, object]:
        """All of it as JSON has it, for digests."""
        keys = self.launcher.keys.model_dump(mode="json")
        return {**asdict(self), "launcher": self.launcher.name, "keys": keys}

    @property
    def simulated(self) -> bool:
        """Whether an estimate stands in for hardware."""
        return self.launcher.simulates

    @property
    def planned_accelerator(self) -> str | None:
        """What the experiment says the estimate is of; None where the embedded server runs the
        model itself, on a device that this machine has and the experiment does not name."""
        return self.accelerator if self.launcher.own_device is None else None

    def argument(self, name: str) -> ArgumentValue:
        """The requested value of one launcher argument; None where it was not given."""
        return next((a.value for a in self.arguments if a.name == name), None)

    @property
    def num_shard(self) -> int:
        """The tensor-parallel degree; 1 where it was not given."""
        name = engine_spec(self.engine).shard_argument
        value = self.argument(name) if name is not None else None
        return value if isinstance(value, int) else 1

    @property
    def quantize(self) -> str | None:
        """The quantization; None where weights keep their dtype, or their file says it."""
        name = engine_spec(self.engine).quantize_argument
        value = self.argument(name) if name is not None else None
        return value if isinstance(value, str) else None


def deployment_id(variables: Sequence[tuple[str, ArgumentValue]]) -> str:
    """ "num_shard-2+quantize-none" of the variable arguments; "default" where there is none.

    A value that does not read back as itself gets six digits of its SHA-256, and so does an
    id longer than 120 characters.
    """
    if not variables:
        return "default"
    whole = "+".join(f"{name}-{_word(value)}" for name, value in variables)
    if len(whole) <= _MOST:
        return whole
    return f"{whole[: _MOST - 13]}~{_digits(list(map(list, variables)), 12)}"


def _word(value: ArgumentValue) -> str:
    if not isinstance(value, str):
        return "none" if value is None else shown(value).replace("+", "")
    if _PLAIN.fullmatch(value) and not _LOOKS_OTHERWISE.fullmatch(value):
        return value
    plain = re.sub(r"[^A-Za-z0-9._]+", "_", value)[:40].strip("._")
    return f"{plain}~{_digits(value, 6)}"


def _digits(value: object, count: int) -> str:
    return sha256(json.dumps(value).encode()).hexdigest()[:count]


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

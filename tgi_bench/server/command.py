"""`tgi-bench serve`: a launcher's command line to the embedded server's configuration."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tgi_bench.engines.argument_values import LauncherSettings, parse_command_line
from tgi_bench.engines.arguments import SettingValue, arguments_of
from tgi_bench.engines.printed import debug_form
from tgi_bench.engines.versions import NEWEST, is_known, parse_version, unknown_behaviour
from tgi_bench.errors import InputError
from tgi_bench.estimate.calibration import Choose, tgi_stack
from tgi_bench.estimate.setup import UNCALIBRATED, Constants
from tgi_bench.estimate.tables import accelerator, model_names, model_shape
from tgi_bench.server.config import EngineConfig, RouterLimits, ServerConfig
from tgi_bench.torch_engine.architecture import config_positions, named_positions
from tgi_bench.torch_engine.spec import DeviceChoice, ModelSpec, Weights, WeightType, require_extra

LOCAL = "127.0.0.1"
LISTEN = "TGI_BENCH_LISTEN"
"""The variable by which an image says where to listen; a container's 127.0.0.1 is its own."""
_MODEL_FLAG, _MODEL_VARIABLE = "--model-id", "MODEL_ID"
_UNNAMED_POSITIONS = 4096
"""Stands for a model's max_position_embeddings where newer launchers take their default of
max_total_tokens from it and it is not known: the simulated engine has no such limit."""

TRANSFORMERS = "transformers"
_ENGINES = ("simulated", TRANSFORMERS)
_QUANTIZED = {
    "bitsandbytes": WeightType.INT8,
    "bitsandbytes-nf4": WeightType.NF4,
    "bitsandbytes-fp4": WeightType.FP4,
}
_MASTER_PORT = 29500
"""The launcher's, where the version has no such argument."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What was typed. tgi_version: None is the newest known.

    device to layer_split: read by the engine `transformers`; accelerator, calibration (a file, or a
    published one's stack; None: uncalibrated) and visible_devices by `simulated`.
    """

    tgi_version: str | None
    engine: str
    accelerator: str
    device: str = "auto"
    random_weights: bool = False
    weights_seed: int = 0
    layer_split: bool = False
    calibration: str | None = None
    visible_devices: int = 1


def run(
    options: EngineOptions,
    arguments: Sequence[str],
    environ: Mapping[str, str],
    chooser: Callable[[str | None], Choose],
) -> int:
    """Serve until told to stop; returns the launcher's exit code.

    chooser: what a word for a calibration means.
    """
    from tgi_bench.server.launcher import run as run_server

    config = configuration(options, arguments, environ, chooser)
    _require_free(config.hostname, config.port)
    return run_server(config)


def _require_free(hostname: str, port: int) -> None:
    """Raise InputError where nothing can listen there; the server would say so after warming up."""
    try:
        socket.create_server((hostname, port), family=_family(hostname)).close()
    except OSError as error:
        raise InputError(
            f"cannot listen on {hostname}:{port}: {_why(error)}; "
            "choose another --port (0 is a free one) or --hostname"
        ) from None


def _why(error: OSError) -> str:
    """The system's words alone: Python's own name the address again."""
    if error.errno is None or isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    return os.strerror(error.errno)


def _family(hostname: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in hostname else socket.AF_INET


def configuration(
    options: EngineOptions,
    arguments: Sequence[str],
    environ: Mapping[str, str],
    chooser: Callable[[str | None], Choose],
) -> ServerConfig:
    """What the embedded server is told; raises InputError with one sentence."""
    if options.engine not in _ENGINES:
        raise InputError(f"--engine {options.engine}: unknown; allowed: {', '.join(_ENGINES)}")
    version = options.tgi_version or NEWEST
    parsed = parse_version(version)
    if not is_known(version):
        raise InputError(f"--tgi-version: {unknown_behaviour(version)}")
    # TGI listens on 0.0.0.0, and takes HOSTNAME, which shells set, for the address to bind.
    listen = environ.get(LISTEN, LOCAL)
    settings = parse_command_line(version, arguments, {**environ, "HOSTNAME": listen})
    reader = _Reader(settings)
    if options.engine == TRANSFORMERS:
        require_extra()
        _require_given(arguments, environ)
    else:
        accelerator(options.accelerator)
        _require_model(reader.text("model_id"), arguments, environ)
    return ServerConfig(
        tgi_version=(parsed[0], parsed[1], parsed[2]),
        hostname=reader.optional_text("hostname") or listen,
        port=reader.integer("port"),
        shard_uds_path=reader.text("shard_uds_path"),
        json_output=reader.flag("json_output"),
        api_key=reader.optional_text("api_key"),
        engine=_engine(options, reader, chooser),
        limits=_limits(reader, _positions(options, reader.text("model_id"))),
        printed_arguments=debug_form(version, settings),
    )


def _require_model(model: str, arguments: Sequence[str], environ: Mapping[str, str]) -> None:
    """Raise InputError for a model without figures; the launcher's default has none."""
    if _is_given(arguments, environ) or model in model_names():
        model_shape(model)
        return
    raise InputError(f"give {_MODEL_FLAG}; known: {', '.join(model_names())}")


def _require_given(arguments: Sequence[str], environ: Mapping[str, str]) -> None:
    """Raise InputError where no model is named: the launcher's default would be downloaded."""
    if not _is_given(arguments, environ):
        raise InputError(f"give {_MODEL_FLAG}: an id of the Hugging Face hub, or a folder")


def _is_given(arguments: Sequence[str], environ: Mapping[str, str]) -> bool:
    return _MODEL_VARIABLE in environ or any(
        word.partition("=")[0] == _MODEL_FLAG for word in arguments
    )


def _positions(options: EngineOptions, model: str) -> int:
    """Tokens that a sequence may have, where newer launchers take their defaults from it."""
    if options.engine != TRANSFORMERS:
        return _UNNAMED_POSITIONS
    folder = Path(model)
    file = folder if folder.is_file() else folder / "config.json"
    return named_positions(model) or config_positions(file) or _UNNAMED_POSITIONS


def _engine(
    options: EngineOptions, reader: _Reader, chooser: Callable[[str | None], Choose]
) -> EngineConfig:
    return EngineConfig(
        engine=options.engine,
        accelerator=options.accelerator,
        model_id=reader.text("model_id"),
        num_shard=reader.optional_integer("num_shard") or 1,
        quantize=reader.optional_text("quantize"),
        dtype=reader.optional_text("dtype"),
        memory_fraction=reader.number("cuda_memory_fraction", 1.0),
        constants=_constants(options, chooser),
        visible_devices=options.visible_devices,
        torch_model=_torch_model(options, reader) if options.engine == TRANSFORMERS else None,
        master_port=reader.optional_integer("master_port") or _MASTER_PORT,
    )


def _constants(options: EngineOptions, chooser: Callable[[str | None], Choose]) -> Constants:
    """Those of the calibration; raises InputError for an unknown one."""
    if options.calibration is None:
        return UNCALIBRATED
    stack = tgi_stack(options.tgi_version or NEWEST)
    calibration = chooser(options.calibration)(options.accelerator, stack)
    return UNCALIBRATED if calibration is None else calibration.constants


def _torch_model(options: EngineOptions, reader: _Reader) -> ModelSpec:
    return ModelSpec(
        model=reader.text("model_id"),
        weights=Weights(_weight_type(reader), options.random_weights, options.weights_seed),
        device=DeviceChoice(options.device),
        layer_split=options.layer_split,
        memory_fraction=reader.number("cuda_memory_fraction", 1.0),
        num_shard=reader.optional_integer("num_shard") or 1,
    )


def _weight_type(reader: _Reader) -> WeightType | None:
    """What --dtype and --quantize ask for; None: neither is given."""
    quantize, dtype = reader.optional_text("quantize"), reader.optional_text("dtype")
    if quantize is not None:
        if quantize not in _QUANTIZED:
            raise InputError(
                f"--quantize {quantize}: the transformers engine has {', '.join(_QUANTIZED)}"
            )
        return _QUANTIZED[quantize]
    return None if dtype is None else WeightType.from_text(dtype.replace("b-float", "bfloat"))


def _limits(reader: _Reader, positions: int) -> RouterLimits:
    input_given = reader.optional_integer("max_input_tokens") or reader.optional_integer(
        "max_input_length"
    )
    total = reader.optional_integer("max_total_tokens") or (max(positions, (input_given or 0) + 1))
    max_input = input_given or total - 1
    return RouterLimits(
        max_concurrent_requests=reader.integer("max_concurrent_requests"),
        max_best_of=reader.integer("max_best_of"),
        max_stop_sequences=reader.integer("max_stop_sequences"),
        max_top_n_tokens=reader.optional_integer("max_top_n_tokens") or 0,
        max_input_tokens=max_input,
        max_total_tokens=total,
        max_batch_prefill_tokens=(
            reader.optional_integer("max_batch_prefill_tokens") or max(positions, max_input)
        ),
        max_batch_total_tokens=reader.optional_integer("max_batch_total_tokens"),
        max_batch_size=reader.optional_integer("max_batch_size"),
        max_client_batch_size=reader.optional_integer("max_client_batch_size") or 4,
        waiting_served_ratio=reader.number("waiting_served_ratio", 1.2),
        max_waiting_tokens=reader.integer("max_waiting_tokens"),
        payload_limit_bytes=reader.optional_integer("payload_limit") or 2_000_000,
        validation_workers=reader.optional_integer("validation_workers") or 2,
        enable_prefill_logprobs=reader.flag("enable_prefill_logprobs"),
    )


class _Reader:
    """Typed access to settings; an argument that the version lacks reads as not given."""

    def __init__(self, settings: LauncherSettings) -> None:
        self._settings = settings
        self._known = {spec.name for spec in arguments_of(settings.version)}

    def _value(self, name: str) -> SettingValue:
        return self._settings.value(name) if name in self._known else None

    def optional_text(self, name: str) -> str | None:
        value = self._value(name)
        return value if isinstance(value, str) else None

    def text(self, name: str) -> str:
        value = self.optional_text(name)
        if value is None:
            raise InputError(f"--{name.replace('_', '-')} is needed")
        return value

    def optional_integer(self, name: str) -> int | None:
        value = self._value(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def integer(self, name: str) -> int:
        value = self.optional_integer(name)
        if value is None:
            raise InputError(f"--{name.replace('_', '-')} is needed")
        return value

    def number(self, name: str, default: float) -> float:
        value = self._value(name)
        return float(value) if isinstance(value, int | float) else default

    def flag(self, name: str) -> bool:
        return self._value(name) is True

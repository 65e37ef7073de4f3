"""The launcher `embedded`: the embedded server, started as its own process on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from tgi_bench.devices.take import SIMULATED, Take, own_devices
from tgi_bench.engines.engine import Engine, engine_spec
from tgi_bench.engines.versions import is_known, unknown_behaviour
from tgi_bench.errors import Problem
from tgi_bench.launch.launcher import (
    ASSUMED_ACCELERATOR,
    Launcher,
    LaunchOptions,
    RunningServer,
    ServerAsked,
)
from tgi_bench.launch.process import LOCALHOST, free_ports
from tgi_bench.sections.section import Section, Seed, Word, refused_value

if TYPE_CHECKING:
    from tgi_bench.launch.deployment import Deployment

_CALIBRATION_CHARACTERS = 500
_ALL_GPUS = 1 << 10
"""More than a machine has."""


def _calibration(value: object) -> object:
    """A published one's name holds spaces; neither it nor a path begins with `-`."""
    if isinstance(value, str) and (
        not 0 < len(value) <= _CALIBRATION_CHARACTERS
        or value.startswith("-")
        or value != value.strip()
        or not value.isprintable()
    ):
        raise refused_value("must be a published calibration's name or a file's path", value)
    return value


class EmbeddedKeys(Section):
    """What the embedded server computes with."""

    engine: Literal["simulated", "transformers"] = "simulated"
    """How steps are computed: `simulated` takes as long as the estimate says; `transformers`
    runs the model on this machine."""
    accelerator: Word = ASSUMED_ACCELERATOR
    """The accelerator whose time and memory the estimate takes, by the name in its table."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Read by the engine `transformers`: on what it runs; `auto` is CUDA where there is any."""
    random_weights: bool = False
    """Read by the engine `transformers`: draw the weights, which takes as long and reads none."""
    weights_seed: Seed = 0
    """Read by the engine `transformers`: seed of random weights; 0 is a seed."""
    layer_split: bool = False
    """Read by the engine `transformers`: lay whole layers on several CUDA devices, one after the
    other; num_shard divides every layer instead."""
    calibration: Annotated[
        str | None, BeforeValidator(_calibration, json_schema_input_type=str | None)
    ] = None
    """Fitted constants for the launcher `embedded`: the stack's name of a published calibration, or
    the path of a file of `tgi-bench calibrate`; uncalibrated by default."""
    visible_devices: Annotated[int, Field(ge=1, le=1024)] = 1
    """GPUs that the launcher `embedded` simulates seeing: with `num_shard` 1 a model that TGI does
    not shard by itself is split over all of them, its layers held in turn."""


_ENGINE_KEYS = {
    "simulated": ("accelerator", "calibration", "visible_devices"),
    "transformers": ("device", "random_weights", "weights_seed", "layer_split"),
}
"""Keys of `EmbeddedKeys` that only one engine of the launcher `embedded` reads."""


@dataclass(frozen=True)
class EmbeddedLauncher(Launcher):
    """The embedded server, with either of its engines."""

    name = "embedded"
    section = "embedded"
    Keys: ClassVar[type[Section]] = EmbeddedKeys

    keys: EmbeddedKeys

    def problems(self, asked: ServerAsked) -> Iterable[Problem]:
        """It behaves as TGI of a known version, by keys that its engine reads."""
        if asked.engine is not Engine.TGI:
            title = engine_spec(asked.engine).title
            message = f"the launcher `embedded` stands in for `tgi` only, not for {title}"
            yield Problem("server.engine", message)
            return
        if not is_known(asked.version):
            yield Problem(asked.version_key, unknown_behaviour(asked.version))
            return
        engine, given = self.keys.engine, self.keys.model_fields_set
        for other, names in _ENGINE_KEYS.items():
            for name in names:
                if other != engine and name in given:
                    message = f"is read by the engine `{other}` only, not `{engine}`"
                    yield Problem(f"server.embedded.{name}", message)

    def words(self, deployment: Deployment) -> str:
        """Its engine, and what that computes with."""
        keys = self.keys
        if keys.engine != "simulated":
            weights = ", random weights" if keys.random_weights else ""
            return f"({keys.engine}, device {keys.device}{weights})"
        how = f", calibration {keys.calibration}" if keys.calibration else ""
        how += f", {keys.visible_devices} visible devices" if keys.visible_devices > 1 else ""
        return f"({keys.engine}, {deployment.accelerator}{how})"

    def devices(self, deployment: Deployment, environ: Mapping[str, str]) -> Take | str:
        """This machine's, where the model itself runs."""
        if self.simulates:
            return SIMULATED
        if self.keys.device == "cpu":
            return own_devices(1, environ, cpu_only=True)
        return own_devices(_ALL_GPUS if self.keys.layer_split else deployment.num_shard, environ)

    def asked_device(self, deployment: Deployment) -> str | None:
        """The one that the engine `transformers` is told."""
        return None if self.own_device in (None, "auto") else self.own_device

    def require_startable(self, deployment: Deployment) -> None:
        """It is there with tgi-bench, and is handed nothing that must be set."""

    @contextmanager
    def launch(self, deployment: Deployment, options: LaunchOptions) -> Iterator[RunningServer]:
        """Starts the server, waits until it is ready, and ends it when the context is left.

        An experiment's `port`, `hostname` and `shard_uds_path` are not passed on: several sweeps
        share this machine, so each server gets a free port and a socket folder of its own.
        Raises LaunchError where it does not become ready.
        """
        from tgi_bench.launch.child import Program, running
        from tgi_bench.launch.left_behind import socket_folder

        with socket_folder() as stem:
            master_socket = stem.with_name(f"{stem.name}-0")
            program = Program(self.command(deployment, stem, free_ports(1)[0]), _url, master_socket)
            with running(deployment, options, program) as server:
                yield server

    def command(
        self, deployment: Deployment, stem: Path, master_port: int | None = None
    ) -> tuple[str, ...]:
        """The command line of one deployment; stem: of its sockets, "<stem>-<shard_rank>".

        master_port: where the ranks of the transformers engine meet.
        """
        from tgi_bench.launch.deployment import Reach, server_arguments

        port = None if self.simulates else master_port
        reach = Reach(LOCALHOST, 0, str(stem), port)
        return (
            *(sys.executable, "-m", "tgi_bench.cli.main", "serve"),
            *("--tgi-version", deployment.tgi_version, "--engine", self.keys.engine),
            *self._engine_words(deployment),
            *server_arguments(deployment, reach, in_image=False),
        )

    def _engine_words(self, deployment: Deployment) -> tuple[str, ...]:
        """The engine's own options, where they are not the defaults."""
        keys = self.keys
        if self.simulates:
            words = ["--accelerator", deployment.accelerator]
            if keys.calibration is not None:
                words += ["--calibration", keys.calibration]
            if keys.visible_devices > 1:
                words += ["--visible-devices", str(keys.visible_devices)]
            return tuple(words)
        words = ["--device", keys.device]
        if keys.random_weights:
            words += ["--random-weights", "--weights-seed", str(keys.weights_seed)]
        if keys.layer_split:
            words.append("--layer-split")
        return tuple(words)

    @property
    def simulates(self) -> bool:
        """Where its engine is `simulated`."""
        return self.keys.engine == "simulated"

    @property
    def own_device(self) -> str | None:
        """Of the engine `transformers`."""
        return None if self.simulates else self.keys.device

    @property
    def visible_devices(self) -> int | None:
        """As told; of layers that lie on several devices no number is known."""
        if self.simulates:
            return self.keys.visible_devices
        return None if self.keys.layer_split else 1

    @property
    def calibration(self) -> str | None:
        """As told."""
        return self.keys.calibration


def _url(lines: Sequence[str]) -> str | None:
    from tgi_bench.launch.log import listening_on

    address = listening_on(lines)
    return None if address is None else f"http://{address}"

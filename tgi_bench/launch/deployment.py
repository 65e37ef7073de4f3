"""One server of an experiment: its launcher, version and arguments, and its readable id."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256

from tgi_bench.engines.arguments import ArgumentValue
from tgi_bench.engines.engine import Engine, engine_spec
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

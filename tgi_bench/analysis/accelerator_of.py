"""Which row of the estimate's table the accelerator of a run is, and how that is known."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tgi_bench.analysis.run import DOUBTFUL, DeploymentRecord, Origin
from tgi_bench.observation import ServerFacts
from tgi_bench.plan.plan import ASSUMED_ACCELERATOR

Environment = Sequence[tuple[str, str]]
"""Of a run: names and values."""

_NAMES = (
    # What nvidia-smi says, the longer ones before those that they begin with.
    ("A100-SXM4-40GB", "A100-40GB-SXM"),
    ("A100-SXM4-80GB", "A100-80GB-SXM"),
    ("H200", "H200-SXM"),
    ("H100 PCIe", "H100-PCIe"),
    ("H100 80GB HBM3", "H100-SXM"),
    ("L40S", "L40S"),
    ("L40", "L40"),
    ("L4", "L4"),
    ("A10G", "A10G"),
    ("A10", "A10"),
    ("A40", "A40"),
    ("T4", "T4"),
    ("V100-SXM2", "V100-SXM2"),
    ("RTX 3090", "RTX-3090"),
    ("RTX 4090", "RTX-4090"),
    ("RTX A5000", "RTX-A5000"),
    ("RTX A6000", "RTX-A6000"),
    ("RTX 6000 Ada", "RTX-6000-Ada"),
)
_INFERRED = re.compile(r"(\d{1,4}) x ([\w-]+) .*\(inferred\)", re.ASCII)
_GPUS = "GPUs"
_INFO = "/info"
_SPLIT = DOUBTFUL + "num_shard 1"
"""The importer's note that num_shard 1 held the layers on all visible devices in turn."""


@dataclass(frozen=True, slots=True)
class NamedAccelerator:
    """row: of the table of accelerators. source: how it is known, in words.

    visible_devices: GPUs that a server of num_shard 1 spread a padded model over; None: as planned.
    named: False where nobody named it, and the one that experiments have by default was taken.
    """

    row: str
    source: str
    visible_devices: int | None = None
    named: bool = True


@dataclass(frozen=True, slots=True)
class NoDevice:
    """Why no row is known. nameable: whether a caller may name one: never that of a processor."""

    why: str
    nameable: bool = True


_UNNAMED = NoDevice("nothing names the accelerator")
_SAID_CPU = NoDevice(
    "the server says that it computes on a CPU, of which there is no estimate", False
)
_ON_CPU = NoDevice("the model ran on this machine's CPU, of which there is no estimate", False)


def row_of(text: str) -> str | None:
    """The row that a device's name, as its driver says it, is of; None for an unknown one."""
    for name, row in _NAMES:
        if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w]|-[A-Z])", text):
            return row
    return None


def published_row(text: str) -> str | None:
    """As `row_of`, of an accelerator as a published table names it.

    "A100 80GB" does not say whether it is the SXM or the PCIe module: SXM is taken.
    """
    return "A100-80GB-SXM" if text == "A100 80GB" else row_of(text)


def device_of(
    environment: Environment, origin: Origin, record: DeploymentRecord
) -> NamedAccelerator | NoDevice:
    """The accelerator of one deployment of a run, or why it is not known.

    What the server's start or the client's machine says goes before what the experiment says.
    """
    launcher, planned = record.deployment.launcher, record.deployment.accelerator
    if launcher.own_device is not None:
        return _own(environment, record, launcher.own_device)
    if launcher.simulates:
        return (
            NamedAccelerator(planned, "which the embedded server simulates")
            if planned
            else _UNNAMED
        )
    if origin is Origin.IMPORTED:
        return _inferred(dict(environment))
    if record.facts is not None and record.facts.simulated:
        return _UNNAMED  # it says that it simulates, and not what
    if record.facts is not None and "cpu" in said_devices(record.facts):
        return _SAID_CPU
    said = () if record.facts is None else record.facts.details
    texts = [text for name, text in said if name == _GPUS]
    if launcher.on_this_machine:
        texts += [text for name, text in environment if name == _GPUS]
    for text in texts:
        row = row_of(text)
        if row is not None:
            return NamedAccelerator(row, "as the driver names it")
    if not planned:
        return _UNNAMED
    if planned == ASSUMED_ACCELERATOR:
        source = "the default of server.embedded.accelerator; nothing else names it"
        return NamedAccelerator(planned, source, named=False)
    return NamedAccelerator(
        planned, "by the experiment's server.embedded.accelerator; nothing else names it"
    )


def said_devices(facts: ServerFacts) -> frozenset[str]:
    """The device types that a server and its ranks say they compute on: "cuda", "cpu"."""
    said = [facts.identity.device_type]
    said += [] if facts.shards is None else facts.shards.device_types
    return frozenset(device.lower() for device in said if device)


def said_info(facts: ServerFacts) -> dict[str, object]:
    """/info as it was at the start; {} where there was none, or it is redacted."""
    try:
        said = json.loads(dict(facts.details).get(_INFO, "null"))
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _own(
    environment: Environment, record: DeploymentRecord, device: str
) -> NamedAccelerator | NoDevice:
    """This machine's, on which the embedded server's engine `transformers` ran the model."""
    if (_device_type(record) or device) == "cpu":
        return _ON_CPU
    text = dict(environment).get(_GPUS, "")
    rows = {row_of(gpu) for gpu in text.split("; ")}
    row = rows.pop() if len(rows) == 1 else None
    if row is None:
        said = f"its GPUs are {text}" if text else "nothing names its GPUs"
        return NoDevice(
            f"the model ran on this machine, whose device is no row of the accelerators: {said}"
        )
    return NamedAccelerator(row, "as the driver names it")


def _device_type(record: DeploymentRecord) -> str | None:
    """ "cpu" or "cuda", as the server's /info said at its start; None where it did not."""
    info = {} if record.facts is None else said_info(record.facts)
    match info.get("model_device_type"):
        case str(name):
            return name
        case _:
            return None


def _inferred(environment: dict[str, str]) -> NamedAccelerator | NoDevice:
    """Of an imported report whose accelerator its importer inferred."""
    found = _INFERRED.match(_after_semicolon(environment.get(DOUBTFUL + "accelerator", "")))
    row = None if found is None else row_of(found[2])
    if found is None or row is None:
        return _UNNAMED
    visible = int(found[1]) if _SPLIT in environment else 1
    return NamedAccelerator(row, "inferred: the report does not name it", visible)


def _after_semicolon(text: str) -> str:
    return text.rpartition("; ")[2]

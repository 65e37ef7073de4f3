"""Which row of the estimate's table the accelerator of a run is, and how that is known."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tgi_bench.analysis.run import DeploymentRecord, Origin, Run
from tgi_bench.plan.plan import LauncherKind
from tgi_bench.report.imported_table import DOUBTFUL

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
_SPLIT = DOUBTFUL + "num_shard 1"
"""The importer's note that num_shard 1 held the layers on all visible devices in turn."""


@dataclass(frozen=True, slots=True)
class Device:
    """row: of the table of accelerators. source: how it is known, in words.

    visible_devices: GPUs that a server of num_shard 1 spread a padded model over; None: as planned.
    """

    row: str
    source: str
    visible_devices: int | None = None


def row_of(text: str) -> str | None:
    """The row that a device's name, as its driver says it, is of; None for an unknown one."""
    for name, row in _NAMES:
        if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w]|-[A-Z])", text):
            return row
    return None


def device_of(run: Run, record: DeploymentRecord) -> Device | None:
    """The accelerator of one deployment; None where nothing names one.

    What the server's start or the client's machine says goes before what the experiment says.
    """
    planned = record.deployment.embedded.accelerator
    if record.deployment.launcher is LauncherKind.EMBEDDED:
        return Device(planned, "which the embedded server simulates") if planned else None
    if run.origin is Origin.IMPORTED:
        return _inferred(dict(run.environment))
    if record.facts is not None and record.facts.simulated:
        return None  # it says that it simulates, and not what
    said = () if record.facts is None else record.facts.details
    texts = [text for name, text in said if name == _GPUS]
    if record.deployment.launcher is LauncherKind.PROCESS:
        texts += [text for name, text in run.environment if name == _GPUS]
    for text in texts:
        row = row_of(text)
        if row is not None:
            return Device(row, "as the driver names it")
    if not planned:
        return None
    return Device(planned, "by the experiment's server.embedded.accelerator; nothing else names it")


def _inferred(environment: dict[str, str]) -> Device | None:
    """Of an imported report whose accelerator its importer inferred."""
    found = _INFERRED.match(_after_semicolon(environment.get(DOUBTFUL + "accelerator", "")))
    row = None if found is None else row_of(found[2])
    if found is None or row is None:
        return None
    visible = int(found[1]) if _SPLIT in environment else 1
    return Device(row, "inferred: the report does not name it", visible)


def _after_semicolon(text: str) -> str:
    return text.rpartition("; ")[2]

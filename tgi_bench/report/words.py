"""Values to text: units are converted here and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tgi_bench.analysis.run import DeploymentRecord, Origin, Run
from tgi_bench.analysis.scaling import Setting
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.plan.engines import engine_spec
from tgi_bench.plan.plan import (
    ANY_MODEL,
    MODEL_SERVED,
    ArgumentValue,
    Deployment,
    Engine,
    LauncherKind,
)

UNDEFINED = "-"
NOT_KNOWN = "not known"
"""A fact of a server that ran already, which neither the experiment nor the server said."""

_ALLOCATION = re.compile(r".*?out of memory\. Tried to allocate [\d.]+ \w+")

_CELL_WORDS = {
    Outcome.OUT_OF_MEMORY: "OOM",
    Outcome.HOST_OUT_OF_MEMORY: "host OOM",
    Outcome.SKIPPED: "OOM",
    Outcome.SHARD_DIED: "shard died",
    Outcome.SERVER_DIED: "server died",
    Outcome.TIMEOUT: "timeout",
    Outcome.REFUSED: "refused",
    Outcome.LAUNCH_FAILED: "not started",
    Outcome.FAILED: "failed",
}
NOT_FINISHED = "not finished"


def cell_word(end: TrialEnd | None) -> str:
    """What stands in the cells of a trial without figures."""
    return NOT_FINISHED if end is None else _CELL_WORDS.get(end.outcome, UNDEFINED)


def outcome_of(word: str) -> Outcome | None:
    """The outcome that a cell's word stands for, as far as the cell says it."""
    return next((outcome for outcome, known in _CELL_WORDS.items() if known == word), None)


def short_reason(reason: str) -> str:
    """The reason on one line; of an out of memory in torch's words only what was allocated.

    "(simulated)" stays; the whole reason stands in the JSON document.
    """
    line = " ".join(reason.split())
    if (found := _ALLOCATION.match(line)) is None:
        return line
    return found[0] + (" (simulated)" if "(simulated)" in line[found.end() :] else "")


def milliseconds(ns: float | None) -> str:
    """ "139.82 ms"."""
    return UNDEFINED if ns is None else f"{ns / 1e6:.2f} ms"


def tokens_per_s(rate: float | None) -> str:
    """ "7324.00 tokens/s"."""
    return UNDEFINED if rate is None else f"{rate:.2f} tokens/s"


def argument(value: ArgumentValue) -> str:
    """A launcher argument's value as the published report writes one."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value}"'
        case _:
            return str(value)


def quantization(quantize: str | None) -> str:
    """ "No Quantization" or "Quantization: bitsandbytes"."""
    return "No Quantization" if quantize is None else f"Quantization: {quantize}"


def setting_heading(setting: Setting) -> str:
    """The quantization and every other value that the experiment varies."""
    return _heading(quantization(setting.quantize), setting.others)


def deployment_heading(deployment: Deployment) -> str:
    """As setting_heading, of a deployment by itself."""
    others = tuple(
        (a.name, a.value)
        for a in deployment.arguments
        if a.variable and a.name not in ("num_shard", "quantize")
    )
    quantized = quantization(deployment.quantize)
    if deployment.launcher is LauncherKind.ATTACH and deployment.quantize is None:
        quantized = f"Quantization {NOT_KNOWN}"
    return _heading(quantized, others)


def _heading(quantized: str, others: Sequence[tuple[str, ArgumentValue]]) -> str:
    values = (f"{name}: {argument(value)}" for name, value in others)
    return "; ".join((quantized, *values))


def gpus(num_shard: int | None) -> str:
    """ "1 GPU", "2 GPUs"; None: "num_shard not known"."""
    if num_shard is None:
        return f"num_shard {NOT_KNOWN}"
    return f"{num_shard} GPU" if num_shard == 1 else f"{num_shard} GPUs"


def known_num_shard(deployment: Deployment) -> int | None:
    """The tensor-parallel degree; None: nobody said it of a server that ran already."""
    stated = any(
        a.name == engine_spec(deployment.engine).shard_argument and a.value is not None
        for a in deployment.arguments
    )
    if deployment.launcher is LauncherKind.ATTACH and not stated:
        return None
    return deployment.num_shard


def known_engine(record: DeploymentRecord) -> Engine | None:
    """What serves; None: nobody said it of a server that ran already."""
    deployment = record.deployment
    silent = record.facts is None or record.facts.version is None
    if deployment.launcher is LauncherKind.ATTACH and deployment.engine is Engine.TGI and silent:
        return None
    return deployment.engine


def known_version(deployment: Deployment) -> str | None:
    """TGI's version as requested; None: nobody said it of a server that ran already."""
    attached = deployment.launcher is LauncherKind.ATTACH
    return None if attached and deployment.version_assumed else deployment.tgi_version


def num_shard(deployment: Deployment) -> str:
    """Of a deployment, for a table's cell."""
    known = known_num_shard(deployment)
    return NOT_KNOWN if known is None else str(known)


def num_shard_of(run: Run, num_shard: int) -> int | None:
    """Of a page of that num_shard: None where it is not known of any server of it."""
    of_page = [d for d in run.plan.deployments if d.num_shard == num_shard]
    return num_shard if any(known_num_shard(d) is not None for d in of_page) else None


def known_model(run: Run) -> str | None:
    """The experiment's model, or the one that a running server said; None where neither did."""
    if run.plan.model != ANY_MODEL:
        return run.plan.model
    for record in run.deployments:
        said = {} if record.facts is None else dict(record.facts.details)
        if (name := said.get(MODEL_SERVED)) is not None:
            return name
    return None


def model(run: Run) -> str:
    """As known_model, in words."""
    known = known_model(run)
    return f"model {NOT_KNOWN}" if known is None else known


def origin_line(run: Run) -> str:
    """Where the figures come from: the first thing that a reader sees."""
    match run.origin:
        case Origin.SIMULATED:
            if any(d.deployment.launcher is not LauncherKind.EMBEDDED for d in run.deployments):
                return (
                    "**Simulated.** The server says of itself that it simulates: an estimate made "
                    "the times, no GPU did."
                )
            engines = dict.fromkeys(d.deployment.embedded for d in run.deployments)
            said = " and ".join(f"`{e.engine}` engine as an {e.accelerator}" for e in engines)
            return (
                f"**Simulated.** The times come from the embedded server's {said}: an estimate "
                "made them, no GPU did."
            )
        case Origin.IMPORTED:
            embedded = (d.deployment.launcher for d in run.deployments)
            how = ", simulated" if LauncherKind.EMBEDDED in embedded else ""
            return (
                f"**Imported{how}.** The figures were read from a published report "
                f"({run.plan.experiment}); tgi-bench measured none of them."
            )
        case Origin.MEASURED if run.tasks:
            return (
                "**Measured** with transformers in processes of tgi-bench's own: no server, no "
                "network, no scheduler is in the figures."
            )
        case Origin.MEASURED:
            return "**Measured** on the servers described below."

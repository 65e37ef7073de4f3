"""Values to text: units are converted here and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tgi_bench.analysis.run import DeploymentRecord, Origin, Run
from tgi_bench.engines.engine import Engine, engine_spec
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.plan.plan import ANY_MODEL, MODEL_SERVED, ArgumentValue, Deployment

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


def outcome_words(end: TrialEnd | None) -> str:
    """ "ok", "out of memory", "not finished"."""
    return NOT_FINISHED if end is None else end.outcome.value.replace("_", " ")


def outcome_of(word: str) -> Outcome | None:
    """The outcome that a cell's word stands for, as far as the cell says it."""
    return next((outcome for outcome, known in _CELL_WORDS.items() if known == word), None)


def each(values: Iterable[object]) -> str:
    """Those that differ, in their order."""
    return ", ".join(dict.fromkeys(map(str, values))) or UNDEFINED


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


def deployment_heading(deployment: Deployment) -> str:
    """The quantization and every other value that the experiment varies."""
    others = tuple(
        (a.name, a.value)
        for a in deployment.arguments
        if a.variable and a.name not in ("num_shard", "quantize")
    )
    quantized = quantization(deployment.quantize)
    if deployment.launcher.said_by_server and deployment.quantize is None:
        quantized = f"Quantization {NOT_KNOWN}"
    return values_heading(quantized, others)


def values_heading(quantized: str, others: Sequence[tuple[str, ArgumentValue]]) -> str:
    """ "No Quantization; max_batch_size: 8"."""
    values = (f"{name}: {argument(value)}" for name, value in others)
    return "; ".join((quantized, *values))


def gpus(num_shard: int | None, device_type: str | None = None) -> str:
    """ "1 GPU", "2 GPUs", "cpu (num_shard 2)"; None: "num_shard not known".

    device_type: as the server says it; None: it does not.
    """
    if num_shard is None:
        return f"num_shard {NOT_KNOWN}"
    if device_type == "cpu":
        return f"{device_type} (num_shard {num_shard})"
    return f"{num_shard} GPU" if num_shard == 1 else f"{num_shard} GPUs"


def devices(run: Run, num_shard: int, unknown: str | None = None) -> str:
    """What the servers of a page of that num_shard compute on, in words.

    unknown: instead, where num_shard is not known of any of them.
    """
    of_page = [record for record in run.deployments if record.num_shard == num_shard]
    if all(known_num_shard(record) is None for record in of_page):
        return gpus(None) if unknown is None else unknown
    types = {None if r.facts is None else r.facts.device_type for r in of_page}
    return gpus(num_shard, types.pop() if len(types) == 1 else None)


def known_num_shard(record: DeploymentRecord) -> int | None:
    """The tensor-parallel degree; None: nobody said it of a server that ran already."""
    if record.ranks is not None:
        return record.ranks
    deployment = record.deployment
    stated = any(
        a.name == engine_spec(deployment.engine).shard_argument and a.value is not None
        for a in deployment.arguments
    )
    if deployment.launcher.said_by_server and not stated:
        return None
    return deployment.num_shard


def known_engine(record: DeploymentRecord) -> str | None:
    """What serves, as it says itself, else as it was asked for; None: nobody said it of a server
    that ran already."""
    deployment, facts = record.deployment, record.facts
    if facts is not None and facts.identity.engine is not None:
        return facts.identity.engine
    silent = facts is None or facts.version is None
    if deployment.launcher.said_by_server and deployment.engine is Engine.TGI and silent:
        return None
    return deployment.engine.value


def known_version(deployment: Deployment) -> str | None:
    """TGI's version as requested; None: nobody said it of a server that ran already."""
    unsaid = deployment.launcher.said_by_server and deployment.version_assumed
    return None if unsaid else deployment.tgi_version


def num_shard(record: DeploymentRecord) -> str:
    """Of a deployment, for a table's cell."""
    known = known_num_shard(record)
    return NOT_KNOWN if known is None else str(known)


def said_model(record: DeploymentRecord) -> str | None:
    """The model that its server says it serves, the first of several; None: it says none."""
    if record.facts is None:
        return None
    if record.facts.identity.models:
        return record.facts.identity.models[0]
    return dict(record.facts.details).get(MODEL_SERVED)


def known_model(run: Run) -> str | None:
    """The experiment's model, or the one that a running server said; None where neither did."""
    if run.plan.model != ANY_MODEL:
        return run.plan.model
    return next((name for r in run.deployments if (name := said_model(r)) is not None), None)


def model(run: Run) -> str:
    """As known_model, in words."""
    known = known_model(run)
    return f"model {NOT_KNOWN}" if known is None else known


def origin_line(run: Run) -> str:
    """Where the figures come from: the first thing that a reader sees."""
    match run.origin:
        case Origin.SIMULATED:
            if not all(d.deployment.simulated for d in run.deployments):
                return (
                    "**Simulated.** The server says of itself that it simulates: an estimate made "
                    "the times, no GPU did."
                )
            said = " and ".join(
                f"`simulated` engine as an {accelerator}"
                for accelerator in dict.fromkeys(d.deployment.accelerator for d in run.deployments)
            )
            return (
                f"**Simulated.** The times come from the embedded server's {said}: an estimate "
                "made them, no GPU did."
            )
        case Origin.IMPORTED:
            how = ", simulated" if any(d.deployment.simulated for d in run.deployments) else ""
            return (
                f"**Imported{how}.** The figures were read from a published report "
                f"({run.plan.experiment}); tgi-bench measured none of them."
            )
        case Origin.MEASURED if not run.deployments:
            return (
                "**Measured** with transformers in processes of tgi-bench's own: no server, no "
                "network, no scheduler is in the figures."
            )
        case Origin.MEASURED:
            return "**Measured** on the servers described below."

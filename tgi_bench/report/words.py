"""Values to text: units are converted here and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tgi_bench.analysis.run import Origin, Run
from tgi_bench.analysis.scaling import Setting
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.plan.plan import ArgumentValue, Deployment, LauncherKind

UNDEFINED = "-"

_ALLOCATION = re.compile(r".*?out of memory\. Tried to allocate [\d.]+ \w+")

_CELL_WORDS = {
    Outcome.OUT_OF_MEMORY: "OOM",
    Outcome.SKIPPED: "OOM",
    Outcome.SHARD_DIED: "shard died",
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
    return _heading(setting.quantize, setting.others)


def deployment_heading(deployment: Deployment) -> str:
    """As setting_heading, of a deployment by itself."""
    others = tuple(
        (a.name, a.value)
        for a in deployment.arguments
        if a.variable and a.name not in ("num_shard", "quantize")
    )
    return _heading(deployment.quantize, others)


def _heading(quantize: str | None, others: Sequence[tuple[str, ArgumentValue]]) -> str:
    values = (f"{name}: {argument(value)}" for name, value in others)
    return "; ".join((quantization(quantize), *values))


def gpus(num_shard: int) -> str:
    """ "1 GPU", "2 GPUs"."""
    return f"{num_shard} GPU" if num_shard == 1 else f"{num_shard} GPUs"


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

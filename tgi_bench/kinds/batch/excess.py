"""How much longer the steps of a simulated run took than the estimate that its ranks slept for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from tgi_bench.analysis.planned import planned_setup
from tgi_bench.analysis.run import Origin, Run
from tgi_bench.engines.engine import Engine
from tgi_bench.errors import InputError
from tgi_bench.estimate.calibration import Calibration
from tgi_bench.estimate.setup import Setup
from tgi_bench.estimate.step_time import mean_decode_s, prefill_time
from tgi_bench.kinds.batch.compared import simulated_with
from tgi_bench.kinds.batch.metrics import TrialSummary
from tgi_bench.kinds.batch.scaling import usable
from tgi_bench.plan.plan import Deployment

CPU_CORES = "CPU cores"
"""The name in a run's environment of how many cores its client could use: "2 of 8"."""

MOST_CLIENT_SHARE = 0.20
CLIENT_SHARE = f"client and transport take at most {MOST_CLIENT_SHARE:.0%} of a step"
"""The check that fails where simulated ranks take the client's cores."""


@dataclass(frozen=True, slots=True)
class Excess:
    """One trial's mean step latency over its estimate, less 1; decode is None without a step."""

    prefill: float
    decode: float | None


def excesses(run: Run) -> tuple[Excess, ...]:
    """Of each trial with figures whose server computed with an estimate that can be made here."""
    servers = {d.deployment.deployment_id: d for d in run.deployments}
    found: list[Excess] = []
    for summary in usable(run.of(TrialSummary)):
        record = servers[summary.trial.deployment_id]
        if record.facts is None or not record.facts.simulated:
            continue
        setup = _setup(record.deployment, simulated_with(run))
        if setup is not None and (excess := _excess(setup, summary)) is not None:
            found.append(excess)
    return tuple(found)


def _setup(deployment: Deployment, calibration: Calibration | None) -> Setup | None:
    """What the embedded server estimates with; None where that is not known."""
    if not deployment.simulated or deployment.engine is not Engine.TGI:
        return None
    try:
        setup = planned_setup(deployment).setup
    except InputError:
        return None
    return setup if calibration is None else calibration.applied(setup)


def _excess(setup: Setup, summary: TrialSummary) -> Excess | None:
    trial, prefill, decode = summary.trial, summary.prefill, summary.decode_token
    if prefill is None:
        return None
    batch, prompt = trial.batch_size, trial.sequence_length
    prefill_ns = prefill_time(setup, batch, prompt).total_s * 1e9
    decoding = None
    if decode is not None and trial.decode_length > 1:
        mean_s = mean_decode_s(setup, batch, prompt, trial.decode_length)
        decoding = decode.latency.mean / (mean_s * 1e9) - 1
    return Excess(prefill.latency.mean / prefill_ns - 1, decoding)


def excess_sentences(run: Run) -> str:
    """A paragraph with the excess of decode and prefill steps; empty where none is known."""
    if run.origin is not Origin.SIMULATED:
        return ""
    known = excesses(run)
    sentences = (
        *_sentence("Decode steps", [e.decode for e in known if e.decode is not None]),
        *_sentence("Prefill steps", [e.prefill for e in known]),
    )
    if not sentences:
        return ""
    if all(e.prefill <= 0 and (e.decode or 0) <= 0 for e in known):
        return f"\n{' '.join(sentences)}\n"
    cause = "What is longer is the client, the transport and this machine's cores"
    shared = ranks_and_cores(run)
    cause += "." if shared is None else f": {shared}."
    return f"\n{' '.join((*sentences, cause))}\n"


def _sentence(steps: str, values: list[float]) -> Iterator[str]:
    """Nothing for no values."""
    if values:
        middle = median(values)
        than = "longer" if middle >= 0 else "less"
        trials = f"{len(values)} trial{'' if len(values) == 1 else 's'}"
        yield (
            f"{steps} took {abs(middle):.1%} {than} than the estimate "
            f"(median over {trials}; at most {max(values):.1%})."
        )


def ranks_and_cores(run: Run) -> str | None:
    """ "2 simulated ranks share this machine's 2 cores": of the largest deployment.

    None where the run is not simulated, or its environment names no cores.
    """
    cores = dict(run.environment).get(CPU_CORES, "").partition(" ")[0]
    embedded = [d.deployment.num_shard for d in run.deployments if d.deployment.simulated]
    if run.origin is not Origin.SIMULATED or not embedded or not cores.isdigit():
        return None
    ranks = max(embedded)
    what = "1 simulated rank runs on" if ranks == 1 else f"up to {ranks} simulated ranks share"
    return f"{what} this machine's {cores} core{'' if cores == '1' else 's'}"

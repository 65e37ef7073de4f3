"""What the estimate says of the trials of a plan, and how long its loads take."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2
from typing import TYPE_CHECKING

from tgi_bench.errors import InputError
from tgi_bench.plan.lengths import mean_tokens
from tgi_bench.plan.load_trial import ClosedLoop, Find, LoadTrial, OpenLoop
from tgi_bench.plan.plan import (
    ANY_MODEL,
    BatchTrial,
    Deployment,
    Engine,
    LauncherKind,
    Plan,
    SimulatedOptions,
)

if TYPE_CHECKING:
    # A load of a duration waits for none of it: each function imports what it computes with.
    from tgi_bench.estimate.calibration import Calibration
    from tgi_bench.estimate.setup import Setup

MEMORY = "memory"
KV_POOL = "KV pool"
"""The pool is too small, or what it leaves is too little for the prefill step's tensors."""

_BLOCK_TOKENS = 16  # of paged attention
_PREFILL_TOKENS = 4096  # the launcher's default of max_batch_prefill_tokens, or its usual choice


@dataclass(frozen=True, slots=True)
class TrialTimes:
    """prefill_s, decode_s: one step of each; the decode figures are None where there is no step.

    total_s: all warm-ups and runs; what a trial that does not fit would take if it did.
    """

    prefill_s: float
    prefill_bound: str
    decode_s: float | None
    decode_bound: str | None
    total_s: float


@dataclass(frozen=True, slots=True)
class TrialEstimate:
    """One trial on the accelerator that the experiment names.

    times: uncalibrated. calibrated: None where there is no calibration for it.
    bytes_per_device: at the step that needs most, a KV pool's unused part left out.
    obstacle: why it does not fit; empty where it does.
    """

    times: TrialTimes
    calibrated: TrialTimes | None
    bytes_per_device: float
    obstacle: str

    @property
    def total_s(self) -> float:
        """The calibrated one where there is one."""
        return (self.calibrated or self.times).total_s

    @property
    def fits(self) -> bool:
        """Whether the server can run it."""
        return not self.obstacle


def setup_of(deployment: Deployment) -> Setup:
    """What is estimated for a deployment, uncalibrated.

    InputError for an unknown model, accelerator or calibration.
    """
    from tgi_bench.analysis.setups import planned_setup

    return planned_setup(deployment).setup


def calibration_of(deployment: Deployment) -> Calibration | None:
    """The one that its embedded server computes with; else the published one of its stack.

    None where there is none, and for an embedded server that is to compute without.
    InputError for an unknown one, or a file that cannot be read.
    """
    from tgi_bench.analysis.setups import stack_name
    from tgi_bench.cli.calibration_choice import chooser

    word = None
    if deployment.launcher is LauncherKind.EMBEDDED:
        host = deployment.host
        word = host.calibration if isinstance(host, SimulatedOptions) else None
        if word is None:
            return None
    planned = deployment.planned_accelerator
    return None if planned is None else chooser(word)(planned, stack_name(deployment))


@dataclass(frozen=True, slots=True)
class _Server:
    """A deployment with what is computed once for all of its trials."""

    deployment: Deployment
    setup: Setup
    calibration: Calibration | None


def _estimate(server: _Server, trial: BatchTrial) -> TrialEstimate:
    from tgi_bench.estimate.memory import prefill_memory

    setup, calibration = server.setup, server.calibration
    batch, prompt, new = trial.batch_size, trial.sequence_length, trial.decode_length
    need = prefill_memory(setup, batch, prompt, new)
    return TrialEstimate(
        times=_times(setup, trial),
        calibrated=None if calibration is None else _times(calibration.applied(setup), trial),
        bytes_per_device=need.total_bytes,
        obstacle=_obstacle(server.deployment, setup, trial),
    )


def _times(setup: Setup, trial: BatchTrial) -> TrialTimes:
    from tgi_bench.estimate.step_time import decode_time, generate_s, prefill_time

    batch, prompt, new = trial.batch_size, trial.sequence_length, trial.decode_length
    prefill = prefill_time(setup, batch, prompt)
    decode = decode_time(setup, batch, prompt + new - 1) if new > 1 else None
    return TrialTimes(
        prefill_s=prefill.total_s,
        prefill_bound=prefill.bound,
        decode_s=None if decode is None else decode.total_s,
        decode_bound=None if decode is None else decode.bound,
        total_s=(trial.warmups + trial.runs) * generate_s(setup, batch, prompt, new),
    )


def _obstacle(deployment: Deployment, setup: Setup, trial: BatchTrial) -> str:
    from tgi_bench.estimate import memory
    from tgi_bench.plan.launcher_args import parse_version
    from tgi_bench.server.behaviour import Behaviour

    batch, prompt, new = trial.batch_size, trial.sequence_length, trial.decode_length
    if not memory.fits(setup, memory.prefill_memory(setup, batch, prompt, new)):
        return MEMORY
    if deployment.engine is not Engine.TGI:
        return ""
    behaviour = Behaviour(parse_version(deployment.tgi_version))
    if setup.model.padded or not behaviour.has_kv_pool:
        return ""
    fraction = deployment.argument("cuda_memory_fraction")
    share = float(fraction) if isinstance(fraction, int | float) else 1.0
    warmed = deployment.argument("max_batch_prefill_tokens")
    pool = memory.kv_capacity_tokens(
        setup, share, warmed if isinstance(warmed, int) else _PREFILL_TOKENS
    )
    taken = memory.beside_pool_bytes(
        setup, memory.prefill_step_memory(setup, batch, prompt), pool or 0
    )
    roomy = pool is not None and trial.kv_tokens(_BLOCK_TOKENS) <= pool
    return "" if roomy and taken <= share * setup.accelerator.usable_bytes else KV_POOL


def estimates(plan: Plan) -> dict[str, TrialEstimate]:
    """By trial_id, for each trial that can be estimated; others are left out."""
    servers: dict[str, _Server] = {}
    for deployment in plan.deployments:
        try:
            servers[deployment.deployment_id] = _Server(
                deployment, setup_of(deployment), calibration_of(deployment)
            )
        except InputError:
            continue  # a model or accelerator outside the table: `plan` says which
    known: dict[str, TrialEstimate] = {}
    for trial in plan.trials:
        if trial.deployment_id in servers:
            try:
                known[trial.trial_id] = _estimate(servers[trial.deployment_id], trial)
            except InputError:
                continue  # sizes beyond what is estimated
    return known


def calibration_sentences(plan: Plan) -> tuple[str, ...]:
    """Where the calibrated figures come from, and where constants are another stack's."""
    from tgi_bench.analysis.setups import stack_name
    from tgi_bench.estimate.calibration import provenance

    sentences: dict[str, None] = {}
    for deployment in plan.deployments:
        try:
            calibration = calibration_of(deployment)
        except InputError:
            continue  # `why_unknown` says it
        accelerator = deployment.planned_accelerator
        if calibration is None or accelerator is None:
            continue
        sentences[provenance(calibration)] = None
        strange = calibration.strangeness(accelerator, stack_name(deployment))
        if strange is not None:
            sentences[f"NOT OF THIS STACK: {strange}."] = None
    return tuple(sentences)


@dataclass(frozen=True, slots=True)
class LoadTime:
    """How long one load takes. at_most: a search or `until` may end it before that."""

    total_s: float
    at_most: bool


def load_times(plan: Plan) -> dict[str, LoadTime]:
    """By trial_id, for each load whose length the plan tells; others are left out.

    Warm-up and cool-down are in it; the last answers, which may come after its end, are not.
    """
    known: dict[str, LoadTime] = {}
    for trial in plan.load_trials:
        seconds = _load_seconds(plan.deployment(trial.deployment_id), trial)
        if seconds is not None:
            stages = 1 if trial.find is None else most_stages(trial.find)
            early = trial.find is not None or trial.extent.until is not None
            known[trial.trial_id] = LoadTime(seconds * stages, early)
    return known


def most_stages(find: Find) -> int:
    """Loads of a search at most: start is doubled up to highest, or halved down to lowest, and
    the bracket [x, 2 x] halved until it is the tolerance of its value; each value `repeats` times.
    """
    outward = max(find.highest / find.start, find.start / find.lowest)
    values = 1 + ceil(log2(outward)) + ceil(log2(1 / find.tolerance))
    return values * find.repeats


def _load_seconds(deployment: Deployment, trial: LoadTrial) -> float | None:
    """One stage of a load: its times, or its requests at their rate; the sooner of the two."""
    extent = trial.extent
    timed = counted = None
    if extent.duration_ns is not None:
        timed = (extent.warmup_ns + extent.duration_ns + extent.cooldown_ns) / 1e9
    if extent.requests is not None:
        requests = extent.warmup_requests + extent.requests + extent.cooldown_requests
        counted = _seconds_of(requests, deployment, trial)
        if counted is not None:
            counted += (extent.warmup_ns + extent.cooldown_ns) / 1e9
    if timed is None or counted is None:
        return timed if counted is None else counted
    return min(timed, counted)


def _seconds_of(requests: int, deployment: Deployment, trial: LoadTrial) -> float | None:
    """So many requests: at an open loop's rate, or in a closed loop of estimated batches."""
    match trial.arrivals:
        case OpenLoop(rate_per_s=float(rate)):
            return requests / rate
        case ClosedLoop(concurrency):
            prompt, output = trial.workload.prompt, trial.workload.output
            if prompt is None or output is None or deployment.model == ANY_MODEL:
                return None
            from tgi_bench.estimate.step_time import generate_s

            sizes = (round(mean_tokens(prompt)), round(mean_tokens(output)))
            try:
                setup = setup_of(deployment)
            except InputError:
                return None  # a model or accelerator outside the table: `plan` says which
            return ceil(requests / concurrency) * generate_s(setup, concurrency, *sizes)
        case _:
            return None


def why_unknown(plan: Plan) -> tuple[tuple[str, bool], ...]:
    """Each reason why trials have no estimate, once, and whether it is the simulated engine's.

    That one computes by the estimate: it cannot start without.
    """
    reasons: dict[tuple[str, bool], None] = {}
    for deployment in plan.deployments:
        try:
            setup_of(deployment)
            calibration_of(deployment)
        except InputError as error:
            reasons[str(error), deployment.simulated] = None
    return tuple(reasons)


def require_for_embedded(plan: Plan) -> None:
    """Raise InputError where the embedded server could not compute a deployment."""
    for deployment in plan.deployments:
        if deployment.simulated:
            setup_of(deployment)
            calibration_of(deployment)
        elif deployment.launcher is LauncherKind.EMBEDDED:
            from tgi_bench.torch_engine.extra import require_extra

            require_extra()

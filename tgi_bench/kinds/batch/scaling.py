"""How a deployment's figures change with num_shard and with the batch size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tgi_bench.kinds.batch.metrics import StepFigures, TrialSummary
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.plan.plan import ArgumentValue, BatchTrial, Deployment, Plan


@dataclass(frozen=True, slots=True)
class Setting:
    """What two trials must share to be compared over num_shard and batch size.

    quantize: None where weights keep their dtype. others: (name, value) of every other
    argument that the experiment varies, and decode_length where it varies.
    """

    quantize: str | None
    others: tuple[tuple[str, ArgumentValue], ...]
    sequence_length: int


@dataclass(frozen=True, slots=True)
class ScalingPoint:
    """One step at one num_shard against the smallest num_shard that has a figure for it.

    step: "prefill" or "decode_token". latency_ns: the mean. speed_up = latency at the
    smallest / latency here. efficiency = speed_up x smallest / num_shard.
    """

    setting: Setting
    step: str
    batch_size: int
    num_shard: int
    latency_ns: float
    speed_up: float
    efficiency: float


@dataclass(frozen=True, slots=True)
class BestBatch:
    """The batch size with the highest decode throughput of one deployment and setting.

    slower_above: True where a larger one has figures too, which are not better.
    next_above: the end of the next larger batch size where none above has figures; None where
    no larger one was asked, and where that one is not finished (then unfinished_above).
    """

    setting: Setting
    trial_id: str
    deployment_id: str
    batch_size: int
    tokens_per_s: float
    step_latency_ns: float
    slower_above: bool
    next_above: TrialEnd | None
    unfinished_above: bool


def settings(plan: Plan) -> dict[str, Setting]:
    """The setting of every trial of the plan, by trial id."""
    servers = {d.deployment_id: d for d in plan.deployments}
    lengths_vary = len({t.decode_length for t in plan.trials}) > 1
    return {t.trial_id: _setting(t, servers[t.deployment_id], lengths_vary) for t in plan.trials}


def _setting(trial: BatchTrial, deployment: Deployment, lengths_vary: bool) -> Setting:
    others = tuple(
        (a.name, a.value)
        for a in deployment.arguments
        if a.variable and a.name not in ("num_shard", "quantize")
    )
    if lengths_vary:
        others = (*others, ("decode_length", trial.decode_length))
    return Setting(deployment.quantize, others, trial.sequence_length)


def has_figures(trial: TrialSummary) -> bool:
    """Whether its figures are shown: it ended OK with at least one run."""
    return trial.end is not None and trial.end.outcome is Outcome.OK and trial.runs > 0


def usable(trials: Iterable[TrialSummary]) -> tuple[TrialSummary, ...]:
    """The trials that have figures."""
    return tuple(t for t in trials if has_figures(t))


def scaling(plan: Plan, trials: Sequence[TrialSummary]) -> tuple[ScalingPoint, ...]:
    """Every point that shares setting, step and batch size with one at another num_shard.

    In the plan's order of settings, then step, batch size, num_shard.
    """
    shared = settings(plan)
    servers = {d.deployment_id: d for d in plan.deployments}
    groups: dict[tuple[Setting, str, int], dict[int, float]] = {}
    for summary in usable(trials):
        num_shard = servers[summary.trial.deployment_id].num_shard
        for step, figures in _steps(summary):
            key = (shared[summary.trial.trial_id], step, summary.trial.batch_size)
            groups.setdefault(key, {})[num_shard] = figures.latency.mean
    order = {key[0]: i for i, key in reversed(list(enumerate(groups)))}
    steps = ("prefill", "decode_token")
    keys = sorted(groups, key=lambda k: (order[k[0]], steps.index(k[1]), k[2]))
    return tuple(p for key in keys if len(groups[key]) > 1 for p in _points(key, groups[key]))


def best_batches(plan: Plan, trials: Sequence[TrialSummary]) -> tuple[BestBatch, ...]:
    """One for each deployment and setting that has a decode throughput, in the plan's order."""
    shared = settings(plan)
    servers = {d.deployment_id: d for d in plan.deployments}
    groups: dict[tuple[str, Setting], list[BestBatch]] = {}
    for summary in usable(trials):
        server, chosen = servers[summary.trial.deployment_id], shared[summary.trial.trial_id]
        if (candidate := _candidate(chosen, summary)) is not None:
            groups.setdefault((server.deployment_id, chosen), []).append(candidate)
    asked: dict[tuple[str, Setting], list[TrialSummary]] = {}
    for summary in trials:
        place = (summary.trial.deployment_id, shared[summary.trial.trial_id])
        asked.setdefault(place, []).append(summary)
    return tuple(_best(group, asked[place]) for place, group in groups.items())


def _steps(summary: TrialSummary) -> Iterable[tuple[str, StepFigures]]:
    if summary.prefill is not None and summary.prefill.latency.mean > 0:
        yield "prefill", summary.prefill
    if summary.decode_token is not None and summary.decode_token.latency.mean > 0:
        yield "decode_token", summary.decode_token


def _points(key: tuple[Setting, str, int], latency_ns: dict[int, float]) -> Iterable[ScalingPoint]:
    smallest = min(latency_ns)
    for num_shard in sorted(latency_ns):
        speed_up = latency_ns[smallest] / latency_ns[num_shard]
        yield ScalingPoint(
            setting=key[0],
            step=key[1],
            batch_size=key[2],
            num_shard=num_shard,
            latency_ns=latency_ns[num_shard],
            speed_up=speed_up,
            efficiency=speed_up * smallest / num_shard,
        )


def _candidate(shared: Setting, summary: TrialSummary) -> BestBatch | None:
    """The trial as the best one; None where it has no decode throughput."""
    total, token = summary.decode_total, summary.decode_token
    if total is None or total.throughput is None or token is None:
        return None
    return BestBatch(
        setting=shared,
        trial_id=summary.trial.trial_id,
        deployment_id=summary.trial.deployment_id,
        batch_size=summary.trial.batch_size,
        tokens_per_s=total.throughput.mean,
        step_latency_ns=token.latency.mean,
        slower_above=False,
        next_above=None,
        unfinished_above=False,
    )


def _best(group: Sequence[BestBatch], asked: Sequence[TrialSummary]) -> BestBatch:
    """The best of the group, and what is known of the larger batch sizes that were asked."""
    best = max(group, key=lambda b: b.tokens_per_s)
    larger = [t for t in asked if t.trial.batch_size > best.batch_size]
    if not larger:
        return best
    if any(has_figures(t) for t in larger):
        return replace(best, slower_above=True)
    after = min(larger, key=lambda t: t.trial.batch_size)
    return replace(best, next_above=after.end, unfinished_above=after.end is None)

"""How long loads take, and how long the rest of a sweep will."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, log2
from typing import TYPE_CHECKING

from tgi_bench.errors import InputError
from tgi_bench.plan.plan import ANY_MODEL, Deployment, Plan
from tgi_bench.trials.lengths import mean_tokens
from tgi_bench.trials.load import ClosedLoop, Find, LoadTrial, OpenLoop

if TYPE_CHECKING:
    from tgi_bench.analysis.planned import TrialEstimate


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
            # A load of a duration does not wait for these.
            from tgi_bench.analysis.planned import planned_setup
            from tgi_bench.estimate.step_time import generate_s

            sizes = (round(mean_tokens(prompt)), round(mean_tokens(output)))
            try:
                setup = planned_setup(deployment).setup
            except InputError:
                return None  # a model or accelerator outside the table: `plan` says which
            return ceil(requests / concurrency) * generate_s(setup, concurrency, *sizes)
        case _:
            return None


class Remaining:
    """Adds up what is left: the estimates, corrected by how the trials so far compared.

    A trial without an estimate counts as the mean of those that have run; each kind of trials as
    its own. What a load's plan says of its length is not corrected by batches.
    """

    def __init__(self, plan: Plan, estimates: Mapping[str, TrialEstimate]) -> None:
        fitting = {name: e.total_s if e.fits else 0.0 for name, e in estimates.items()}
        timed = {name: time.total_s for name, time in load_times(plan).items()}
        self._kinds = tuple(
            _Kind({trial.trial_id for trial in trials}, estimated_s)
            for trials, estimated_s in (
                (plan.trials, fitting),
                (plan.load_trials, timed),
                (plan.task_trials, {}),
            )
        )

    @property
    def trials(self) -> int:
        """Trials that have no end yet."""
        return sum(len(kind.left) for kind in self._kinds)

    def ended(self, trial_id: str, took_s: float | None) -> None:
        """A trial has its end; took_s is None where it was not run to its last step."""
        for kind in self._kinds:
            if trial_id in kind.left:
                kind.ended(trial_id, took_s)

    def seconds(self) -> float | None:
        """Seconds left; None where neither an estimate nor a trial that has run says."""
        total = 0.0
        for kind in self._kinds:
            seconds = kind.seconds()
            if seconds is None:
                return None
            total += seconds
        return total


class _Kind:
    """The trials of one kind. estimates: seconds by trial_id, 0 for one that will not fit."""

    def __init__(self, left: set[str], estimates: Mapping[str, float]) -> None:
        self.left = left
        self.estimates = estimates
        self._took_s = 0.0
        self._estimated_s = 0.0
        self._estimated_took_s = 0.0
        self._ran = 0

    def ended(self, trial_id: str, took_s: float | None) -> None:
        self.left.discard(trial_id)
        if took_s is None:
            return
        self._ran += 1
        self._took_s += took_s
        if trial_id in self.estimates:
            self._estimated_s += self.estimates[trial_id]
            self._estimated_took_s += took_s

    def seconds(self) -> float | None:
        total = 0.0
        for trial_id in self.left:
            if trial_id in self.estimates:
                total += self.estimates[trial_id] * self._correction()
            elif self._ran:
                total += self._took_s / self._ran
            else:
                return None
        return total

    def _correction(self) -> float:
        return self._estimated_took_s / self._estimated_s if self._estimated_s else 1.0

"""How long the rest of a sweep will take."""

from __future__ import annotations

from collections.abc import Mapping

from tgi_bench.cli.estimates import TrialEstimate, load_times
from tgi_bench.plan.plan import BatchTrial, LoadTrial, Plan


class Remaining:
    """Adds up what is left: the estimates, corrected by how the trials so far compared.

    A trial without an estimate counts as the mean of those that have run; batches and loads each
    as their own. What a load's plan says of its length is not corrected by batches.
    """

    def __init__(self, plan: Plan, estimates: Mapping[str, TrialEstimate]) -> None:
        self._batches = _Kind({trial.trial_id for trial in plan.trials})
        self._loads = _Kind({trial.trial_id for trial in plan.load_trials})
        for trial_id, estimate in estimates.items():
            self._batches.estimates[trial_id] = estimate.total_s if estimate.fits else 0.0
        for trial_id, time in load_times(plan).items():
            self._loads.estimates[trial_id] = time.total_s

    @property
    def trials(self) -> int:
        """Trials that have no end yet."""
        return len(self._batches.left) + len(self._loads.left)

    def ended(self, trial: BatchTrial | LoadTrial, took_s: float | None) -> None:
        """A trial has its end; took_s is None where it was not run to its last step."""
        kind = self._loads if isinstance(trial, LoadTrial) else self._batches
        kind.ended(trial.trial_id, took_s)

    def seconds(self) -> float | None:
        """Seconds left; None where neither an estimate nor a trial that has run says."""
        batches, loads = self._batches.seconds(), self._loads.seconds()
        return None if batches is None or loads is None else batches + loads


class _Kind:
    """The trials of one kind. estimates: seconds by trial_id, 0 for one that will not fit."""

    def __init__(self, left: set[str]) -> None:
        self.left = left
        self.estimates: dict[str, float] = {}
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

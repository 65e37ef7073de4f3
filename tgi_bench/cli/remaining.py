"""How long the rest of a sweep will take."""

from __future__ import annotations

from collections.abc import Mapping

from tgi_bench.cli.estimates import TrialEstimate
from tgi_bench.plan.plan import BatchTrial, Plan


class Remaining:
    """Adds up what is left: the estimates, corrected by how the trials so far compared.

    A trial without an estimate counts as the mean of those that have run.
    """

    def __init__(self, plan: Plan, estimates: Mapping[str, TrialEstimate]) -> None:
        self._estimates = estimates
        self._left = {trial.trial_id for trial in plan.trials}
        self._took_s = 0.0
        self._estimated_s = 0.0
        self._estimated_took_s = 0.0
        self._ran = 0

    @property
    def trials(self) -> int:
        """Trials that have no end yet."""
        return len(self._left)

    def ended(self, trial: BatchTrial, took_s: float | None) -> None:
        """A trial has its end; took_s is None where it was not run to its last step."""
        self._left.discard(trial.trial_id)
        if took_s is None:
            return
        self._ran += 1
        self._took_s += took_s
        estimate = self._estimates.get(trial.trial_id)
        if estimate is not None:
            self._estimated_s += estimate.total_s
            self._estimated_took_s += took_s

    def seconds(self) -> float | None:
        """Seconds left; None where neither an estimate nor a trial that has run says."""
        total = 0.0
        for trial_id in self._left:
            estimate = self._estimates.get(trial_id)
            if estimate is not None:
                total += estimate.total_s * self._correction() if estimate.fits else 0.0
            elif self._ran:
                total += self._took_s / self._ran
            else:
                return None
        return total

    def _correction(self) -> float:
        return self._estimated_took_s / self._estimated_s if self._estimated_s else 1.0

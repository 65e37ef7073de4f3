"""How long the rest of a sweep will take, by hand."""

from __future__ import annotations

import pytest

from tests.analysis.samples import deployment, plan, trial
from tgi_bench.cli.estimates import TrialEstimate
from tgi_bench.cli.remaining import Remaining
from tgi_bench.plan.plan import Plan

SERVER = deployment(1)
TRIALS = tuple(trial(SERVER, size) for size in (1, 2, 4))
PLAN: Plan = plan([SERVER], TRIALS)


def estimate(total_s: float, obstacle: str = "") -> TrialEstimate:
    return TrialEstimate(0.01, 0.01, total_s, 1e9, obstacle)


def estimates(*totals: TrialEstimate) -> dict[str, TrialEstimate]:
    return {t.trial_id: e for t, e in zip(TRIALS, totals, strict=False)}


def test_before_anything_has_run_the_estimates_are_added() -> None:
    remaining = Remaining(PLAN, estimates(estimate(1), estimate(2), estimate(4)))
    assert remaining.trials == 3
    assert remaining.seconds() == 7


def test_what_has_run_corrects_what_is_left() -> None:
    remaining = Remaining(PLAN, estimates(estimate(1), estimate(2), estimate(4)))
    remaining.ended(TRIALS[0], 1.5)
    assert remaining.seconds() == pytest.approx(9.0)  # (2 + 4) x 1.5 / 1
    remaining.ended(TRIALS[1], 4.5)
    assert remaining.seconds() == pytest.approx(8.0)  # 4 x (1.5 + 4.5) / (1 + 2)


def test_a_trial_that_will_not_fit_takes_no_time() -> None:
    remaining = Remaining(PLAN, estimates(estimate(1), estimate(2), estimate(4, obstacle="memory")))
    assert remaining.seconds() == 3


def test_a_trial_that_was_not_run_to_its_last_step_corrects_nothing() -> None:
    remaining = Remaining(PLAN, estimates(estimate(1), estimate(2), estimate(4)))
    remaining.ended(TRIALS[0], None)
    assert (remaining.trials, remaining.seconds()) == (2, 6)


def test_without_estimates_the_mean_of_what_has_run() -> None:
    remaining = Remaining(PLAN, {})
    assert remaining.seconds() is None
    remaining.ended(TRIALS[0], 3.0)
    assert remaining.seconds() == 6.0
    remaining.ended(TRIALS[1], 5.0)
    assert remaining.seconds() == 4.0


def test_some_estimates() -> None:
    remaining = Remaining(PLAN, estimates(estimate(1), estimate(2)))
    assert remaining.seconds() is None
    remaining.ended(TRIALS[0], 2.0)
    assert remaining.seconds() == pytest.approx(2 * 2.0 + 2.0)


def test_nothing_left() -> None:
    remaining = Remaining(PLAN, {})
    for each in TRIALS:
        remaining.ended(each, None)
    assert (remaining.trials, remaining.seconds()) == (0, 0.0)
    remaining.ended(TRIALS[0], None)
    assert remaining.trials == 0


def test_a_trial_without_an_estimate_does_not_correct_the_others() -> None:
    remaining = Remaining(PLAN, {TRIALS[0].trial_id: estimate(1), TRIALS[1].trial_id: estimate(2)})
    remaining.ended(TRIALS[2], 100.0)
    remaining.ended(TRIALS[0], 1.5)
    assert remaining.seconds() == pytest.approx(3.0)

"""How long the rest of a sweep will take, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.analysis.samples import deployment, plan, trial
from tgi_bench.analysis.planned import TrialEstimate, TrialTimes
from tgi_bench.analysis.remaining import Remaining
from tgi_bench.plan.plan import BatchTrial, Plan
from tgi_bench.trials.load import ClosedLoop, Extent, Fixed, LoadTrial, Workload

SERVER = deployment(1)
TRIALS = tuple(trial(SERVER, size) for size in (1, 2, 4))
PLAN: Plan = plan([SERVER], TRIALS)


def estimate(total_s: float, obstacle: str = "") -> TrialEstimate:
    times = TrialTimes(0.01, "compute", 0.01, "host", total_s)
    return TrialEstimate(times, None, 1e9, obstacle)


def estimates(*totals: TrialEstimate) -> dict[str, TrialEstimate]:
    return {t.trial_id: e for t, e in zip(TRIALS, totals, strict=False)}


def test_before_anything_has_run_the_estimates_are_added() -> None:
    remaining = Remaining(PLAN, estimates(estimate(1), estimate(2), estimate(4)))
    assert remaining.trials == 3
    assert remaining.seconds() == 7


def test_what_has_run_corrects_what_is_left() -> None:
    remaining = Remaining(PLAN, estimates(estimate(1), estimate(2), estimate(4)))
    remaining.ended(TRIALS[0].trial_id, 1.5)
    assert remaining.seconds() == pytest.approx(9.0)  # (2 + 4) x 1.5 / 1
    remaining.ended(TRIALS[1].trial_id, 4.5)
    assert remaining.seconds() == pytest.approx(8.0)  # 4 x (1.5 + 4.5) / (1 + 2)


def test_a_trial_that_will_not_fit_takes_no_time() -> None:
    remaining = Remaining(PLAN, estimates(estimate(1), estimate(2), estimate(4, obstacle="memory")))
    assert remaining.seconds() == 3


def test_a_trial_that_was_not_run_to_its_last_step_corrects_nothing() -> None:
    remaining = Remaining(PLAN, estimates(estimate(1), estimate(2), estimate(4)))
    remaining.ended(TRIALS[0].trial_id, None)
    assert (remaining.trials, remaining.seconds()) == (2, 6)


def test_without_estimates_the_mean_of_what_has_run() -> None:
    remaining = Remaining(PLAN, {})
    assert remaining.seconds() is None
    remaining.ended(TRIALS[0].trial_id, 3.0)
    assert remaining.seconds() == 6.0
    remaining.ended(TRIALS[1].trial_id, 5.0)
    assert remaining.seconds() == 4.0


def test_some_estimates() -> None:
    remaining = Remaining(PLAN, estimates(estimate(1), estimate(2)))
    assert remaining.seconds() is None
    remaining.ended(TRIALS[0].trial_id, 2.0)
    assert remaining.seconds() == pytest.approx(2 * 2.0 + 2.0)


def test_nothing_left() -> None:
    remaining = Remaining(PLAN, {})
    for each in TRIALS:
        remaining.ended(each.trial_id, None)
    assert (remaining.trials, remaining.seconds()) == (0, 0.0)
    remaining.ended(TRIALS[0].trial_id, None)
    assert remaining.trials == 0


def test_a_trial_without_an_estimate_does_not_correct_the_others() -> None:
    remaining = Remaining(PLAN, {TRIALS[0].trial_id: estimate(1), TRIALS[1].trial_id: estimate(2)})
    remaining.ended(TRIALS[2].trial_id, 100.0)
    remaining.ended(TRIALS[0].trial_id, 1.5)
    assert remaining.seconds() == pytest.approx(3.0)


def load(name: str, seconds: int | None) -> LoadTrial:
    """A load of 8 in flight that takes so long; None: as long as a file that nobody has read."""
    extent = Extent(None if seconds is None else seconds * 10**9, None, 0, 0, 0, 0, None)
    return LoadTrial(
        trial_id=f"{SERVER.deployment_id}/{name}",
        deployment_id=SERVER.deployment_id,
        spoken="tgi",
        stream=True,
        workload=Workload(Fixed(8), Fixed(8), None, None, None, 0),
        arrivals=ClosedLoop(8),
        extent=extent,
        slos=(),
        find=None,
        sampling=TRIALS[0].sampling,
        request_timeout_ns=10**9,
        max_in_flight=None,
        workers=None,
        tokenizer=None,
    )


def with_loads(*loads: LoadTrial, trials: tuple[BatchTrial, ...] = TRIALS) -> Plan:
    return replace(PLAN, trials=trials, load_trials=loads)


def test_loads_are_added_by_what_their_plan_says() -> None:
    one, two = load("a", 10), load("b", 20)
    known = estimates(estimate(1), estimate(2), estimate(4))
    remaining = Remaining(with_loads(one, two), known)
    assert (remaining.trials, remaining.seconds()) == (5, 37)
    remaining.ended(TRIALS[0].trial_id, 10.0)
    assert remaining.seconds() == pytest.approx(30 + 60)  # batches alone take ten times as long
    remaining.ended(one.trial_id, 11.0)
    assert remaining.seconds() == pytest.approx(22 + 60)  # and loads a tenth longer
    assert remaining.trials == 3


def test_a_load_of_unknown_length_counts_as_the_mean_of_loads() -> None:
    one, other = load("a", None), load("b", None)
    remaining = Remaining(with_loads(one, other, trials=()), {})
    assert remaining.seconds() is None
    remaining.ended(one.trial_id, 12.0)
    assert remaining.seconds() == 12.0
    remaining.ended(other.trial_id, None)
    assert (remaining.trials, remaining.seconds()) == (0, 0.0)

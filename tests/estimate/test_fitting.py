"""Fits: constants are found again from times made with them; too little is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.estimate.setups import bloomz, llama
from tgi_bench.errors import InputError
from tgi_bench.estimate.calibration import published
from tgi_bench.estimate.fitting import (
    FLASH_NAMES,
    NOISE,
    PADDED_NAMES,
    Point,
    Subject,
    calibrate,
    estimated_s,
    fit,
    held_out,
    mean_absolute_error,
    measured_s,
    names_for,
    noise_of,
    predictions,
    splits_of,
    usual_names,
)
from tgi_bench.estimate.grid import Phase, Sizes
from tgi_bench.estimate.setup import PRIOR, UNCALIBRATED, Setup
from tgi_bench.estimate.step_time import decode_time, generate_s, prefill_time

TRUTH = {
    "dispatch_s": 15e-6,
    "kv_bandwidth_efficiency": 0.3,
    "choice_dispatch_s": 20e-6,
    "compute_efficiency": 0.5,
}
NAMES = tuple(TRUTH)


def point(setup: Setup, phase: Phase, batch: int, prompt: int) -> Point:
    """A point that TRUTH has measured."""
    blank = Point(setup, phase, Sizes(batch, prompt), 1.0)
    return dataclasses.replace(blank, measured_s=float(estimated_s([blank], TRUTH)[0]))


def points() -> list[Point]:
    """Steps bound by the host, by computing and by the KV cache's bandwidth."""
    return [
        point(bloomz(), phase, batch, prompt)
        for phase in ("prefill", "decode")
        for batch in (1, 4, 16, 64)
        for prompt in (100, 1024)
    ]


def test_constants_are_found_again() -> None:
    # With noise this small the prior counts for nothing.
    found = fit(points(), NAMES, noise=0.001).require_regular()
    assert found.values == pytest.approx(TRUTH, rel=0.01)
    assert found.informed == NAMES
    assert found.points == 16
    assert mean_absolute_error(predictions(points(), found.values)) < 0.002


def test_held_out_groups_are_predicted() -> None:
    labels = [one.sizes.batch_size for one in points()]
    found = held_out(points(), NAMES, labels, noise=0.001)
    assert [one.index for one in found] == list(range(16))
    assert [one.measured_s for one in found] == measured_s(points()).tolist()
    assert mean_absolute_error(found) < 0.02


def test_a_held_out_point_does_not_teach() -> None:
    """A time that is wrong by a factor of 10 leaves its own prediction as it was."""
    wrong = points()
    wrong[3] = dataclasses.replace(wrong[3], measured_s=10 * wrong[3].measured_s)
    right = held_out(points(), NAMES, range(16), noise=0.01)[3]
    assert held_out(wrong, NAMES, range(16), noise=0.01)[3].estimated_s == right.estimated_s


def test_what_is_not_fitted_stays_as_the_setup_has_it() -> None:
    slow = dataclasses.replace(UNCALIBRATED, step_s=0.5)
    setup = dataclasses.replace(bloomz(), constants=slow)
    one = Point(setup, "decode", Sizes(1, 100), 1.0)
    assert estimated_s([one], {"dispatch_s": 10e-6})[0] > 0.5


def test_a_calibration_says_how_far_it_is_off() -> None:
    labels = [one.phase for one in points()]
    subject = Subject("A100-40GB-SXM", "made", "a test")
    made = calibrate(subject, points(), NAMES, {"one phase": labels}, noise=0.01)
    assert dict(made.fitted) == pytest.approx(TRUTH, rel=0.1)
    assert made.points == 16
    splits = [(one.split, one.groups) for one in made.held_out]
    assert splits == [("one point", 16), ("one phase", 2)]
    assert made.in_sample_error < 0.01 < made.uncalibrated_error
    assert made.held_out[0].error < 0.01
    # Decode does not tell the rate of computing: a whole phase left out is another matter.
    assert made.held_out[1].error > made.held_out[0].error


def test_points_are_estimated_by_phase() -> None:
    setup = bloomz()
    phases: tuple[Phase, ...] = ("generate", "decode", "prefill")
    mixed = [Point(setup, phase, Sizes(2, 50, 4), 1.0) for phase in phases]
    expected = [
        generate_s(setup, 2, 50, 4),
        decode_time(setup, 2, 52).total_s,
        prefill_time(setup, 2, 50).total_s,
    ]
    assert estimated_s(mixed) == pytest.approx(expected)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_measured_times_are_checked(seconds: float) -> None:
    with pytest.raises(InputError, match="must be above 0 seconds"):
        Point(bloomz(), "decode", Sizes(1, 1), seconds)


def test_sizes_are_checked() -> None:
    with pytest.raises(InputError, match="batch_size is 0"):
        Sizes(0, 1)


def test_too_few_points() -> None:
    with pytest.raises(InputError, match="too few measurements for a calibration: 3 for 4"):
        fit(points()[:3], NAMES)
    with pytest.raises(InputError, match="too few measurements for a calibration: 1 for 1"):
        fit(points()[:1], NAMES[:1])
    with pytest.raises(InputError, match="no prediction"):
        mean_absolute_error([])


def test_a_constant_that_nothing_tells_of_stays_at_the_prior_and_is_refused() -> None:
    decodes = [one for one in points() if one.phase == "decode"]
    found = fit(decodes, ("dispatch_s", "link_efficiency"))
    assert found.informed == ("dispatch_s",)
    assert found.values["link_efficiency"] == pytest.approx(PRIOR.link_efficiency, rel=1e-4)
    with pytest.raises(InputError, match="the measurements say nothing of link_efficiency"):
        found.require_regular()


def test_constants_that_cannot_be_told_apart_are_refused() -> None:
    """One shape of step: launching takes step_s + operations * dispatch_s, always the same."""
    same = [point(bloomz(8), "decode", 1, context) for context in (10, 11, 12, 13)]
    with pytest.raises(InputError, match="cannot tell dispatch_s, step_s apart"):
        fit(same, ("dispatch_s", "step_s")).require_regular()


@pytest.mark.parametrize("noise", [0.0, -0.1, 1.0, float("nan")])
def test_noise_is_checked(noise: float) -> None:
    with pytest.raises(InputError, match="noise is"):
        fit(points(), NAMES, noise)


@pytest.mark.parametrize("labels", [[1] * 16, [1, 2]])
def test_labels_are_checked(labels: list[int]) -> None:
    with pytest.raises(InputError, match="a label for each measurement"):
        held_out(points(), NAMES, labels)


def test_names_for_a_run() -> None:
    decode, prefill = (Point(bloomz(2), p, Sizes(1, 9), 1.0) for p in ("decode", "prefill"))
    assert names_for([decode, prefill]) == PADDED_NAMES
    assert names_for([decode]) == PADDED_NAMES[:4]
    alone = Point(bloomz(), "decode", Sizes(1, 9), 1.0)
    assert names_for([alone]) == PADDED_NAMES[:3]
    flash = Point(llama(), "prefill", Sizes(1, 9), 1.0)
    assert names_for([flash]) == tuple(name for name in FLASH_NAMES if name != "rank_skew_s")
    with pytest.raises(InputError, match="padded or flash; there are both"):
        names_for([decode, flash])
    with pytest.raises(InputError, match="there are none"):
        names_for([])


def test_splits_leave_enough_for_a_fit() -> None:
    made = points()
    splits = splits_of(made, constants=4)
    assert {name: len(set(labels)) for name, labels in splits.items()} == {
        "one batch size": 4,
        "one prompt length": 2,
    }
    assert all(len(labels) == len(made) for labels in splits.values())
    # Eight of sixteen are left where one prompt length is out, twelve where one batch size is.
    assert list(splits_of(made, constants=9)) == ["one batch size"]
    assert splits_of(made, constants=13) == {}
    # Prompts of 100 and 199 tokens are nearly the same; one label is no split.
    near = [Point(bloomz(), "decode", Sizes(1, prompt), 1.0) for prompt in (100, 199) * 4]
    assert splits_of(near, constants=1) == {}


@pytest.mark.parametrize(
    ("spreads", "noise"),
    [((None, None), NOISE), ((0.02, 0.04), 0.03), ((0.0, 0.001), 0.005), ((None, 3.0), 0.5)],
)
def test_noise_is_the_mean_spread(spreads: tuple[float | None, ...], noise: float) -> None:
    made = [Point(bloomz(), "decode", Sizes(1, 9), 1.0, spread) for spread in spreads]
    assert noise_of(made) == noise


def test_a_transformers_fit_has_the_constants_of_its_published_one() -> None:
    stack = "transformers 4.30 generate"
    known = next(c for c in published() if c.stack == stack)
    assert usual_names(stack, []) == tuple(name for name, _ in known.fitted)
    one = Point(bloomz(), "decode", Sizes(1, 9), 1.0)
    assert usual_names("text-generation-inference 0.8", [one]) == names_for([one])


def test_a_fit_is_deterministic() -> None:
    one, two = (fit(points(), NAMES) for _ in range(2))
    assert one == two
    assert np.isfinite(one.condition)

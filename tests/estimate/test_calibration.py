"""Constants and calibrations: what is refused, and the YAML there and back."""

from __future__ import annotations

import dataclasses

import pytest

from tests.estimate.setups import bloomz
from tgi_bench.errors import InputError
from tgi_bench.estimate.calibration import (
    Calibration,
    HeldOut,
    dump,
    find,
    parse,
    published,
)
from tgi_bench.estimate.setup import (
    MOST_FITTED,
    PRIOR,
    RANGES,
    UNCALIBRATED,
    Constants,
    check_names,
)
from tgi_bench.estimate.tables import accelerator

ONE = Calibration(
    accelerator="A100-40GB-SXM",
    stack="text-generation-inference 0.8",
    source="a run",
    fitted=(("dispatch_s", 12e-6), ("compute_efficiency", 0.5)),
    points=9,
    noise=0.03,
    in_sample_error=0.01,
    uncalibrated_error=0.2,
    held_out=(HeldOut("one point", 9, 0.02), HeldOut("one num_shard", 3, 0.04)),
)


def test_there_and_back() -> None:
    assert parse(dump((ONE, ONE)), "x.yaml") == (ONE, ONE)


def test_constants_are_the_fitted_ones_and_uncalibrated_ones() -> None:
    assert ONE.constants == dataclasses.replace(
        UNCALIBRATED, dispatch_s=12e-6, compute_efficiency=0.5
    )
    assert ONE.applied(bloomz()).constants == ONE.constants


@pytest.mark.parametrize(
    ("device", "stack", "said"),
    [
        ("A100-40GB-SXM", "text-generation-inference 0.8", None),
        (
            "L4",
            "text-generation-inference 0.8",
            "the calibration was fitted on A100-40GB-SXM, not L4",
        ),
        (
            "A100-40GB-SXM",
            "vllm",
            "the calibration was fitted on 'text-generation-inference 0.8', not 'vllm'",
        ),
        (
            "L4",
            "vllm",
            "the calibration was fitted on A100-40GB-SXM, not L4 and on "
            "'text-generation-inference 0.8', not 'vllm'",
        ),
    ],
)
def test_use_elsewhere_is_said(device: str, stack: str, said: str | None) -> None:
    assert ONE.strangeness(device, stack) == said


def test_published_calibrations_are_whole() -> None:
    stacks = [(one.accelerator, one.stack) for one in published()]
    assert len(stacks) == len(set(stacks)) == 7
    for one in published():
        assert accelerator(one.accelerator).name == one.accelerator
        assert len(one.fitted) <= MOST_FITTED < one.points
        assert one.in_sample_error < one.uncalibrated_error
        assert one.held_out[0].split == "one point"
        assert one.held_out[0].groups == one.points
    found = find("A100-40GB-SXM", "text-generation-inference 0.8")
    assert found is not None
    assert found.points == 38
    assert find("A100-40GB-SXM", "text-generation-inference 3.3") is None


GOOD = dump((ONE,))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "x.yaml is not YAML"),
        ("", "x.yaml is not a list"),
        ("{}", "x.yaml is not a list"),
        ("[]", "x.yaml is not a list"),
        ("- 1", "calibration 1 is not a mapping"),
        ("- {1: 2}", "calibration 1 is not a mapping of names"),
        (GOOD.replace("source: a run", "source: 3"), "source is missing or not a text"),
        (GOOD.replace("source: a run\n", "x: y\n"), "source is missing"),
        (GOOD.replace("points: 9", "points: nine"), "points is missing or not a number"),
        (GOOD.replace("points: 9", "points: 1"), "too few measurements"),
        (GOOD.replace("noise: 0.03", "noise: .nan"), "noise is missing or not a number"),
        (GOOD.replace("dispatch_s", "patience_s"), "unknown constant 'patience_s'"),
        (GOOD.replace("compute_efficiency: 0.5", "compute_efficiency: 1.5"), "must be from 0.001"),
        (GOOD.replace("compute_efficiency: 0.5", "compute_efficiency: true"), "not a number"),
        (GOOD[: GOOD.index("  held_out")], "held_out is missing or not a list"),
    ],
)
def test_a_bad_file_is_refused_in_one_sentence(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        parse(text, "x.yaml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(RANGES))
def test_constants_outside_their_range_are_refused(name: str) -> None:
    lowest, highest = RANGES[name]
    for value in (lowest / 2, highest * 2, -lowest, float("nan"), float("inf")):
        with pytest.raises(InputError, match=f"the constant {name} is"):
            Constants(**{name: value})
    assert Constants(**{name: lowest}).values()[name] == lowest


def test_a_fit_starts_inside_the_ranges() -> None:
    for name, value in PRIOR.values().items():
        lowest, highest = RANGES[name]
        assert lowest < value < highest


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "0 are named"),
        (("dispatch_s", "dispatch_s"), "each once"),
        (tuple(RANGES)[:6], "from 1 to 5 constants"),
        (("patience_s",), "unknown constant"),
    ],
)
def test_names_are_checked(names: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_names(names)

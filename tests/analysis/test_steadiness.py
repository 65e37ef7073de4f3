"""Loads whose server changed while they ran, against loads whose server did not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.analysis.load_samples import MS, S, Timing, request
from tests.analysis.simulated_loads import (
    Scene,
    clean,
    first_tokens_slower_and_slower,
    simulated,
    slow_at_first,
    slow_in_the_middle,
    standing_still,
)
from tgi_bench.analysis.rules import CheckStatus
from tgi_bench.kinds.load.figures import LoadSummary, Part, Window
from tgi_bench.kinds.load.rules import load_checks
from tgi_bench.kinds.load.steadiness import steadiness
from tgi_bench.kinds.load.summary import summarise_stage
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.trials.load import Fixed, Uniform

WINDOW = Window(0, 10 * S, False)
OK = TrialEnd(Outcome.OK, "")


def test_shifts_are_of_a_parts_median_over_the_rests() -> None:
    """TTFT is 100 ms, 130 ms in the second half; the middle third is half of each."""
    seen = [request(i, Timing(i * S // 4, (100 if i < 20 else 130) * MS)) for i in range(40)]
    found = steadiness(WINDOW, seen, seen)
    assert found.shift("ttft", Part.SECOND_HALF) == pytest.approx(0.3)
    assert found.shift("e2e", Part.SECOND_HALF) == pytest.approx(0.3)
    assert found.shift("tpot", Part.SECOND_HALF) is None  # of one token
    middle = [request(i, Timing(i * S // 4, (90 if 13 < i < 27 else 60) * MS)) for i in range(40)]
    assert steadiness(WINDOW, middle, middle).shift("ttft", Part.MIDDLE) == pytest.approx(0.5)
    assert steadiness(WINDOW, seen[:25], seen).shift("ttft", Part.SECOND_HALF) is None


def test_the_begin_is_the_first_tenth_beside_the_second_half() -> None:
    seen = [
        request(i, Timing(i * S // 10, (300 if i < 10 else 50 + i % 10) * MS)) for i in range(100)
    ]
    found = steadiness(WINDOW, seen, seen).begin
    assert found is not None
    assert (found.first_ns, found.later_ns) == (300 * MS, 58 * MS)
    assert steadiness(WINDOW, seen[:49], seen).begin is None


def test_a_silence_is_of_all_that_stream() -> None:
    """Two answers of 100 tokens 20 ms apart, side by side; one second is missing in both."""
    gaps = [20 * MS] * 49 + [1020 * MS] + [20 * MS] * 49
    both = [request(k, Timing(k * MS, 50 * MS, gaps)) for k in range(2)]
    found = steadiness(WINDOW, both, both).silences
    assert found is not None
    assert (found.count, found.held) == (1, 2)
    assert found.longest_ns == found.total_ns == 1019 * MS  # the other one is 1 ms later
    assert found.limit_ns == 0.25 * 3030 * MS
    one_goes_on = [both[0], request(1, Timing(MS, 50 * MS, [20 * MS] * 150))]
    none = steadiness(WINDOW, one_goes_on, one_goes_on).silences
    assert none is not None
    assert (none.count, none.longest_ns, none.total_ns, none.held) == (0, 0, 0, 0)
    alone = steadiness(WINDOW, both[:1], both[:1]).silences
    assert alone is not None
    assert alone.count == 0


def test_a_request_that_several_silences_hold_up_counts_once() -> None:
    """Three standstills of a second in both of two answers; the third one, not answered, is of no
    figure."""
    gaps = ([20 * MS] * 10 + [1020 * MS]) * 3 + [20 * MS] * 10
    seen = [request(k, Timing(k * MS, 50 * MS, gaps)) for k in range(3)]
    found = steadiness(WINDOW, seen[:2], seen).silences
    assert found is not None
    assert (found.count, found.held) == (3, 2)


def test_a_prefill_between_decode_steps_is_no_standstill() -> None:
    """A third request's first token ends the silence, and others waited as long for theirs."""
    gaps = [20 * MS] * 49 + [1020 * MS] + [20 * MS] * 49
    both = [request(k, Timing(0, 50 * MS, gaps)) for k in range(2)]
    third = request(2, Timing(1010 * MS, 1040 * MS, [20 * MS] * 9))
    assert both[0].event_ns[50] - third.event_ns[0] == 0
    found = steadiness(WINDOW, [*both, third], [*both, third]).silences
    assert found is not None
    assert found.count == 0


def test_answers_in_one_piece_have_no_silences() -> None:
    whole = [request(i, Timing(i * S, 500 * MS)) for i in range(9)]
    assert steadiness(WINDOW, whole, whole).silences is None
    assert steadiness(WINDOW, [], []).silences is None


def failed_of(scene: Scene) -> list[str]:
    """The checks that a simulated load fails, but for that of enough requests."""
    trial, stage, seen = simulated(scene)
    summary = LoadSummary(trial, OK, (summarise_stage(trial, stage, seen),), None)
    found = [check.name for check in load_checks((summary,)) if not check.passed]
    return [name for name in found if not name.startswith("intervals of the median")]


@pytest.mark.parametrize("seed", range(24))
def test_clean_loads_fail_nothing(seed: int) -> None:
    assert failed_of(clean(seed)) == []


@dataclass(frozen=True, slots=True)
class Distortion:
    """One thing that goes wrong, and a word of the check that says so."""

    change: Callable[[Scene], Scene]
    check: str


DISTORTIONS = [
    Distortion(slow_at_first, "first requests"),
    Distortion(slow_in_the_middle, "tokens/s of closed loops"),
    Distortion(first_tokens_slower_and_slower, "halves"),
    Distortion(standing_still, "stand still"),
]
SCENES = [
    Scene(concurrency=1, prompt=Fixed(512), output=Fixed(16), duration_s=20),
    Scene(concurrency=4, duration_s=30, seed=1),
    Scene(concurrency=8, duration_s=30, interrupts=False, seed=2),
    Scene(concurrency=16, duration_s=40, prompt=Fixed(128), output=Uniform(32, 96), seed=3),
]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: f"concurrency {scene.concurrency}")
@pytest.mark.parametrize("distortion", DISTORTIONS, ids=lambda one: one.check)
def test_distorted_loads_say_what_is_wrong(distortion: Distortion, scene: Scene) -> None:
    if scene.concurrency == 1 and distortion.change is standing_still:
        return  # one stream alone: its tokens/s tell
    found = failed_of(distortion.change(scene))
    assert any(distortion.check in name for name in found), found
    assert failed_of(scene) == []


def test_an_open_loop_with_a_slow_middle() -> None:
    scene = Scene(concurrency=None, rate_per_s=5.0, duration_s=40, prompt=Fixed(64))
    assert failed_of(scene) == []
    assert "the middle of a load is like its ends" in failed_of(slow_in_the_middle(scene))


def test_a_short_closed_loop_is_not_asked_for_its_tokens() -> None:
    """Its blocks would be shorter than its answers."""
    trial, stage, seen = simulated(Scene(concurrency=16, duration_s=8))
    summary = LoadSummary(trial, OK, (summarise_stage(trial, stage, seen),), None)
    (found,) = [c for c in load_checks((summary,)) if "tokens/s of closed" in c.name]
    assert found.status is CheckStatus.NOT_CHECKED
    assert "20 times" in found.finding

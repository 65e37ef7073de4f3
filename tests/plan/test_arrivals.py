"""When an open loop sends: by hand, as properties, and in the mean."""

from __future__ import annotations

from itertools import islice, pairwise
from statistics import fmean, pvariance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tgi_bench.plan.arrivals import send_offsets_ns
from tgi_bench.trials.load import OpenLoop, Process, RatePart

S = 10**9


def at(rate: float, process: Process = Process.CONSTANT, shape: float = 1.0) -> OpenLoop:
    return OpenLoop(rate, (), process, shape, 0)


def through(*parts: tuple[float, float, float], process: Process = Process.CONSTANT) -> OpenLoop:
    """Parts of (seconds, from, to)."""
    made = tuple(RatePart(round(s * S), begin, end) for s, begin, end in parts)
    return OpenLoop(None, made, process, 1.0, 0)


@pytest.mark.parametrize(
    ("arrivals", "duration_ns", "expected"),
    [
        (at(4), S, [0, S // 4, S // 2, 3 * S // 4]),
        (at(3), S, [0, 333_333_333, 666_666_667]),
        (at(0.5), 5 * S, [0, 2 * S, 4 * S]),
        (at(0.1), 20 * S + 1, [0, 10 * S, 20 * S]),
        (at(1e6), 3001, [0, 1000, 2000, 3000]),
        (at(1), 1, [0]),
        # 2/s for 1 s, then 4/s for 0.5 s.
        (through((1, 2, 2), (0.5, 4, 4)), None, [0, S // 2, S, S + S // 4]),
        # From 0 to 2/s over 4 s: t^2 / 4 = 0, 1, 2, 3.
        (through((4, 0, 2)), None, [0, 2 * S, 2_828_427_125, 3_464_101_615]),
        # From 2/s to 0 over 4 s: 2 t - t^2 / 4 = 0, 1, 2, 3.
        (through((4, 2, 0)), None, [0, 535_898_385, 1_171_572_875, 2 * S]),
        # Nothing for 3 s, then 1/s for 2 s.
        (through((3, 0, 0), (2, 1, 1)), None, [3 * S, 4 * S]),
        # Half an arrival in the first part: the second one waits for the other half.
        (through((0.5, 1, 1), (1, 2, 2)), None, [0, 750_000_000, 1_250_000_000]),
        (through((10, 1, 1)), 3 * S, [0, S, 2 * S]),
    ],
)
def test_by_hand(arrivals: OpenLoop, duration_ns: int | None, expected: list[int]) -> None:
    assert list(send_offsets_ns(arrivals, duration_ns)) == expected


def test_constant_multiples_do_not_drift() -> None:
    """After many arrivals the offset is that of exact arithmetic."""
    tenth = next(islice(send_offsets_ns(at(0.3), None), 300_000, None))
    assert tenth == 1_000_000 * S
    third = next(islice(send_offsets_ns(at(7), None), 100_000, None))
    assert third == round(100_000 * S / 7)


PROCESSES = st.sampled_from(list(Process))
PARTS = st.lists(
    st.tuples(st.floats(0.01, 5), st.floats(0, 50), st.floats(0, 50)), min_size=1, max_size=4
)


@given(PARTS, PROCESSES, st.integers(0, 9))
def test_parts_give_ascending_offsets_before_their_end(
    parts: list[tuple[float, float, float]], process: Process, seed: int
) -> None:
    made = through(*parts, process=process)
    arrivals = OpenLoop(None, made.parts, process, 0.5, seed)
    offsets = list(send_offsets_ns(arrivals, None))
    end_ns = sum(part.duration_ns for part in made.parts)
    assert all(a <= b for a, b in pairwise(offsets))
    assert all(0 <= offset <= end_ns for offset in offsets)
    assert offsets == list(send_offsets_ns(arrivals, None))


@given(PARTS)
def test_a_constant_process_has_as_many_arrivals_as_the_rate_has_area(
    parts: list[tuple[float, float, float]],
) -> None:
    made = through(*parts)
    area = sum((p.from_rate_per_s + p.to_rate_per_s) / 2 * p.duration_ns / S for p in made.parts)
    assert abs(len(list(send_offsets_ns(made, None))) - area) <= 1


@given(st.floats(0.001, 10_000), PROCESSES, st.integers(0, 2**63 - 1))
def test_without_a_duration_they_do_not_end(rate: float, process: Process, seed: int) -> None:
    offsets = list(islice(send_offsets_ns(OpenLoop(rate, (), process, 2.0, seed), None), 50))
    assert len(offsets) == 50
    assert all(a <= b for a, b in pairwise(offsets))


def gaps_s(arrivals: OpenLoop, amount: int) -> list[float]:
    offsets = [0, *islice(send_offsets_ns(arrivals, None), amount)]
    return [(b - a) / S for a, b in pairwise(offsets)]


@pytest.mark.parametrize(
    ("process", "shape", "variation"),
    [
        (Process.POISSON, 1.0, 1.0),
        (Process.POISSON, 7.0, 1.0),  # read with gamma only
        (Process.GAMMA, 1.0, 1.0),
        (Process.GAMMA, 0.25, 4.0),
        (Process.GAMMA, 0.5, 2.0),
        (Process.GAMMA, 4.0, 0.25),
    ],
)
def test_gaps_have_the_rates_mean_and_the_shapes_variation(
    process: Process, shape: float, variation: float
) -> None:
    """The squared coefficient of variation of a gamma distribution is 1 / shape."""
    gaps = gaps_s(at(8, process, shape), 40_000)
    assert fmean(gaps) == pytest.approx(1 / 8, rel=0.03)
    assert pvariance(gaps) / fmean(gaps) ** 2 == pytest.approx(variation, rel=0.06)


def test_a_poisson_count_is_as_random_as_it_should_be() -> None:
    """Counts of seconds have a variance like their mean: they are not rescaled to the rate."""
    offsets = send_offsets_ns(at(20, Process.POISSON), 2000 * S)
    counts = [0] * 2000
    for offset in offsets:
        counts[offset // S] += 1
    assert fmean(counts) == pytest.approx(20, rel=0.02)
    assert pvariance(counts) / fmean(counts) == pytest.approx(1, rel=0.1)


def test_a_poisson_ramp_has_its_rate_everywhere() -> None:
    arrivals = OpenLoop(None, (RatePart(400 * S, 0, 50),), Process.POISSON, 1.0, 3)
    quarters = [0] * 4
    for offset in send_offsets_ns(arrivals, None):
        quarters[offset // (100 * S)] += 1
    # The area below 0..50 over 400 s, quarter by quarter: 625, 1875, 3125, 4375.
    assert quarters == [pytest.approx(n, rel=0.08) for n in (625, 1875, 3125, 4375)]


def test_seeds_and_streams_draw_other_gaps() -> None:
    def five(seed: int, stream: str) -> list[int]:
        arrivals = OpenLoop(4, (), Process.POISSON, 1.0, seed)
        return list(islice(send_offsets_ns(arrivals, None, stream), 5))

    assert five(0, "a") == five(0, "a")
    assert len({tuple(five(0, "a")), tuple(five(1, "a")), tuple(five(0, "b"))}) == 3


def test_the_gaps_are_the_same_on_every_machine() -> None:
    """Stored runs name their seed: a change here changes what it means."""
    assert list(islice(send_offsets_ns(at(4, Process.POISSON), None), 3)) == [
        58456356,
        88895371,
        130030383,
    ]


def test_neither_rate_nor_parts() -> None:
    with pytest.raises(ValueError, match="neither a rate nor parts"):
        send_offsets_ns(OpenLoop(None, (), Process.CONSTANT, 1.0, 0), None)

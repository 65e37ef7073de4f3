from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analysis.load_samples import MS, OPEN, OPEN_STAGE, Timing, request
from tgi_bench.kinds.load.figures import SearchAnswer, StageSummary
from tgi_bench.kinds.load.search import SearchStep, found_so_far, met, next_probe
from tgi_bench.kinds.load.summary import summarise_load, summarise_stage
from tgi_bench.load_observation import RequestOutcome
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.trials.load import Find, Slo, Sought

RATE = Find(Sought.MAX_RATE, 4.0, 0.5, 64.0, 0.05, 1)
STREAMS = Find(Sought.MAX_CONCURRENCY, 8, 1, 512, 0.05, 1)


def run(find: Find, answer: Callable[[float], bool]) -> tuple[SearchAnswer, list[SearchStep]]:
    probes: list[SearchStep] = []
    for _ in range(10_000):
        step = next_probe(find, probes)
        if isinstance(step, SearchAnswer):
            return step, probes
        probes.append(SearchStep(step, answer(step)))
    raise AssertionError("the search does not end")


def below(threshold: float) -> Callable[[float], bool]:
    return lambda value: value <= threshold


@pytest.mark.parametrize(
    ("find", "threshold", "tried"),
    [
        (STREAMS, 21, [8, 16, 32, 24, 20, 22, 21]),
        (STREAMS, 3, [8, 4, 2, 3]),
        (STREAMS, 0, [8, 4, 2, 1]),
        (STREAMS, 1, [8, 4, 2, 1]),
        (replace(STREAMS, highest=20), 100, [8, 16, 20]),
        (replace(STREAMS, start=30, highest=20), 100, [20]),
        (replace(STREAMS, lowest=3), 3, [8, 4, 3]),
        (replace(RATE, tolerance=0.3), 5, [4, 8, 5.657]),
        (replace(RATE, tolerance=0.2), 5, [4, 8, 5.657, 4.757]),
        (replace(RATE, lowest=3), 1, [4, 3]),
    ],
)
def test_the_steps_by_hand(find: Find, threshold: float, tried: Sequence[float]) -> None:
    _, probes = run(find, below(threshold))
    assert [probe.value for probe in probes] == tried


def test_answers_by_hand() -> None:
    assert run(STREAMS, below(21))[0] == SearchAnswer(21, 21, 22, True)
    assert run(STREAMS, below(0))[0] == SearchAnswer(None, None, 1, True)
    assert run(STREAMS, below(10_000))[0] == SearchAnswer(512, 512, None, True)
    assert run(replace(RATE, tolerance=0.3), below(5))[0] == SearchAnswer(4, 4, 5.657, True)


@given(
    st.sampled_from(Sought),
    st.floats(0.01, 2000),
    st.floats(1, 1000),
    st.floats(0, 0.5),
    st.integers(1, 4),
)
def test_any_threshold_is_bracketed(
    sought: Sought, threshold: float, start: float, tolerance: float, repeats: int
) -> None:
    find = Find(sought, start, 1, 1000, tolerance, repeats)
    found, probes = run(find, below(threshold))
    assert found.done
    assert found.value == found.low
    assert max(Counter(probe.value for probe in probes).values()) <= repeats
    assert all(1 <= probe.value <= 1000 for probe in probes)
    if found.value is None:
        assert threshold < 1
        assert found.high == 1
    elif found.high is None:
        assert found.value == 1000 <= threshold
    else:
        assert found.value <= threshold < found.high
        gap = found.high - found.value
        whole = sought is Sought.MAX_CONCURRENCY
        assert gap <= tolerance * found.high or (whole and gap == 1) or tolerance < 1e-12
    if sought is Sought.MAX_CONCURRENCY:
        assert all(probe.value == int(probe.value) for probe in probes)
        assert len({probe.value for probe in probes}) <= 22


@given(st.integers(0, 10_000), st.integers(1, 5), st.sampled_from(Sought))
def test_a_noisy_answer_ends_within_its_repeats(seed: int, repeats: int, sought: Sought) -> None:
    """Each probe is met with a chance that falls from 1 to 0 around 50."""
    chance = random.Random(seed)
    find = Find(sought, 5, 1, 1000, 0.02, repeats)
    found, probes = run(find, lambda value: chance.random() < 50**4 / (50**4 + value**4))
    assert max(Counter(probe.value for probe in probes).values()) <= repeats
    assert found.done
    for value in {probe.value for probe in probes}:
        results = [probe.met for probe in probes if probe.value == value]
        if value == found.low:
            assert 2 * sum(results) > len(results)
        if value == found.high:
            assert 2 * sum(results) <= repeats
    so_far = found_so_far(find, probes)
    assert (found.value, found.low, found.high) == (so_far.value, so_far.low, so_far.high)
    assert so_far.done


def test_a_majority_is_tried_for_and_no_more() -> None:
    three = replace(STREAMS, repeats=3)
    assert next_probe(three, [SearchStep(8, True)]) == 8
    assert next_probe(three, [SearchStep(8, True), SearchStep(8, False)]) == 8
    assert next_probe(three, [SearchStep(8, True), SearchStep(8, True)]) == 16
    two = replace(STREAMS, repeats=2)
    assert next_probe(two, [SearchStep(8, False)]) == 4
    assert next_probe(two, [SearchStep(8, True), SearchStep(8, False)]) == 4
    assert next_probe(two, [SearchStep(8, True)] * 2 + [SearchStep(8, False)] * 9) == 16


def test_the_brackets_values_and_the_intervals_ends_are_tried_as_often_as_repeats_says() -> None:
    """16 missed at once and 12 is a bracket's end: both are tried again, on other seeds; so is 4,
    the highest value that was surely met."""
    find = replace(STREAMS, repeats=2, start=4, tolerance=0.4)
    clear = {4: True, 8: None, 16: False, 12: None}
    tried: list[SearchStep] = []
    while not isinstance(value := next_probe(find, tried), SearchAnswer):
        tried.append(SearchStep(value, value <= 8, clear[int(value)]))
    assert [probe.value for probe in tried] == [4, 4, 8, 8, 16, 12, 12, 16]
    assert value == SearchAnswer(8, 8, 12, True)
    so_far = found_so_far(find, tried)
    assert (so_far.sure_low, so_far.sure_high, so_far.missed_in) == (4, 16, (2, 2))


def test_an_end_that_another_try_does_not_confirm_moves_out() -> None:
    """The second try of 16 is not clear: the interval has no upper end but 32."""
    find = replace(STREAMS, repeats=2, start=8, tolerance=0.5)
    tried = (
        [SearchStep(8, True, True)] * 2
        + [SearchStep(16, True)] * 2
        + [SearchStep(32, False, False)]
    )
    assert next_probe(find, tried) == 32
    assert next_probe(find, [*tried, SearchStep(32, False, None)]) == SearchAnswer(16, 16, 32, True)
    unclear = found_so_far(find, [*tried, SearchStep(32, False, None)])
    assert (unclear.sure_low, unclear.sure_high) == (8, None)


@pytest.mark.parametrize(
    ("probes", "contradiction"),
    [
        ([(8, True), (16, None), (32, False)], None),
        ([(8, True), (8, None), (9, False)], None),
        ([(8, True), (8, False), (9, None)], None),  # one of two may be chance
        ([(8, False), (9, True)], (8, 9)),
        ([(4, False), (8, False), (9, True), (16, True), (32, False)], (4, 16)),
        ([], None),
    ],
)
def test_steps_that_cannot_both_be_right(
    probes: list[tuple[float, bool | None]], contradiction: tuple[float, float] | None
) -> None:
    seen = [SearchStep(value, sure is not False, sure) for value, sure in probes]
    assert found_so_far(STREAMS, seen).contradiction == contradiction


def test_probes_of_other_values_are_left_alone() -> None:
    assert next_probe(STREAMS, [SearchStep(7, False), SearchStep(8, True)]) == 16


def test_a_search_that_was_cut_off_keeps_its_bracket() -> None:
    assert found_so_far(STREAMS, []) == SearchAnswer(None, None, None, False)
    assert found_so_far(STREAMS, [SearchStep(8, True)]) == SearchAnswer(
        8, 8, None, False, met_in=(1, 1)
    )
    probes = [
        SearchStep(8, True),
        SearchStep(16, True),
        SearchStep(32, False),
        SearchStep(24, True),
    ]
    assert found_so_far(STREAMS, probes) == SearchAnswer(
        24, 24, 32, False, met_in=(1, 1), missed_in=(1, 1)
    )
    half = replace(STREAMS, repeats=3)
    assert found_so_far(half, [*[SearchStep(8, True)] * 2, SearchStep(16, False)]) == SearchAnswer(
        8, 8, 16, False, met_in=(2, 2), missed_in=(1, 1)
    )


@pytest.mark.parametrize(
    ("tries", "value", "high"),
    [
        ([(1, True), (1, True), (2, True)], 2, None),
        ([(4, False), (4, False), (2, False)], None, 2),
        ([(1, True), (1, True), (2, True), (2, False)], 1, 2),  # a tie is not met
    ],
)
def test_a_search_cut_off_between_repeats_lies_within_its_interval(
    tries: list[tuple[float, bool]], value: float | None, high: float | None
) -> None:
    three = replace(RATE, start=tries[0][0], repeats=3)
    found = found_so_far(three, [SearchStep(asked, met, met) for asked, met in tries])
    assert (found.value, found.high, found.done) == (value, high, False)
    assert found.sure_low is None or (value is not None and value >= found.sure_low)
    assert found.sure_high is None or (high is not None and high <= found.sure_high)


@pytest.mark.parametrize(
    ("probes", "low", "high"),
    [
        ([(8, True), (16, None), (32, False)], 8, 32),
        ([(8, None), (16, None), (32, None)], None, None),
        ([(8, True), (8, None), (4, True), (16, False), (16, True), (32, False)], 4, 32),
        ([(8, True), (16, False), (24, True), (32, False)], 8, 32),  # 16 and 24 contradict
        ([(8, False), (16, True)], None, None),
        ([(8, True)], 8, None),
        ([(8, False)], None, 8),
    ],
)
def test_the_interval_ends_where_every_repeat_is_clear(
    probes: list[tuple[float, bool | None]], low: float | None, high: float | None
) -> None:
    found = found_so_far(
        STREAMS, [SearchStep(value, sure is not False, sure) for value, sure in probes]
    )
    assert (found.sure_low, found.sure_high) == (low, high)


def test_how_often_the_answer_met_and_the_next_value_did_not() -> None:
    three = replace(STREAMS, repeats=3, start=8)
    probes = [
        SearchStep(8, True),
        SearchStep(8, False),
        SearchStep(8, True),
        SearchStep(16, False),
        SearchStep(16, False),
    ]
    probes += [SearchStep(12, False), SearchStep(12, True), SearchStep(12, False)]
    probes += [
        SearchStep(10, False),
        SearchStep(10, False),
        SearchStep(9, False),
        SearchStep(9, True),
        SearchStep(9, False),
    ]
    found = found_so_far(three, probes)
    assert (found.value, found.high, found.done) == (8, 9, True)
    assert (found.met_in, found.missed_in) == ((2, 3), (2, 3))


TRIAL = replace(OPEN, find=RATE, slos=(Slo("ttft_mean", 50 * MS),))


def stage_of(ttft_ms: int, failing: int = 0, answered_share: float = 1.0) -> StageSummary:
    """10/s for 10 s."""
    seen = [request(i, Timing(i * 100 * MS, ttft_ms * MS)) for i in range(100)]
    for i in range(failing):
        seen[i] = replace(seen[i], outcome=RequestOutcome.SERVER_ERROR, reason="no")
    summary = summarise_stage(TRIAL, OPEN_STAGE, seen)
    rate = summary.requests_per_s
    assert rate is not None
    return replace(summary, requests_per_s=replace(rate, value=rate.value * answered_share))


def test_what_meets_the_slos() -> None:
    assert met(TRIAL, stage_of(50))
    assert not met(TRIAL, stage_of(51))
    assert met(TRIAL, stage_of(50, failing=1))
    assert not met(TRIAL, stage_of(50, failing=2))
    lenient = replace(TRIAL, slos=(*TRIAL.slos, Slo("success", 0.9)))
    summary = summarise_stage(
        lenient,
        OPEN_STAGE,
        [
            request(
                i,
                Timing(i * 100 * MS, MS),
                outcome=RequestOutcome.TIMEOUT if i < 9 else RequestOutcome.OK,
            )
            for i in range(100)
        ],
    )
    assert summary.slos_met == ((1.0 * MS, True), (0.91, True))
    assert met(lenient, summary)


def test_what_is_undefined_is_not_met() -> None:
    undefined = replace(TRIAL, slos=(Slo("ttft_p999", 50 * MS),))
    seen = [request(i, Timing(i * 100 * MS, 51 * MS if i == 50 else MS)) for i in range(100)]
    summary = summarise_stage(undefined, OPEN_STAGE, seen)
    assert summary.slos_met == ((None, None),)
    assert not met(undefined, summary)
    assert not met(undefined, summarise_stage(undefined, OPEN_STAGE, []))


def test_a_percentile_of_too_few_requests_lets_a_search_go_on_where_the_highest_is_within() -> None:
    few = replace(TRIAL, slos=(Slo("ttft_p999", 50 * MS),))
    seen = [request(i, Timing(i * 100 * MS, MS)) for i in range(100)]
    summary = summarise_stage(few, OPEN_STAGE, seen)
    assert summary.slos_met == ((1.0 * MS, None),)
    assert met(few, summary)


def test_a_rate_that_the_server_does_not_keep_up_with_is_not_met() -> None:
    """Of 100 sends 30 may be unanswered by chance: 3 x sqrt(100)."""
    assert met(TRIAL, stage_of(50, answered_share=0.71))
    assert not met(TRIAL, stage_of(50, answered_share=0.69))


def test_a_loads_summary_has_its_searchs_answer() -> None:
    end = TrialEnd(Outcome.OK, "")
    stages, requests = [], []
    for index, (rate, ttft_ms) in enumerate([(4.0, 10), (8.0, 60)]):
        seen = [request(i, Timing(i * 100 * MS, ttft_ms * MS), stage=index) for i in range(100)]
        stages.append(replace(OPEN_STAGE, index=index, rate_per_s=rate))
        requests += seen
    cut = summarise_load(TRIAL, stages, requests, None)
    expected = SearchAnswer(4.0, 4.0, 8.0, False, 4.0, 8.0, (1, 1), (1, 1))
    assert cut.found == expected
    assert not any(map(cut.cut_off, cut.stages))  # what is missing is the next step
    assert cut.partial
    wide = replace(TRIAL, find=replace(RATE, tolerance=0.5))
    assert summarise_load(wide, stages, requests, end).found == replace(expected, done=True)
    half = [stages[0], replace(stages[1], cut_off="interrupted")]
    found = summarise_load(TRIAL, half, requests, None)
    assert found.found == SearchAnswer(4.0, 4.0, None, False, 4.0, None, (1, 1), (0, 0))
    assert found.cut_off(found.stages[1]) == "interrupted"
    assert summarise_load(OPEN, stages, requests, end).found is None

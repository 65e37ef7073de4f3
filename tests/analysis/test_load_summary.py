from __future__ import annotations

import random
from array import array
from dataclasses import replace

import numpy as np
import pytest

from tests.analysis.load_samples import (
    CLOSED,
    MS,
    OPEN,
    OPEN_STAGE,
    STAGE,
    S,
    Timing,
    lane,
    request,
    unsent,
)
from tgi_bench.analysis.bootstrap import Floats
from tgi_bench.analysis.samples import Figure
from tgi_bench.kinds.load.figures import Window
from tgi_bench.kinds.load.lengths import prefix_suspicion, spearman
from tgi_bench.kinds.load.metrics import figure_of
from tgi_bench.kinds.load.summary import summarise_load, summarise_stage
from tgi_bench.load_observation import LoadPart, RequestObservation, RequestOutcome
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.trials.load import METRICS, Slo

END = TrialEnd(Outcome.OK, "")


def value(figure: Figure | None) -> float | None:
    return None if figure is None else figure.value


def test_a_closed_loop_by_hand() -> None:
    """8 lanes of 400 ms for 10 s, four tokens each, 100 ms apart: 20 answers and 80 tokens a s."""
    found = summarise_stage(CLOSED, STAGE, lane(8, 400 * MS, 10 * S))
    assert found.window == Window(0, 10 * S, True)
    assert found.requests == 200
    assert found.by_part == (("warmup", 0), ("measured", 200), ("cooldown", 0))
    assert found.outcomes == ((RequestOutcome.OK, 200),)
    assert found.reasons == ()
    for figures, expected in (
        (found.ttft, 100 * MS),
        (found.service_ttft, 100 * MS),
        (found.itl, 100 * MS),
        (found.event_gap, 100 * MS),
        (found.tpot, 100 * MS),
        (found.e2e, 400 * MS),
        (found.send_lag, 0),
    ):
        assert figures is not None
        assert figures.mean == Figure(expected, expected, expected)
        assert figures.p50.value == figures.highest == expected
        assert figures.requests == 200
    assert found.itl is not None
    assert found.itl.count == 600
    assert value(found.requests_per_s) == 20.0
    assert value(found.output_tokens_per_s) == 80.0
    assert value(found.total_tokens_per_s) == 80.0 + 20 * 100
    assert found.goodput_per_s is None
    assert found.concurrency == 8.0
    assert found.rate_per_s == 20.0
    assert (found.late, found.dropped, found.shared_reads, found.events) == (0, 0, 0, 800)
    assert found.drift == 0.0
    assert found.prefix_suspicion is None
    assert found.counted_by == ("server",)
    assert found.slos_met == ()
    assert found.client is STAGE.client


def test_why_requests_failed_is_not_why_others_were_dropped() -> None:
    failed = request(0, Timing(0, MS), outcome=RequestOutcome.TIMEOUT, reason="60 s")
    dropped = [unsent(1, S), unsent(2, 2 * S)]
    found = summarise_stage(OPEN, OPEN_STAGE, [failed, *dropped])
    assert found.reasons == (("too many in flight", 2), ("60 s", 1))
    assert found.failed_for == "60 s"
    assert summarise_stage(OPEN, OPEN_STAGE, dropped).failed_for == ""


def test_parts_and_outcomes_are_told_apart() -> None:
    seen = [
        request(0, Timing(0, MS), part=LoadPart.WARMUP),
        request(1, Timing(1 * S, 10 * MS)),
        request(2, Timing(2 * S, 30 * MS, lag_ns=3 * MS)),
        request(3, Timing(3 * S, MS), outcome=RequestOutcome.TIMEOUT, reason="60 s"),
        request(4, Timing(4 * S, MS), outcome=RequestOutcome.TIMEOUT, reason="60 s"),
        unsent(5, 5 * S),
        request(6, Timing(9 * S, MS), part=LoadPart.COOLDOWN),
    ]
    stage = replace(OPEN_STAGE, measured_from_ns=S, measured_until_ns=9 * S)
    found = summarise_stage(replace(OPEN, slos=(Slo("success", 0.5),)), stage, seen)
    assert found.by_part == (("warmup", 1), ("measured", 5), ("cooldown", 1))
    assert found.outcomes == (
        (RequestOutcome.OK, 2),
        (RequestOutcome.DROPPED, 1),
        (RequestOutcome.TIMEOUT, 2),
    )
    assert found.reasons == (("60 s", 2), ("too many in flight", 1))
    assert found.requests == 5
    assert found.ttft is not None
    assert (found.ttft.count, found.ttft.mean.value) == (2, 20 * MS)
    assert found.send_lag is not None
    assert (found.send_lag.count, found.send_lag.highest) == (4, 3 * MS)
    assert (found.late, found.dropped) == (1, 1)
    assert found.slos_met == ((0.4, False),)
    assert value(found.requests_per_s) == 2 / 8  # the cool-down's ended after the window
    assert value(found.output_tokens_per_s) == 4 / 8  # failed requests' tokens arrived too


def test_what_arrives_in_the_window_counts_of_any_part() -> None:
    """A warm-up request that ends in the window, and a measured one that ends after it."""
    seen = [
        request(0, Timing(0, 1500 * MS, (MS,)), part=LoadPart.WARMUP),
        request(1, Timing(8 * S, 500 * MS, (2 * S,))),
    ]
    stage = replace(STAGE, measured_from_ns=S, measured_until_ns=9 * S)
    found = summarise_stage(CLOSED, stage, seen)
    # Half a second of the first one's 1.501 s is in the window, and 1 s of the other's 2.5 s.
    assert value(found.requests_per_s) == pytest.approx((501 / 1501 + 2 / 5) / 8)
    assert value(found.output_tokens_per_s) == 3 / 8
    assert found.e2e is not None
    assert found.e2e.requests == 1


def test_nothing_is_undefined_not_0() -> None:
    found = summarise_stage(CLOSED, STAGE, [])
    assert all(figure_of(found, f"{metric}_mean") is None for metric in METRICS)
    assert value(found.requests_per_s) == 0.0  # none in 10 s is known
    assert found.total_tokens_per_s is None
    assert found.drift is None
    empty = summarise_stage(CLOSED, replace(STAGE, measured_until_ns=0), [])
    assert empty.requests_per_s is None
    assert empty.concurrency is None
    assert empty.rate_per_s is None


def test_an_answer_in_one_piece_has_no_first_token() -> None:
    whole = replace(CLOSED, stream=False, slos=(Slo("ttft_mean", S), Slo("e2e_mean", S)))
    seen = [request(i, Timing(i * MS, 50 * MS), tokens=[8]) for i in range(20)]
    found = summarise_stage(whole, STAGE, seen)
    assert found.ttft is found.service_ttft is found.itl is found.event_gap is found.tpot is None
    assert found.e2e is not None
    assert found.e2e.mean.value == 50 * MS
    assert value(found.output_tokens_per_s) == 16.0
    assert found.slos_met == ((None, None), (50.0 * MS, True))
    assert found.goodput_per_s is None


def test_several_tokens_in_an_event() -> None:
    seen = [
        request(i, Timing(i * 300 * MS, 20 * MS, (20 * MS,) * 3), tokens=[4] * 4) for i in range(30)
    ]
    found = summarise_stage(CLOSED, STAGE, seen)
    assert found.itl is not None
    assert found.event_gap is not None
    assert found.tpot is not None
    assert (found.itl.count, found.itl.mean.value) == (30 * 12, 5 * MS)
    assert (found.event_gap.count, found.event_gap.mean.value) == (90, 20 * MS)
    assert found.tpot.mean.value == pytest.approx(5 * MS)


def in_events_of(tokens: list[int], told: bool, of: int = 30) -> list[RequestObservation]:
    gaps = (20 * MS,) * (len(tokens) - 1)
    return [
        request(i, Timing(i * 300 * MS, 20 * MS, gaps), tokens=tokens, tokens_told=told)
        for i in range(of)
    ]


def test_itl_is_not_invented_from_a_sum() -> None:
    """vLLM's --stream-interval 4 without counts of each event: 20 tokens in 6 events."""
    slos = (Slo("itl_p50", 90 * MS), Slo("tpot_p50", 9 * MS), Slo("event_gap_p50", 20 * MS))
    trial = replace(CLOSED, slos=slos)
    untold = summarise_stage(trial, STAGE, in_events_of([1, 3, 4, 4, 4, 4], told=False))
    assert untold.itl is None
    assert untold.unmeasurable == pytest.approx({"itl": 20 / 6, "tpot": 20 / 6})
    assert untold.event_gap is not None
    assert (untold.event_gap.count, untold.event_gap.mean.value) == (150, 20 * MS)
    assert untold.tpot is None
    assert [met for _, met in untold.slos_met] == [None, None, True]
    assert untold.slos_met[0] == (None, None)
    assert untold.goodput_per_s is None
    told = summarise_stage(trial, STAGE, in_events_of([1, 4, 4, 4, 4, 3], told=True))
    assert told.unmeasurable == {}
    assert told.itl is not None
    assert told.slos_met[0][1] is True
    assert told.goodput_per_s is not None


@pytest.mark.parametrize(
    ("tokens", "told", "measurable"),
    [
        ([1] * 31, False, True),
        ([1] * 30 + [2], False, True),  # the end's own token, without text
        ([4] + [1] * 28, False, False),
        ([4] + [1] * 28, True, True),
        ([4] + [1] * 60, False, True),  # off by less than 5 %
    ],
)
def test_tpot_of_a_first_event_of_nobody_knows_how_many_tokens(
    tokens: list[int], told: bool, measurable: bool
) -> None:
    """As the client has them: what is more than the events is given to the last of them."""
    given = tokens if told else [*[1] * (len(tokens) - 1), sum(tokens) - len(tokens) + 1]
    found = summarise_stage(CLOSED, STAGE, in_events_of(given, told))
    assert (found.tpot is not None) is measurable
    assert ("tpot" in found.unmeasurable) is not measurable


@pytest.mark.parametrize(("merged", "measurable"), [(0, True), (1, True), (2, False)])
def test_a_few_events_of_two_tokens_leave_itl(merged: int, measurable: bool) -> None:
    """1 % of 100 events."""
    many = in_events_of([1] * 10, told=True, of=10 - merged)
    seen = many + [
        replace(one, request_index=90 + i)
        for i, one in enumerate(in_events_of([1] * 9 + [2], told=False, of=merged))
    ]
    found = summarise_stage(CLOSED, STAGE, seen)
    assert (found.itl is not None) is measurable


def test_goodput_counts_requests_that_met_every_slo() -> None:
    slos = (Slo("ttft_p99", 20 * MS), Slo("itl_p50", 5 * MS), Slo("success", 0.99))
    trial = replace(CLOSED, slos=slos)
    each = [
        (Timing(0, 20 * MS, (5 * MS, 5 * MS, 90 * MS)), True),
        (Timing(0, 21 * MS, (5 * MS,)), False),
        (Timing(0, 20 * MS, (5 * MS, 6 * MS, 6 * MS)), False),
        (Timing(0, 20 * MS), True),  # no second token: no gap was too long
    ]
    for timing, met in each:
        found = summarise_stage(trial, STAGE, [request(0, timing)])
        assert value(found.goodput_per_s) == (0.1 if met else 0.0), timing
    none = request(0, Timing(0, MS), event_ns=array("q"), event_tokens=array("i"))
    assert value(summarise_stage(trial, STAGE, [none]).goodput_per_s) == 0.0
    failed = request(0, Timing(0, MS), outcome=RequestOutcome.INCOMPLETE)
    assert value(summarise_stage(trial, STAGE, [failed]).goodput_per_s) == 0.0


def test_lengths_are_of_measured_requests_that_ended_well() -> None:
    seen = [
        request(0, Timing(0, MS, (MS,))),
        request(1, Timing(0, MS), output_tokens_asked=4, finish_reason="eos_token"),
        request(2, Timing(0, MS), output_tokens_asked=4, finish_reason="length"),
        request(3, Timing(0, MS), output_tokens_asked=4, finish_reason=None),
        request(4, Timing(0, MS, (MS,)), output_tokens_asked=1, finish_reason="stop"),
        request(5, Timing(0, MS), prompt_tokens=99, output_tokens_asked=None),
        request(6, Timing(0, MS), prompt_tokens=None, cached_tokens=64),
        request(7, Timing(0, MS), cached_tokens=11),
        request(8, Timing(0, MS), cached_tokens=10),
        request(9, Timing(0, MS), part=LoadPart.WARMUP, cached_tokens=90),
        request(10, Timing(0, MS), outcome=RequestOutcome.INCOMPLETE),
    ]
    found = summarise_stage(CLOSED, STAGE, seen).lengths
    assert found.requests == 9
    assert (found.prompts_said, found.wrong_prompts, found.prompt_tokens) == (8, 1, 799)
    assert found.prompts_off == 0.99
    assert (found.early, found.short_or_long) == (1, 3)
    assert found.cached == 2
    assert found.output_tokens == 11


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([1, 2, 3], [10, 20, 30], 1.0),
        ([1, 2, 3], [3, 2, 1], -1.0),
        ([1, 2, 2, 3], [1, 2, 3, 4], 0.9486833),
        ([1, 2, 3], [5, 5, 5], None),
    ],
)
def test_rank_correlation_by_hand(
    first: list[float], second: list[float], expected: float | None
) -> None:
    found = spearman(array_of(first), array_of(second))
    assert found == (None if expected is None else pytest.approx(expected))


def array_of(values: list[float]) -> Floats:
    return np.array(values, dtype=np.float64)


def prompts(count: int, longest: int, per_token_ns: int) -> list[RequestObservation]:
    chance = random.Random(0)
    seen = []
    for i in range(count):
        tokens = 100 + i * (longest - 100) // count
        first = 20 * MS + tokens * per_token_ns + chance.randrange(2 * MS)
        seen.append(request(i, Timing(0, first), prompt_tokens=tokens))
    return seen


def test_prefix_suspicion() -> None:
    found = prefix_suspicion(prompts(100, 2000, 20_000))
    assert found is not None
    assert found > 0.95
    flat = prefix_suspicion(prompts(100, 2000, 0))
    assert flat is not None
    assert abs(flat) < 0.2
    assert prefix_suspicion(prompts(29, 2000, 0)) is None
    assert prefix_suspicion(prompts(100, 500, 0)) is None
    asked = [
        replace(s, prompt_tokens=None, prompt_tokens_asked=s.prompt_tokens)
        for s in prompts(100, 2000, 20_000)
    ]
    assert prefix_suspicion(asked) == found


def test_a_load_keeps_its_stages_apart() -> None:
    stages = [STAGE, replace(STAGE, index=1)]
    seen = [request(i, Timing(i * MS, (1 + i % 2) * MS), stage=i % 3) for i in range(60)]
    found = summarise_load(CLOSED, stages, iter(seen), END)
    assert [s.requests for s in found.stages] == [20, 20]
    assert found.end is END
    assert found.found is None
    assert summarise_load(CLOSED, [], seen, None).stages == ()


def test_the_order_of_the_records_does_not_matter() -> None:
    seen = lane(8, 400 * MS, 10 * S)
    mixed = random.Random(0).sample(seen, len(seen))
    assert summarise_stage(CLOSED, STAGE, mixed) == summarise_stage(CLOSED, STAGE, seen)


def test_a_rates_interval_is_of_blocks_of_time() -> None:
    """400 ms an answer in 10 s: 25 blocks; half of them busy twice as much."""
    seen = [request(i, Timing(i * 20 * MS, 400 * MS)) for i in range(250)]
    seen += [request(250 + i, Timing(5 * S + i * 10 * MS, 400 * MS)) for i in range(500)]
    found = summarise_stage(replace(OPEN, arrivals=OPEN.arrivals), OPEN_STAGE, seen)
    rate = found.requests_per_s
    assert rate is not None
    assert rate.low is not None
    assert rate.high is not None
    assert rate.low < rate.value < rate.high
    assert rate.high - rate.low > 0.1 * rate.value
    few = summarise_stage(OPEN, OPEN_STAGE, seen[:9]).requests_per_s
    assert few is not None
    assert few.low is None

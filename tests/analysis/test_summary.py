from __future__ import annotations

from dataclasses import replace

import pytest

from tests.analysis.samples import MS, OK, deployment, observed, run, trial
from tgi_bench.analysis.samples import Distribution
from tgi_bench.kinds.batch import metrics
from tgi_bench.kinds.batch.metrics import Rates, summarise, summarise_published
from tgi_bench.observation import Outcome, PublishedFigures, RankTiming

TRIAL = trial(deployment(2), batch_size=4, decode_length=3, runs=2)
SEEN = (
    *run(0, [900, 900, 900], 4, warmup=True),
    *run(1, [100, 10, 30], 4),
    *run(2, [200, 20, 60], 4),
)


def test_figures_by_hand() -> None:
    s = summarise(TRIAL, SEEN, OK)
    assert s.runs == 2
    assert s.prefill is not None
    assert s.decode_token is not None
    assert s.decode_total is not None
    assert s.prefill.latency == Distribution(
        2, 150 * MS, 100 * MS, 200 * MS, 100 * MS, 200 * MS, 200 * MS
    )
    # 4 requests x 100 prompt tokens: 800 tokens in 300 ms, 400 in 200 ms, 400 in 100 ms
    assert s.prefill.throughput == Rates(8000 / 3, 2000, 4000)
    # the four decode steps pooled: 10, 20, 30, 60 ms
    assert s.decode_token.latency == Distribution(
        4, 30 * MS, 10 * MS, 60 * MS, 20 * MS, 60 * MS, 60 * MS
    )
    assert s.decode_token.throughput is None
    # totals of 40 and 80 ms; 4 x 2 tokens each
    assert s.decode_total.latency == Distribution(
        2, 60 * MS, 40 * MS, 80 * MS, 40 * MS, 80 * MS, 80 * MS
    )
    assert s.decode_total.throughput == Rates(400 / 3, 100, 200)
    # 1 ms of 10, 20, 30, 60, 100, 200 ms: the median lies between 1/30 and 1/60
    assert s.client_share == pytest.approx((1 / 30 + 1 / 60) / 2)
    assert s.rank_spread == 0
    assert s.prompt_tokens == 400
    assert s.first_run_excess is None


def test_only_whole_ok_runs_count() -> None:
    broken = replace(SEEN[5], outcome=Outcome.TIMEOUT, reason="60 s passed")
    assert summarise(TRIAL, (*SEEN[:5], broken, *SEEN[6:]), OK).runs == 1
    assert summarise(TRIAL, SEEN[:-1], OK).runs == 1
    assert summarise(TRIAL, SEEN[:3], OK).runs == 0
    assert summarise(TRIAL, SEEN[::-1], OK) == summarise(TRIAL, SEEN, OK)


def test_no_observation_has_no_figure() -> None:
    s = summarise(TRIAL, (), None)
    assert (s.end, s.runs, s.prefill, s.decode_token, s.decode_total) == (None, 0, None, None, None)
    assert (s.client_share, s.rank_spread, s.prompt_tokens) == (None, None, None)


def test_decode_length_1_has_no_decode_figures() -> None:
    single = replace(TRIAL, decode_length=1)
    s = summarise(single, (*run(0, [100], 4), *run(1, [120], 4)), OK)
    assert s.runs == 2
    assert s.prefill is not None
    assert (s.decode_token, s.decode_total) == (None, None)


def test_a_server_without_durations_has_no_shares() -> None:
    silent = tuple(replace(o, ranks=(RankTiming(0, None, None, None),)) for o in SEEN)
    s = summarise(TRIAL, silent, OK)
    assert (s.client_share, s.rank_spread) == (None, None)


def test_what_health_took_is_none_of_the_client_s() -> None:
    """As on a real shard: 3 ms a step of which 1.17 ms are outside it, and 1.1 ms Health."""
    real = [replace(o, ranks=(RankTiming(0, 0, 0, 1_830_000),)) for o in run(0, [3, 3, 3], 1)]
    asked = [replace(real[0], health_ns=1_100_000), *real[1:]]
    assert metrics.client_share([real]) == pytest.approx(0.39)
    assert metrics.client_share([asked]) == pytest.approx(0.07 / 3)
    # Each run has its own, and more than all of a step is no share below 0.
    slow = [replace(real[0], health_ns=9_000_000), *real[1:]]
    assert metrics.client_share([slow]) == 0
    assert metrics.client_share([asked, asked, slow]) == pytest.approx(0.07 / 3)
    # A client that is starved: as long beside it as the server takes, and more.
    starved = [replace(o, ended_ns=o.ended_ns + 2 * MS) for o in asked]
    assert metrics.client_share([starved]) == pytest.approx(2.07 / 5)


def test_rank_spread_and_first_run() -> None:
    uneven = tuple(
        replace(o, ranks=(RankTiming(0, 0, 0, 50 * MS), RankTiming(1, 0, 0, 40 * MS))) for o in SEEN
    )
    assert metrics.rank_spread([uneven[3:6]]) == pytest.approx(0.2)
    runs = [run(i, [ms, ms], 1) for i, ms in enumerate((30, 10, 12, 14))]
    assert metrics.first_run_excess(runs) == pytest.approx((60 - 28) / 24)
    assert metrics.first_run_excess(runs[:2]) is None
    assert metrics.first_run_excess([]) is None


def test_the_prompt_length_farthest_from_the_asked_one_is_kept() -> None:
    short = tuple(
        replace(o, prompt_tokens=390) if o.run_index == 2 and o.step_index == 0 else o for o in SEEN
    )
    assert summarise(TRIAL, short, OK).prompt_tokens == 390


def test_rates_are_undefined_without_time() -> None:
    assert metrics.rates(4, []) is None
    assert metrics.rates(4, [0, 10]) is None


def test_warm_ups_move_no_figure() -> None:
    asked = trial(deployment(1), 8)
    seen = observed(asked, 50, 20)
    measured = tuple(o for o in seen if not o.warmup)
    assert summarise(asked, seen, OK) == summarise(asked, measured, OK)


def test_published_figures_keep_what_is_printed() -> None:
    row = PublishedFigures("prefill", 5.0, 4.0, 6.0, None, None, None, None, None, None)
    decode = PublishedFigures("decode_total", 5.0, 4.0, 6.0, 5.0, 6.0, 6.0, 7.0, 6.0, 8.0)
    s = summarise_published(TRIAL, (row, decode), OK, 10)
    assert s.runs == 10
    assert s.prefill is not None
    assert s.prefill.latency == Distribution(10, 5.0, 4.0, 6.0, None, None, None)
    assert s.prefill.throughput is None
    assert s.decode_total is not None
    assert s.decode_total.throughput == Rates(7.0, 6.0, 8.0)
    assert summarise_published(TRIAL, (), OK, 10).runs == 0

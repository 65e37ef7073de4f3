from __future__ import annotations

from dataclasses import replace

from tests.analysis.samples import MS, deployment, ended, plan, summary, trial
from tgi_bench.kinds.batch.scaling import BestBatch, Setting, best_batches, scaling
from tgi_bench.observation import Outcome
from tgi_bench.plan.plan import LauncherArgument

ONE, TWO, FOUR = deployment(1), deployment(2), deployment(4)
BOTH = Setting(None, (), 100)


def test_speed_up_and_efficiency_by_hand() -> None:
    trials = [trial(d, 1, runs=1) for d in (FOUR, TWO)]
    points = scaling(
        plan((FOUR, TWO), trials), [summary(trials[0], 25, 10), summary(trials[1], 40, 12)]
    )
    assert [(p.step, p.num_shard) for p in points] == [
        ("prefill", 2),
        ("prefill", 4),
        ("decode_token", 2),
        ("decode_token", 4),
    ]
    assert points[0].latency_ns == 40 * MS
    assert (points[0].speed_up, points[0].efficiency) == (1, 1)
    # against num_shard 2: 40/25 = 1.6 times as fast on twice the devices
    assert (points[1].speed_up, points[1].efficiency) == (1.6, 0.8)
    assert (points[3].speed_up, points[3].efficiency) == (1.2, 0.6)


def test_only_like_is_compared_with_like() -> None:
    quantized = deployment(2, "bitsandbytes")
    other = replace(
        TWO,
        deployment_id="num_shard-2+dtype-float16",
        arguments=(*TWO.arguments, LauncherArgument("dtype", "float16", True)),
    )
    servers = (ONE, quantized, other)
    trials = [trial(d, 1) for d in servers] + [trial(ONE, 2)]
    assert scaling(plan(servers, trials), [summary(t) for t in trials]) == ()


def test_other_decode_lengths_are_other_settings() -> None:
    trials = [trial(ONE, 1, decode_length=3), trial(TWO, 1, decode_length=5)]
    assert scaling(plan((ONE, TWO), trials), [summary(t) for t in trials]) == ()


def test_trials_that_failed_have_no_point() -> None:
    trials = [trial(ONE, 1), trial(TWO, 1)]
    summaries = [summary(trials[0]), ended(trials[1], Outcome.OUT_OF_MEMORY, "no room")]
    assert scaling(plan((ONE, TWO), trials), summaries) == ()


def test_best_batch_by_hand() -> None:
    trials = [trial(ONE, size, runs=1) for size in (1, 2, 4)]
    # 1 / 20 ms = 50, 2 / 25 ms = 80, 4 / 80 ms = 50 tokens/s
    summaries = [summary(t, 50, ms) for t, ms in zip(trials, (20, 25, 80), strict=True)]
    (best,) = best_batches(plan((ONE,), trials), summaries)
    assert best == BestBatch(
        BOTH, trials[1].trial_id, ONE.deployment_id, 2, 80, 25 * MS, True, None, False
    )
    (largest,) = best_batches(plan((ONE,), trials[:2]), summaries[:2])
    assert (largest.slower_above, largest.next_above, largest.unfinished_above) == (
        False,
        None,
        False,
    )


def test_what_came_of_the_next_larger_batch() -> None:
    trials = [trial(ONE, size) for size in (1, 2, 4)]
    memory, skipped = (
        ended(trials[1], Outcome.OUT_OF_MEMORY, "no room"),
        ended(trials[2], Outcome.SKIPPED, "no room"),
    )
    # in any order of the plan, the next larger one is the second
    (best,) = best_batches(plan((ONE,), trials), [skipped, memory, summary(trials[0])])
    assert best.next_above == memory.end
    assert not best.slower_above
    cut = replace(memory, end=None)
    (best,) = best_batches(plan((ONE,), trials), [summary(trials[0]), cut, skipped])
    assert best.unfinished_above
    assert best.next_above is None


def test_no_decode_has_no_best_batch() -> None:
    single = trial(ONE, 1, decode_length=1)
    assert best_batches(plan((ONE,), [single]), [summary(single)]) == ()

"""Direct mode: figures by hand, the search for the largest batch size, and the verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analysis import task_samples as s
from tests.report.made import judge
from tgi_bench.analysis.run import Origin, Run
from tgi_bench.kinds.direct.figures import BatchProbe, LargestBatch, next_batch, summarise_task
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.plan.plan import Plan
from tgi_bench.task_observation import TaskRun
from tgi_bench.trials.direct import FindBatch


def test_figures_of_a_generate_call() -> None:
    """Runs of 10, 10 and 11 ms with 2 x 3 new tokens: 18 tokens in 31 ms."""
    (f,) = summarise_task(s.generate(2), s.task_runs(2), s.OK).figures
    assert f.run is not None
    assert f.prefill is not None
    assert f.decode_step is not None
    assert (f.batch_size, f.runs, f.end) == (2, 3, s.OK)
    assert (f.run.count, f.run.lowest, f.run.highest) == (3, 10 * s.MS, 11 * s.MS)
    assert f.run.mean == pytest.approx(31 / 3 * s.MS)
    assert (f.prefill.lowest, f.prefill.highest) == (6 * s.MS, 7 * s.MS)
    assert (f.decode_step.count, f.decode_step.mean) == (6, 2 * s.MS)
    assert f.new_tokens_per_s == pytest.approx(18 / 0.031)
    assert f.ns_per_new_token == pytest.approx(31 / 18 * s.MS)
    assert (f.prompt_tokens, f.new_tokens, f.calls) == (8, 6, 1)
    assert f.peak_bytes == 3 * 2**30 + 3
    assert f.first_run_excess == pytest.approx(-0.1 / 1.05)
    assert len(f.windows) == 3
    assert f.windows[0] == (2000 * s.MS, 2010 * s.MS)


def test_one_new_token_has_no_decode_step() -> None:
    runs = [s.task_run(index, [6]) for index in range(4)]
    (f,) = summarise_task(s.generate(1), runs, s.OK).figures
    assert f.decode_step is None
    assert f.new_tokens_per_s == pytest.approx(1 / 0.006)


def test_figures_of_a_summary() -> None:
    """Two map calls of 4 steps, a reduce call of 8, 1 ms a step, 1 ms of text: 17 ms, 16 tokens."""
    summary = summarise_task(s.summarize(), s.summary_runs(), s.OK)
    (f,) = summary.figures
    assert f.run is not None
    assert (f.run.mean, f.calls, f.new_tokens, f.prompt_tokens) == (17 * s.MS, 3, 16, 12)
    assert f.new_tokens_per_s == pytest.approx(16 / 0.017)
    assert summary.largest is None


def test_a_trial_without_runs_and_one_that_is_not_finished() -> None:
    (skipped,) = summarise_task(s.generate(8), [], s.SKIPPED).figures
    assert (skipped.batch_size, skipped.end, skipped.run) == (8, s.SKIPPED, None)
    (begun,) = summarise_task(s.generate(1), s.task_runs()[:2], None).figures
    assert (begun.end, begun.runs, begun.first_run_excess) == (None, 1, None)
    assert summarise_task(s.generate(None, find=FindBatch(1, 8, 0.1)), [], None).figures == ()


def test_a_search_has_figures_of_each_batch_size_and_an_answer() -> None:
    trial = s.generate(None, find=FindBatch(1, 8, 0.1))
    runs = [
        *s.task_runs(2, probe=0),
        *s.task_runs(8, probe=1)[:2],
        s.failed_run(s.MEMORY, 8, 1, 2),
        *s.task_runs(4, probe=2)[:3],
    ]
    summary = summarise_task(trial, runs, None)
    assert [(f.batch_size, f.end and f.end.outcome) for f in summary.figures] == [
        (2, Outcome.OK),
        (4, None),
        (8, Outcome.OUT_OF_MEMORY),
    ]
    assert summary.largest == LargestBatch(2, 8)


@pytest.mark.parametrize(
    ("find", "capacity", "tried", "answer"),
    [
        (FindBatch(1, 64, 0.05), 11, [1, 2, 4, 8, 16, 12, 10, 11], LargestBatch(11, 12)),
        (FindBatch(1, 6, 0.05), 99, [1, 2, 4, 6], LargestBatch(6, None)),
        (FindBatch(8, 64, 0.5), 3, [8, 4, 2, 3], LargestBatch(3, 4)),
        (FindBatch(4, 64, 0.05), 0, [4, 2, 1], LargestBatch(None, 1)),
        (FindBatch(64, 64, 0.05), 64, [64], LargestBatch(64, None)),
        (FindBatch(100, 1000, 0.5), 130, [100, 200, 150], LargestBatch(100, 150)),
    ],
)
def test_which_batch_sizes_are_tried(
    find: FindBatch, capacity: int, tried: list[int], answer: LargestBatch
) -> None:
    probes: list[BatchProbe] = []
    while isinstance(size := next_batch(find, probes), int):
        probes.append(BatchProbe(size, size <= capacity))
    assert ([probe.batch_size for probe in probes], size) == (tried, answer)


@given(
    start=st.integers(1, 5000),
    above=st.integers(0, 100_000),
    tolerance=st.floats(0.001, 1),
    capacity=st.integers(0, 200_000),
)
def test_a_search_ends_and_tries_nothing_twice(
    start: int, above: int, tolerance: float, capacity: int
) -> None:
    find = FindBatch(start, start + above, tolerance)
    probes: list[BatchProbe] = []
    while isinstance(found := next_batch(find, probes), int):
        assert 1 <= found <= find.highest
        assert found not in [probe.batch_size for probe in probes]
        probes.append(BatchProbe(found, found <= capacity))
        assert len(probes) < 60
    if found.fits is None:
        assert (capacity, found.too_large) == (0, 1)
    elif found.too_large is None:
        assert found.fits == find.highest <= capacity
    else:
        assert found.fits <= capacity < found.too_large
        assert found.too_large - found.fits <= max(1, int(tolerance * found.fits))


def failed_checks(run: Run) -> dict[str, str]:
    return {check.name: check.finding for check in run.verdict.checks if not check.passed}


def test_a_whole_run_is_valid() -> None:
    run = s.whole_run()
    assert failed_checks(run) == {}
    assert run.verdict.word == "VALID"


def _one(runs: list[TaskRun], end: TrialEnd | None = s.OK) -> dict[str, str]:
    return failed_checks(s.run_of([(s.generate(1), runs, end)]))


def test_what_makes_a_run_invalid() -> None:
    good = s.task_runs()
    assert _one(good) == {}
    assert _one(good[:3], None).keys() == {
        "every trial ended",
        "no trial failed",
    }
    assert "no trial has figures" in _one([s.failed_run(s.MEMORY)], s.MEMORY)["no trial failed"]
    assert "ValueError: no" in _one([s.failed_run(s.FAILED)], s.FAILED)["no trial failed"]
    few = _one(good[:3])
    assert few["at least 3 runs"] == "1 of 1 batch sizes: bf16/generate-p4-n3-b1 (2)"
    assert "2 of 3 runs" in few["every run has the asked output length"]
    short = _one([*good[:3], s.task_run(3, [6, 2])])
    assert short.keys() == {"every run has the asked output length"}
    one_less = _one([s.task_run(index, [6, 2]) for index in range(4)])
    assert "2 new tokens instead of 3" in one_less["every run has the asked output length"]
    spread = _one([*good[:3], s.task_run(3, [12, 2, 2])])
    assert spread.keys() == {"runs of a trial agree within 25%"}
    first = _one([good[0], s.task_run(1, [8, 2, 2]), *good[2:3], s.task_run(3)])
    assert first.keys() == {"the first run is no slower than the others"}


def test_a_prompt_of_another_length_is_found() -> None:
    runs = s.task_runs()
    other = [replace(r, calls=(replace(r.calls[0], prompt_tokens=5),)) for r in runs]
    assert "(5 instead of 4)" in _one(other)["prompts have the asked length"]


def test_a_summary_with_a_call_too_few_is_found() -> None:
    runs = [replace(r, calls=r.calls[1:]) for r in s.summary_runs()]
    run = s.run_of([(s.summarize(), runs, s.OK)])
    assert "every run has the asked output length" not in failed_checks(s.run_of([]))
    # Two calls where both are map calls by the plan: 4 + 8 is not 2 x 4.
    assert (
        "12 new tokens instead of 8" in failed_checks(run)["every run has the asked output length"]
    )


def test_a_search_that_met_no_end_is_told() -> None:
    trial = s.generate(None, find=FindBatch(1, 8, 0.1))
    run = s.run_of([(trial, s.task_runs(8), s.OK)])
    assert failed_checks(run) == {
        "searches found where memory ends": "bf16/generate-p4-n3-find (8 fits)"
    }


def test_nothing_at_all() -> None:
    none = Plan("none", "org/model", (), (), (), "d" * 64)
    assert judge(none, Origin.MEASURED, (), ()).word == "INVALID"

"""What a sweep shows: plain lines byte by byte, and a status on a terminal."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from rich.console import Console

from tests.analysis.samples import OK, deployment, facts, plan, run, trial
from tests.record.samples import load_trial
from tgi_bench.analysis.planned import TrialEstimate, TrialTimes
from tgi_bench.cli.screen import Screen, fitting
from tgi_bench.drive.stage import Progress, StageAsk
from tgi_bench.errors import LaunchError
from tgi_bench.kinds.batch.run import latencies, tell
from tgi_bench.kinds.load.run import LoadTold
from tgi_bench.kinds.running import next_run, ready_in
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.trials.load import ClosedLoop, Find, Sought

ONE, TWO = deployment(1), deployment(2)
TRIALS = tuple(trial(server, size) for server in (ONE, TWO) for size in (1, 2, 4, 8, 16))
PLAN = plan([ONE, TWO], TRIALS)
ESTIMATES = {
    t.trial_id: TrialEstimate(TrialTimes(0.05, "compute", 0.02, "host", 2.0), None, 1e9, "")
    for t in TRIALS
}
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The monotonic clock that the screen reads, in ns; set its one entry."""
    now = [0]
    monkeypatch.setattr("tgi_bench.cli.screen.time.monotonic_ns", lambda: now[0])
    yield now
    now.clear()


DONE = (TRIALS[0].trial_id,)


def play(screen: Screen, clock: list[int]) -> None:
    """A sweep with every kind of end, after DONE."""
    ids = [t.trial_id for t in TRIALS]
    one, two = ONE.deployment_id, TWO.deployment_id
    before = next_run(-1, TRIALS[1].warmups, TRIALS[1].runs)
    screen.starting(one, "starting", "(embedded)")
    screen.ready(one, "ready", ready_in(facts(ONE)))
    screen.begins(ids[1], before)
    for index in range(4):
        tell(screen, TRIALS[1], run(index, [50, 20, 22], 2, warmup=index == 0))
    clock[0] += 3_000_000_000
    screen.ended(ids[1], OK)
    screen.begins(ids[2], before)
    tell(screen, TRIALS[2], ())
    reason = "CUDA out of memory. Tried to allocate 7.66 GiB [bold]not markup[/bold]"
    screen.ended(ids[2], TrialEnd(Outcome.OUT_OF_MEMORY, reason))
    screen.ended(ids[3], TrialEnd(Outcome.SKIPPED, "batch size 4 ran out of memory"))
    screen.begins(ids[4], before)
    screen.ended(ids[4], TrialEnd(Outcome.REFUSED, "needs 9 tokens"))
    screen.starting(two, "starting", "(embedded)")
    log = tuple(f"line {number}" for number in range(1, 13))
    screen.not_started(two, LaunchError("shard 1 crashed", log))
    for each, outcome in zip(
        ids[5:],
        (
            Outcome.LAUNCH_FAILED,
            Outcome.TIMEOUT,
            Outcome.SHARD_DIED,
            Outcome.FAILED,
            Outcome.LAUNCH_FAILED,
        ),
        strict=True,
    ):
        screen.ended(each, TrialEnd(outcome, "its reason"))


def test_plain_lines(clock: list[int], golden: Callable[[str, str], None]) -> None:
    output = io.StringIO()
    console = Console(file=output, width=40, highlight=False)
    play(Screen(console, PLAN, ESTIMATES, DONE), clock)
    golden("plain_lines.txt", output.getvalue())
    assert "\x1b" not in output.getvalue()


def test_no_time_left_is_said_where_nothing_is_known(clock: list[int]) -> None:
    output = io.StringIO()
    lines = Screen(Console(file=output, width=200), PLAN, {})
    lines.ended(TRIALS[0].trial_id, TrialEnd(Outcome.SKIPPED, "because"))
    assert output.getvalue() == f"[ 1/10] skipped  {TRIALS[0].trial_id}  because\n"


def test_every_outcome_has_a_word(clock: list[int]) -> None:
    output = io.StringIO()
    lines = Screen(Console(file=output, width=200), PLAN, {})
    for outcome in Outcome:
        lines.begins(TRIALS[0].trial_id)
        lines.ended(TRIALS[0].trial_id, TrialEnd(outcome, ""))
    assert len(output.getvalue().splitlines()) == len(Outcome)


def live(clock: list[int], **console: bool) -> str:
    output = io.StringIO()
    options = {"force_terminal": True, "color_system": None, **console}
    terminal = Console(file=output, width=200, height=30, highlight=False, **options)  # type: ignore[arg-type]
    with Screen(terminal, PLAN, ESTIMATES, DONE) as screen:
        play(screen, clock)
    return output.getvalue()


def test_the_status_is_gone_at_the_end_and_the_cursor_is_back(clock: list[int]) -> None:
    shown = live(clock)
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1
    # The last thing written erases the status' lines.
    assert shown.rstrip().endswith(("\x1b[2K", "\x1b[?25h"))


def test_an_interrupt_brings_the_cursor_back() -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=80)

    def interrupted() -> None:
        with Screen(console, PLAN, ESTIMATES) as screen:
            screen.begins(TRIALS[0].trial_id)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert output.getvalue().count("\x1b[?25h") == 1


def test_nothing_is_drawn_between_runs_by_itself(clock: list[int]) -> None:
    """No thread redraws: what stands there after a run stands there before the next."""
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=80)
    with Screen(console, PLAN, ESTIMATES) as screen:
        screen.begins(TRIALS[0].trial_id)
        assert screen._live.auto_refresh is False
        assert screen._live._refresh_thread is None


FIND = Find(Sought.MAX_CONCURRENCY, 8.0, 1.0, 64.0, 0.25, 2)
SEARCH = replace(
    load_trial("load-find-max_concurrency"), find=FIND, deployment_id=ONE.deployment_id
)


def search(screen: Screen) -> None:
    """Two loads, of which the second misses."""
    told = LoadTold(screen, SEARCH)
    for index, (value, met) in enumerate(((8, True), (16, False))):
        ask = StageAsk(index, 0, ClosedLoop(value))
        told.begins(ask)
        told.progress(Progress(0.5, 20 * (index + 1), index, 640))
        told.tried(ask, met)
    screen.ended(SEARCH.trial_id, OK)


def test_a_long_load_of_a_search_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter((0.0, 11.0, 11.0))
    monkeypatch.setattr("tgi_bench.cli.screen.time.monotonic", lambda: next(seconds))
    output = io.StringIO()
    planned = replace(PLAN, trials=(), load_trials=(SEARCH,))
    lines = Screen(Console(file=output, width=200, highlight=False), planned, {})
    told = LoadTold(lines, SEARCH)
    told.begins(StageAsk(3, 1, ClosedLoop(12)))
    told.progress(Progress(0.25, 4, 0, 8))
    said = "concurrency 12, load 4 of 12 at most: 25%, 4 requests, 8 tokens"
    assert output.getvalue().splitlines()[1] == f"         {SEARCH.trial_id}: {said}"


def test_latencies() -> None:
    steps = run(0, [50, 20, 22], 2)
    assert latencies(steps) == "prefill 50.0 ms, decode 21.0 ms"
    assert latencies(steps[:1]) == "prefill 50.0 ms"
    assert latencies(()) == ""
    failed = replace(steps[2], outcome=Outcome.FAILED)
    assert latencies([*steps[:2], failed]) == "prefill 50.0 ms, decode 20.0 ms"


def test_a_line_is_cropped_on_a_terminal_only() -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, width=20)
    assert fitting(terminal, "a" * 20) == "a" * 20
    assert fitting(terminal, "one two three four five") == "one two three fou..."
    assert fitting(terminal, "\u4e2d" * 11) == "\u4e2d" * 8 + "..."
    in_a_file = Console(file=io.StringIO(), width=20)
    assert fitting(in_a_file, "a" * 21) == "a" * 21


@pytest.mark.parametrize(("total_s", "said"), [(0.0, False), (0.001, False), (2.0, True)])
def test_next_to_no_time_left_is_not_said(clock: list[int], total_s: float, said: bool) -> None:
    output = io.StringIO()
    times = TrialTimes(0.0, "compute", 0.0, "host", total_s)
    known = {t.trial_id: TrialEstimate(times, None, 1e9, "") for t in TRIALS}
    lines = Screen(Console(file=output, width=200), PLAN, known)
    lines.ended(TRIALS[0].trial_id, TrialEnd(Outcome.SKIPPED, "because"))
    assert (" left)" in output.getvalue()) is said

"""A load that is disturbed: its workers killed, the run interrupted, its listener failing."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.drive.faulty_server import FaultyServer
from tests.drive.loads import MS, Sent, at_rate, prepared, timed, trial
from tgi_bench.drive.load import run_stage
from tgi_bench.drive.stage import Listener, Progress, StageAsk
from tgi_bench.errors import StepError
from tgi_bench.load_observation import LoadStage, RequestOutcome
from tgi_bench.observation import Outcome
from tgi_bench.trials.load import Arrivals, ClosedLoop

LONG = timed(60_000 * MS)
CUT_OFF, OK = RequestOutcome.CUT_OFF, RequestOutcome.OK


def worker_processes() -> list[int]:
    """Of this process, by their command lines."""
    me = os.getpid()
    children = Path(f"/proc/{me}/task/{me}/children").read_text().split()
    found = []
    for child in map(int, children):
        words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        if b"tgi_bench.drive.worker" in words:
            found.append(child)
    return sorted(found)


def run(server: FaultyServer, arrivals: Arrivals, workers: int, then: Callable[[], None]) -> Sent:
    """A long load; `then` is called once some requests have ended."""
    sent = Sent()
    asked = trial(arrivals, LONG, workers=workers)

    def progress(told: Progress) -> None:
        sent.told.append(told)
        if told.ended > 4:
            then()

    try:
        listener = Listener(sent.record, progress)
        run_stage(prepared(server.url, asked), StageAsk(0, 0, asked.arrivals), listener)
    finally:
        assert worker_processes() == []
    return sent


@pytest.mark.parametrize("arrivals", [ClosedLoop(4), at_rate(50.0)])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_that_is_killed(arrivals: Arrivals, workers: int) -> None:
    """Its trial fails; what it and the others had done is kept."""
    sent = Sent()
    asked = trial(arrivals, LONG, workers=workers)
    killed: list[int] = []

    def progress(told: Progress) -> None:
        if told.ended > 4 and not killed:
            killed.append(worker_processes()[0])
            os.kill(killed[0], signal.SIGKILL)

    with FaultyServer() as server:
        server.behaviour("slow")
        ready = prepared(server.url, asked)
        with pytest.raises(StepError, match="ended early: by signal SIGKILL") as caught:
            run_stage(ready, StageAsk(0, 0, asked.arrivals), Listener(sent.record, progress))
        reached = len(server.asked)
    assert caught.value.outcome is Outcome.FAILED
    assert worker_processes() == []
    counts = {one.outcome for one in sent.requests}
    assert counts <= {OK, CUT_OFF, RequestOutcome.DROPPED}
    assert {one.worker for one in sent.requests if one.outcome is OK} == set(range(workers))
    numbers = [one.request_index for one in sent.requests]
    assert len(numbers) == len(set(numbers))
    # Of the killed one at most what was in flight, and not yet handed over, is not known.
    assert reached - 8 <= len([one for one in sent.requests if one.outcome is OK]) <= reached


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupt(workers: int) -> None:
    """What is in flight is cut off and recorded; nothing is left."""
    sent = Sent()
    asked = trial(ClosedLoop(6), LONG, workers=workers)

    def progress(told: Progress) -> None:
        if told.ended > 4:
            os.kill(os.getpid(), signal.SIGINT)

    with FaultyServer() as server:
        server.behaviour("slow")
        ready = prepared(server.url, asked)
        with pytest.raises(KeyboardInterrupt):
            run_stage(ready, StageAsk(0, 0, asked.arrivals), Listener(sent.record, progress))
        reached = len(server.asked)
    assert worker_processes() == []
    cut = [one for one in sent.requests if one.outcome is CUT_OFF]
    assert 1 <= len(cut) <= 6
    assert {one.outcome for one in sent.requests} == {OK, CUT_OFF}
    assert all("ended while it was in flight" in one.reason for one in cut)
    assert len(sent.requests) >= reached  # a request may be cut before the server has read it
    assert len({one.request_index for one in sent.requests}) == len(sent.requests)


def test_an_interrupt_of_an_open_loop_forgets_no_send() -> None:
    sent = Sent()
    asked = trial(at_rate(40.0), LONG, max_in_flight=1)

    def progress(told: Progress) -> None:
        if told.ended > 4:
            os.kill(os.getpid(), signal.SIGINT)

    with FaultyServer() as server:
        server.behaviour("slow")
        ready = prepared(server.url, asked)
        with pytest.raises(KeyboardInterrupt):
            run_stage(ready, StageAsk(0, 0, asked.arrivals), Listener(sent.record, progress))
    seen = sent.in_order
    assert [one.request_index for one in seen] == list(range(len(seen)))
    gaps = {later.intended_ns - one.intended_ns for one, later in pairwise(seen)}
    assert gaps == {25 * MS}
    assert {one.outcome for one in seen} >= {OK, RequestOutcome.DROPPED}


def test_a_listener_that_gives_up_ends_the_load() -> None:
    """As the sweep does where the server died."""
    with FaultyServer() as server:
        server.behaviour("slow")

        def give_up() -> None:
            raise StepError(Outcome.SHARD_DIED, "it died")

        with pytest.raises(StepError, match="it died"):
            run(server, ClosedLoop(2), 1, give_up)


def test_a_load_that_is_cut_off_is_handed_over_as_far_as_it_came() -> None:
    """Its window ends with the last answer where the server died, else when it was ended."""
    for error, reason in (
        (StepError(Outcome.SERVER_DIED, "it died"), "it died"),
        (KeyboardInterrupt(), "interrupted"),
    ):
        stages: list[LoadStage] = []
        sent = Sent()

        def progress(told: Progress, error: BaseException = error) -> None:
            if told.ended > 4:
                raise error

        with FaultyServer() as server:
            server.behaviour("slow")
            asked = trial(ClosedLoop(2), LONG)
            listener = Listener(sent.record, progress, cut_off=stages.append)
            with pytest.raises(type(error)):
                run_stage(prepared(server.url, asked), StageAsk(3, 1, asked.arrivals), listener)
        (stage,) = stages
        assert (stage.index, stage.repeat, stage.concurrency) == (3, 1, 2)
        assert stage.cut_off == reason
        answered = [one for one in sent.requests if one.outcome is RequestOutcome.OK]
        last_ns = max(one.ended_ns for one in answered)
        assert len(answered) > 4
        assert {one.outcome for one in sent.requests} <= {RequestOutcome.OK, RequestOutcome.CUT_OFF}
        if reason == "it died":
            assert stage.measured_until_ns == last_ns
        else:
            # One that was on its way may still have come after it.
            in_time = [o for o in answered if o.ended_ns <= stage.measured_until_ns]
            assert len(in_time) > 4
            assert stage.measured_until_ns <= stage.ended_ns
        assert stage.client.workers == 1


def test_a_worker_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stopped, so that it does nothing at all; the load does not wait for it for ever."""
    monkeypatch.setattr("tgi_bench.drive.load_stage._SLACK_NS", 100 * MS)
    monkeypatch.setattr("tgi_bench.drive.load_stage._CUT_S", 0.1)
    monkeypatch.setattr("tgi_bench.drive.workers._END_S", 0.1)
    asked = trial(ClosedLoop(2), timed(200 * MS), request_timeout_ns=300 * MS)
    sent = Sent()

    def progress(_: Progress) -> None:
        for process in worker_processes():
            os.kill(process, signal.SIGSTOP)

    with FaultyServer() as server:
        ready = prepared(server.url, asked)
        with pytest.raises(StepError, match="hangs"):
            run_stage(ready, StageAsk(0, 0, asked.arrivals), Listener(sent.record, progress))
    assert worker_processes() == []

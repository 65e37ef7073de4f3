"""Whole loads of the client against a server that answers well: every request has its record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.drive.faulty_server import FaultyServer
from tests.drive.loads import (
    MS,
    TOKENS,
    at_rate,
    closed,
    counted,
    most_at_once,
    outcomes,
    parts,
    prepared,
    send,
    send_prepared,
    timed,
    trial,
)
from tgi_bench.drive.load import run_stage
from tgi_bench.drive.stage import Listener, Progress, StageAsk
from tgi_bench.drive.workers import WorkerProcess, started_ahead
from tgi_bench.load_observation import LoadPart, RequestObservation, RequestOutcome
from tgi_bench.plan.corpus import parse_corpus
from tgi_bench.trials.load import (
    ClosedLoop,
    FileKind,
    Fixed,
    OpenLoop,
    Process,
    RatePart,
    TraceTimes,
    Turns,
    Workload,
    WorkloadFile,
)


def _runs(worker: WorkerProcess) -> bool:
    return worker._process.poll() is None


def test_those_that_wait_are_taken_first_and_numbered_again() -> None:
    with started_ahead(2) as ahead:
        (first,) = ahead.taken(1)
        more = ahead.taken(2)
        try:
            assert [first.index, *(worker.index for worker in more)] == [0, 0, 1]
            assert len({worker._process.pid for worker in (first, *more)}) == 3
            assert all(_runs(worker) for worker in (first, *more))
        finally:
            for worker in (first, *more):
                worker.end()
    assert not any(_runs(worker) for worker in (first, *more))


def test_those_that_nobody_took_are_ended() -> None:
    with started_ahead(1) as ahead:
        (waiting,) = ahead._waiting
        assert _runs(waiting)
    assert not _runs(waiting)
    assert waiting._process.returncode == 0


OK = {RequestOutcome.OK}
SECOND = 1000 * MS


@pytest.fixture(scope="module")
def server() -> Iterator[FaultyServer]:
    with FaultyServer() as running:
        yield running


def test_a_closed_loop_by_count(server: FaultyServer) -> None:
    extent = counted(20, warmup=6, cooldown=4)
    stage, seen = send(server.url, trial(ClosedLoop(4), extent))
    assert [one.request_index for one in seen] == list(range(30))
    assert outcomes(seen) == OK
    assert Counter(parts(seen)) == {
        LoadPart.WARMUP: 6,
        LoadPart.MEASURED: 20,
        LoadPart.COOLDOWN: 4,
    }
    assert parts(seen)[:6] == [LoadPart.WARMUP] * 6
    assert parts(seen)[-4:] == [LoadPart.COOLDOWN] * 4
    measured = [one for one in seen if one.part is LoadPart.MEASURED]
    assert stage.measured_from_ns == min(one.intended_ns for one in measured)
    assert stage.measured_until_ns == max(one.ended_ns for one in measured)
    assert (stage.concurrency, stage.rate_per_s, stage.index) == (4, None, 0)
    assert most_at_once(seen) == 4
    assert all(one.intended_ns == one.sent_ns for one in seen)
    assert all(one.output_tokens == TOKENS == len(one.event_ns) for one in seen)
    assert stage.client.connections_reopened == 0
    assert stage.client.connections_opened == 4
    assert not any(one.new_connection for one in seen)


def test_a_closed_loop_by_time(server: FaultyServer) -> None:
    extent = timed(200 * MS, 100 * MS, 100 * MS)
    stage, seen = send(server.url, trial(ClosedLoop(3), extent))
    began = stage.began_ns
    assert (stage.measured_from_ns, stage.measured_until_ns) == (
        began + 100 * MS,
        began + 300 * MS,
    )
    assert outcomes(seen) == OK
    assert set(parts(seen)) == set(LoadPart)
    for one in seen:
        offset = one.intended_ns - began
        assert 0 <= offset < 400 * MS + 50 * MS
        warm, cool = offset < 100 * MS, offset >= 300 * MS
        expected = LoadPart.WARMUP if warm else LoadPart.COOLDOWN if cool else LoadPart.MEASURED
        assert one.part is expected
    assert most_at_once(seen) == 3
    assert [one.request_index for one in seen] == list(range(len(seen)))


def test_what_ends_first_ends_it(server: FaultyServer) -> None:
    both = replace(timed(60 * SECOND), requests=12)
    stage, seen = send(server.url, trial(ClosedLoop(2), both))
    assert len(seen) == 12
    assert stage.measured_until_ns == max(one.ended_ns for one in seen)


@pytest.mark.parametrize(("workers", "concurrency"), [(2, 5), (3, 3), (4, 2)])
def test_several_workers(server: FaultyServer, workers: int, concurrency: int) -> None:
    """Those above the number of streams would have nothing to do, and are not started."""
    asked = closed(150, concurrency, workers=workers)
    stage, seen = send(server.url, asked)
    used = min(workers, concurrency)
    assert [one.request_index for one in seen] == list(range(150))
    assert outcomes(seen) == OK
    assert {one.worker for one in seen} == set(range(used))
    assert stage.client.workers == used == len(stage.client.worker_cpu_ns)
    assert most_at_once(seen) <= concurrency


def offsets_ms(seen: list[RequestObservation], began_ns: int) -> list[int]:
    return [round((one.intended_ns - began_ns) / MS) for one in seen]


def test_an_open_loop_at_a_constant_rate(server: FaultyServer) -> None:
    extent = timed(200 * MS, 100 * MS, 100 * MS)
    stage, seen = send(server.url, trial(at_rate(100.0), extent))
    assert offsets_ms(seen, stage.began_ns) == [10 * i for i in range(40)]
    assert [one.request_index for one in seen] == list(range(40))
    assert outcomes(seen) == OK
    expected = [LoadPart.WARMUP] * 10 + [LoadPart.MEASURED] * 20 + [LoadPart.COOLDOWN] * 10
    assert parts(seen) == expected
    assert all(one.sent_ns is not None and one.sent_ns >= one.intended_ns for one in seen)
    assert (stage.concurrency, stage.rate_per_s) == (None, 100.0)


def test_an_open_loop_of_a_number(server: FaultyServer) -> None:
    _, seen = send(server.url, trial(at_rate(500.0, Process.POISSON), counted(30, 10, 5)))
    assert Counter(parts(seen)) == {
        LoadPart.WARMUP: 10,
        LoadPart.MEASURED: 30,
        LoadPart.COOLDOWN: 5,
    }
    intended = [one.intended_ns for one in seen]
    assert intended == sorted(intended)
    assert outcomes(seen) == OK


def test_the_same_seed_sends_at_the_same_times_over_any_workers(server: FaultyServer) -> None:
    found = []
    for workers in (1, 2):
        asked = trial(at_rate(300.0, Process.POISSON), timed(200 * MS), workers=workers)
        stage, seen = send(server.url, asked)
        found.append([one.intended_ns - stage.began_ns for one in seen])
        assert {one.worker for one in seen} == set(range(workers))
    assert found[0] == found[1]
    assert len(found[0]) > 30


def test_a_ramp(server: FaultyServer) -> None:
    steps = (RatePart(100 * MS, 50.0, 50.0), RatePart(100 * MS, 200.0, 200.0))
    arrivals = OpenLoop(None, steps, Process.CONSTANT, 1.0, 0)
    stage, seen = send(server.url, trial(arrivals, timed(200 * MS)))
    assert offsets_ms(seen, stage.began_ns) == [0, 20, 40, 60, 80, *range(100, 200, 5)]
    assert (stage.concurrency, stage.rate_per_s) == (None, None)


def test_what_is_above_max_in_flight_is_dropped_and_recorded() -> None:
    """The server answers nothing: two are in flight until they time out, and no third is sent."""
    with FaultyServer() as server:
        server.behaviour("never_answers")
        asked = trial(
            at_rate(100.0), timed(300 * MS), max_in_flight=2, request_timeout_ns=SECOND // 2
        )
        _, seen = send(server.url, asked)
        reached = len(server.asked)
    assert len(seen) == 30
    counts = Counter(one.outcome for one in seen)
    assert counts == {RequestOutcome.TIMEOUT: 2, RequestOutcome.DROPPED: 28}
    assert reached == 2
    dropped = [one for one in seen if one.outcome is RequestOutcome.DROPPED]
    assert {one.sent_ns for one in dropped} == {None}
    assert all("most allowed" in one.reason for one in dropped)
    assert most_at_once(seen) == 2


TRACES = {
    FileKind.MOONCAKE: (
        '{"timestamp": 3000, "input_length": 9, "output_length": 2, "hash_ids": [1]}\n'
        '{"timestamp": 1000, "input_length": 4, "output_length": 3, "hash_ids": [2]}\n'
        '{"timestamp": 2000, "input_length": 5, "output_length": 4}\n'
    ),
    FileKind.AZURE: (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:01.0000000,4,3\n"
        "2023-11-16 18:15:02.0000000,5,4\n"
        "2023-11-16 18:15:03.0000000,9,2\n"
    ),
    FileKind.CSV: "time_s,prompt_tokens,output_tokens\n10,4,3\n11,5,4\n12,9,2\n",
}


@pytest.mark.parametrize("kind", TRACES)
@pytest.mark.parametrize("speed", [10.0, 20.0])
def test_a_trace(server: FaultyServer, kind: FileKind, speed: float) -> None:
    file = WorkloadFile("trace", kind, False)
    workload = Workload(None, None, file, None, None, 0)
    asked = trial(TraceTimes(speed), timed(60 * SECOND), workload)
    ready = replace(prepared(server.url, asked), corpus=parse_corpus(kind, TRACES[kind], "trace"))
    stage, seen = send_prepared(ready)
    gap = 1000 // round(speed)
    assert offsets_ms(seen, stage.began_ns) == [0, gap, 2 * gap]
    assert [one.prompt_tokens_asked for one in seen] == [4, 5, 9]
    assert [one.output_tokens for one in seen] == [3, 4, 2]
    assert outcomes(seen) == OK


def test_a_trace_is_cut_where_the_load_ends(server: FaultyServer) -> None:
    lines = ["time_s,prompt_tokens,output_tokens", *(f"{i / 10},4,1" for i in range(100))]
    corpus = parse_corpus(FileKind.CSV, "\n".join(lines), "trace")
    file = WorkloadFile("trace", FileKind.CSV, False)
    workload = Workload(None, None, file, None, None, 0)
    for extent, expected in ((timed(150 * MS), 15), (counted(7), 7)):
        ready = prepared(server.url, trial(TraceTimes(10.0), extent, workload))
        _, seen = send_prepared(replace(ready, corpus=corpus))
        assert len(seen) == expected


def test_not_streamed(server: FaultyServer) -> None:
    _, seen = send(server.url, closed(6, 2, stream=False))
    assert outcomes(seen) == OK
    assert {one.output_tokens for one in seen} == {TOKENS}
    assert {len(one.event_ns) for one in seen} == {1}
    assert {one.path for one in server.asked[-6:]} == {"/generate"}


def test_a_base_path(server: FaultyServer) -> None:
    _, seen = send(f"{server.url}/behind/a/proxy", closed(3, 1))
    assert outcomes(seen) == OK
    assert {one.path for one in server.asked[-3:]} == {"/behind/a/proxy/generate_stream"}


@pytest.mark.parametrize(("name", "reopened"), [("identity_body", False), ("until_close", True)])
def test_connections_that_the_answer_closes_are_counted(name: str, reopened: bool) -> None:
    with FaultyServer() as server:
        server.behaviour(name)
        stage, seen = send(server.url, closed(12, 3))
    assert outcomes(seen) == OK
    assert {one.output_tokens for one in seen} == {TOKENS}
    assert stage.client.connections_reopened == (9 if reopened else 0)
    assert sum(one.new_connection for one in seen) == (9 if reopened else 0)
    assert stage.client.connections_opened + stage.client.connections_reopened == (
        12 if reopened else 3
    )


def test_connections_that_timeouts_closed_are_not_the_servers_doing() -> None:
    with FaultyServer() as server:
        server.behaviour("never_answers")
        stage, seen = send(server.url, closed(6, 2, request_timeout_ns=100 * MS))
    assert outcomes(seen) == {RequestOutcome.TIMEOUT}
    assert len(seen) == 6
    assert sum(one.new_connection for one in seen) == 4
    assert (stage.client.connections_opened, stage.client.connections_reopened) == (6, 0)


def test_connections_that_the_server_closes_while_idle_are_opened_again() -> None:
    """Each of them is closed between two sends, and no request meets that."""
    with FaultyServer(idle_s=0.03) as server:
        _, seen = send(server.url, trial(at_rate(4.0), timed(SECOND)))
        assert server.connections > 4
    assert len(seen) == 4
    assert outcomes(seen) == OK


def test_stamps_in_user_space_say_so(server: FaultyServer) -> None:
    stage, seen = send(server.url, closed(6, 2), kernel_stamps=False)
    assert outcomes(seen) == OK
    assert not any(one.kernel_stamps for one in seen)
    assert not stage.client.kernel_stamps
    assert stage.client.stamp_reason == "asked to do without"
    for one in seen:
        assert one.sent_ns is not None
        assert one.sent_ns < one.event_ns[0] <= one.event_ns[-1] <= one.ended_ns


def test_it_stops_when_it_has_enough() -> None:
    """It is asked once a second, and what is in flight then still ends."""
    with FaultyServer() as server:
        server.behaviour("slow")
        asked = trial(ClosedLoop(2), timed(60 * SECOND))
        seen: list[RequestObservation] = []
        judged: list[int] = []

        def enough(requests: object) -> bool:
            assert isinstance(requests, list)
            judged.append(len(requests))
            return len(requests) >= 8

        listener = Listener(seen.extend, lambda _: None, enough)
        ask = StageAsk(0, 0, asked.arrivals)
        stage = run_stage(prepared(server.url, asked), ask, listener)
    assert judged[-1] >= 8
    assert outcomes(seen) == OK
    assert stage.measured_until_ns - stage.measured_from_ns < 30 * SECOND
    assert stage.ended_ns == max(one.ended_ns for one in seen)


def test_an_open_loop_that_stops_early_drops_nothing() -> None:
    with FaultyServer() as server:
        asked = trial(at_rate(50.0), timed(60 * SECOND))
        seen: list[RequestObservation] = []
        listener = Listener(seen.extend, lambda _: None, lambda requests: len(requests) >= 30)
        run_stage(prepared(server.url, asked), StageAsk(0, 0, asked.arrivals), listener)
    assert 30 <= len(seen) <= 500
    assert outcomes(seen) == OK


def test_conversations_end_without_a_dropped_question(server: FaultyServer) -> None:
    """The end falls among answers, whose users then ask no more."""
    workload = Workload(Fixed(5), Fixed(2), None, None, Turns(Fixed(3), 0), 0)
    asked = trial(ClosedLoop(8), timed(300 * MS), workload)
    stage, seen = send(server.url, asked)
    assert outcomes(seen) == OK
    assert max(one.intended_ns for one in seen) < stage.measured_until_ns
    assert {one.turn for one in seen} == {0, 1, 2}


def test_progress_is_told_to_its_end(server: FaultyServer) -> None:
    told: list[Progress] = []
    seen: list[RequestObservation] = []
    asked = closed(10, 2)
    listener = Listener(seen.extend, told.append)
    run_stage(prepared(server.url, asked), StageAsk(0, 0, asked.arrivals), listener)
    last = told[-1]
    assert (last.share, last.ended, last.failed, last.tokens) == (1.0, 10, 0, 10 * TOKENS)

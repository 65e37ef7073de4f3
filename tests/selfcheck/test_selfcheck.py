"""`tgi-bench selfcheck` with a blocking client in place of ours, against real null servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.selfcheck.blocking_client import BlockingClient
from tgi_bench.cli.report_command import selfcheck as run
from tgi_bench.errors import InputError, LaunchError, TgiBenchError
from tgi_bench.selfcheck import loads, report
from tgi_bench.selfcheck.loads import absorbed, check, held, null_server, open_loop, paced
from tgi_bench.selfcheck.memory_watch import tree_bytes, watched
from tgi_bench.selfcheck.report import SelfcheckOptions, quick_floor
from tgi_bench.server.null.timing import StreamPace
from tgi_bench.trials.load import ClosedLoop, Fixed, OpenLoop

SHORT_S = 0.1


def test_every_figure_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    client = BlockingClient()
    options = SelfcheckOptions(streams=(1, 4), seconds=SHORT_S, form="json", held=0)
    assert run(options, client) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "tgi-bench-selfcheck"
    assert document["agrees"] is True
    assert "CPU cores" in document["machine"]
    one, four, opened, instant = document["loads"]
    assert (one["streams"], four["streams"], instant["streams"]) == (1, 4, 64)
    for load in (one, four, opened):
        assert load["interval_ns"] == 20_000_000
        assert load["null_server"]["lateness_ns"]["p50"] >= 0
        assert load["itl_error_ns"]["p50"] <= load["itl_error_ns"]["p99"]
        assert load["events"] == load["tokens_per_request"] * load["requests"]["compared"]
    assert opened["rate_per_s"] == 200
    assert opened["start_lateness_ns"]["p50"] >= 0
    assert one["start_lateness_ns"] is None
    assert instant["itl_error_ns"] is None
    assert instant["null_server"]["lateness_ns"] is None
    assert [trial.workers for trial in client.trials] == [None, None, None, 1]
    assert not any(load["kernel_stamps"] for load in document["loads"])
    assert one["stamp_reason"] == "read in user space"


def test_the_table_says_what_it_is_of(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loads, "_HELD_INTERVAL_NS", 20_000_000)
    options = SelfcheckOptions(streams=(2,), seconds=SHORT_S, held=8)
    client = BlockingClient(most=8)
    assert run(options, client) == 0
    told = capsys.readouterr().out
    assert "paced 20 ms, 2 streams" in told
    assert "held, 8 streams" in told
    assert "MiB" in told
    assert "in user space: read in user space" in told
    assert "CPU cores: " in told
    assert "disagree" not in told


def test_a_client_that_loses_events_fails_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    def lossy(url: str, trial: object) -> object:
        stage, requests = client(url, trial)  # type: ignore[arg-type]
        if len(requests) > 1:
            requests[0].event_ns.pop()
        return stage, requests

    client = BlockingClient()
    options = SelfcheckOptions(streams=(4,), seconds=SHORT_S, held=0)
    assert run(options, lossy) == 1  # type: ignore[arg-type]
    assert "1 have another number of events there" in capsys.readouterr().out


def test_a_client_without_ids_is_told() -> None:
    with pytest.raises(TgiBenchError, match="no request could be compared"):
        check(paced(1, SHORT_S), BlockingClient(most=1, name_of=lambda index: "other"))


def test_a_client_that_repeats_an_id_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        check(paced(2, SHORT_S), BlockingClient(most=2, name_of=lambda index: "0-0"))


def test_a_floor_for_a_report() -> None:
    floor = quick_floor(3, BlockingClient(most=3))
    assert (floor.streams, floor.interval_ns, floor.events) == (3, 20_000_000, 3 * 8)
    assert floor.itl_error_ns is not None
    assert floor.start_lateness_ns is None


def test_an_open_loops_floor_has_its_start_lateness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_QUICK_S", SHORT_S)
    floor = quick_floor(None, BlockingClient(most=4))
    assert floor.streams == 64
    assert floor.start_lateness_ns is not None


def test_held_streams_are_all_in_flight() -> None:
    load = held(6)
    quick = StreamPace(20_000_000, 20_000_000, 20_000_000)
    result = check(replace(load, pace=quick), BlockingClient())
    assert result.most_in_flight == 6
    assert result.memory_bytes is not None
    assert result.memory_bytes > 1 << 20


@pytest.mark.parametrize(
    ("streams", "seconds", "tokens"),
    [(1, 10.0, 8), (1, 40.0, 20), (16, 10.0, 80), (64, 10.0, 128), (512, 1.0, 128)],
)
def test_answers_are_long_where_there_are_requests_enough(
    streams: int, seconds: float, tokens: int
) -> None:
    load = paced(streams, seconds)
    assert load.trial.workload.output == Fixed(tokens)
    assert load.trial.arrivals == ClosedLoop(streams)
    assert load.trial.extent.duration_ns == round(seconds * 1e9)


def test_the_other_loads() -> None:
    arrivals = open_loop(1).trial.arrivals
    assert isinstance(arrivals, OpenLoop)
    assert arrivals.rate_per_s == 200
    assert absorbed(1).pace.instant
    assert held(5000).trial.extent.requests == 5000
    assert held(5000).trial.extent.duration_ns is None


def test_more_streams_than_open_files_are_refused() -> None:
    with pytest.raises(InputError, match="open files and this machine allows"):
        run(SelfcheckOptions(streams=(10**9,)), BlockingClient())


def test_a_null_server_that_died_is_told() -> None:
    with null_server(StreamPace(0, 0, 0)) as server:
        os.kill(server.pid, 9)
        with pytest.raises(LaunchError, match="ended with -9"):
            server.stop()


def test_a_null_server_that_cannot_start_tells_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pytest.raises(LaunchError, match="ended with 2") as caught,
        null_server(StreamPace(-1, 0, 0)),
    ):
        pass
    assert any("--interval-ns" in line for line in caught.value.log_tail)


def test_memory_of_a_child_counts_and_of_one_left_out_does_not() -> None:
    program = "import sys; big = bytearray(b'x' * (40 << 20)); print(1, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        whole = tree_bytes(os.getpid(), frozenset())
        without = tree_bytes(os.getpid(), frozenset((child.pid,)))
        assert whole - without > 40 << 20
        with watched(()) as peak:
            assert peak.bytes is None
        assert peak.bytes is not None
        assert peak.bytes > 40 << 20
        child.communicate(b"\n")


def test_memory_of_a_process_that_is_gone_is_none() -> None:
    assert tree_bytes(2**30, frozenset()) == 0

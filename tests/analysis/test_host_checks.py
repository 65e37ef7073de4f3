"""Whether other programs left a server its CPU: figures as /proc gave them on 2 cores."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.analysis.load_samples import CLOSED, MS, STAGE, S, lane
from tgi_bench.analysis.rules import CheckStatus
from tgi_bench.kinds.load.figures import LoadRow, LoadSummary, load_rows
from tgi_bench.kinds.load.host_rules import ALONE, host_checks, others_ns, waiting_for_others
from tgi_bench.kinds.load.rules import load_checks
from tgi_bench.kinds.load.summary import summarise_stage
from tgi_bench.load_observation import ServerCpu, ServerHost, StageConditions, Untold
from tgi_bench.observation import Outcome, TrialEnd


def of_cores(
    busy: float, client: float, server: float, waited: float, seen: float = 1.0
) -> ServerHost:
    """Each in cores over 10 s; waited: threads on average. seen: of the server's time."""
    cpu, ran, wait = (round(10 * S * value) for value in (server, server * seen, waited * seen))
    return ServerHost(
        cores=2,
        wall_ns=10 * S,
        busy_ns=round(10 * S * busy),
        client_ns=round(10 * S * client),
        server=ServerCpu(1, 5, cpu, ran, wait),
    )


ELSEWHERE = ServerHost(2, 10 * S, 5 * S, 3 * S, None, Untold.ELSEWHERE)
UNKNOWN = replace(ELSEWHERE, busy_ns=None)


def rows(*hosts: ServerHost | None) -> tuple[LoadSummary, tuple[LoadRow, ...]]:
    every = lane(8, 400 * MS, 10 * S)
    stages = (replace(STAGE, conditions=StageConditions(host=host)) for host in hosts)
    summaries = tuple(summarise_stage(CLOSED, stage, every) for stage in stages)
    load = LoadSummary(CLOSED, TrialEnd(Outcome.OK, ""), summaries, None)
    return load, load_rows((load,))


@pytest.mark.parametrize(
    ("host", "waiting", "status"),
    [
        # measured: two busy loops beside a server that computes all the time: tokens/s -39 %
        (of_cores(1.98, 0.06, 0.57, 1.02), 0.695, CheckStatus.FAILED),
        # and beside one that mostly sleeps: -37 %
        (of_cores(1.99, 0.04, 0.15, 0.89), 0.805, CheckStatus.FAILED),
        # others computed as much, and the server went before them: tokens/s as alone
        (of_cores(1.97, 0.05, 0.33, 0.023), 0.0186, CheckStatus.PASSED),
        # client and server alone on 2 cores, and in each other's way
        (of_cores(1.95, 0.9, 0.95, 0.6), 0.0308, CheckStatus.PASSED),
        # 16 threads on 2 cores wait for each other
        (of_cores(2.0, 0.05, 1.88, 14.0), 0.49, CheckStatus.PASSED),
        # half of the threads ended before they were seen: the others stand for them
        (of_cores(1.98, 0.06, 0.57, 1.02, seen=0.5), 0.695, CheckStatus.FAILED),
        (of_cores(1.98, 0.06, 0.57, 1.02, seen=0.2), None, CheckStatus.NOT_CHECKED),
        (ELSEWHERE, None, CheckStatus.NOT_CHECKED),
        (UNKNOWN, None, CheckStatus.NOT_CHECKED),
    ],
)
def test_threads_that_wait_for_others(
    host: ServerHost, waiting: float | None, status: CheckStatus
) -> None:
    found = waiting_for_others(host)
    assert found == (None if waiting is None else pytest.approx(waiting, rel=0.01))
    load, every = rows(host)
    (check,) = host_checks(every)
    assert check.status is status
    assert check in load_checks((load,))
    assert check.name == ALONE.name


def test_what_was_found_and_what_mends_it() -> None:
    _, every = rows(of_cores(1.98, 0.06, 0.57, 1.02))
    (check,) = host_checks(every)
    assert "0.70 of its threads waited for them on average, limit 0.15" in check.finding
    assert "took 1.35 of 2 cores, the server 0.57, this client 0.06" in check.finding
    assert "taskset" in check.remedy


def test_why_nobody_can_tell_is_said() -> None:
    away = replace(ELSEWHERE, untold=Untold.FORWARDED)
    _, every = rows(ELSEWHERE, away, None)
    (check,) = host_checks(every)
    assert check.finding == (
        "the server is another machine's, what listens at its address works with another server"
    )
    _, every = rows(None)
    assert host_checks(every)[0].finding == ALONE.unmade


def test_an_engine_that_hands_on_is_not_the_server() -> None:
    """What its backend computes on the same machine is not another program's."""
    load, _ = rows(of_cores(1.98, 0.06, 0.57, 1.02))
    (summary,) = load.stages
    told = replace(summary.stage.conditions, engine="litellm")
    proxy = replace(summary, stage=replace(summary.stage, conditions=told))
    (check,) = host_checks(load_rows((replace(load, stages=(proxy,)),)))
    assert check.status is CheckStatus.NOT_CHECKED
    assert check.finding == "what listens at its address works with another server"


def test_what_others_took() -> None:
    assert others_ns(of_cores(1.5, 0.25, 0.75, 0)) == 5 * S
    assert others_ns(ELSEWHERE) == 2 * S
    assert others_ns(of_cores(0.5, 0.25, 0.75, 0)) == 0  # ticks are coarse
    assert others_ns(UNKNOWN) is None

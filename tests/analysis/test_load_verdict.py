from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from tests.analysis.load_samples import CLIENT, CLOSED, MS, OPEN, OPEN_STAGE, STAGE, S, lane
from tests.analysis.samples import deployment, ended, plan, record, summary, trial
from tests.report.made import judge
from tgi_bench.analysis.rules import Check, CheckStatus, Verdict
from tgi_bench.analysis.run import Origin
from tgi_bench.analysis.samples import Figure, LoadDistribution
from tgi_bench.kinds.load.figures import (
    Begin,
    CachedTokens,
    LoadSummary,
    Moved,
    Part,
    Reopening,
    SearchAnswer,
    Shift,
    Silences,
    StageSummary,
    Steadiness,
)
from tgi_bench.kinds.load.rules import load_checks
from tgi_bench.kinds.load.summary import summarise_stage
from tgi_bench.load_observation import (
    CacheCounters,
    ClientFacts,
    ClientFloor,
    RequestOutcome,
    ServerHost,
    SmallWrites,
    StageConditions,
    Untold,
    Waits,
)
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.trials.load import (
    FileKind,
    Find,
    Fixed,
    LoadTrial,
    OpenLoop,
    Process,
    SharedPrefix,
    Slo,
    Sought,
    Turns,
    Until,
    WorkloadFile,
)

OK = TrialEnd(Outcome.OK, "")
BASE = summarise_stage(CLOSED, STAGE, lane(8, 400 * MS, 10 * S))
OPEN_BASE = replace(summarise_stage(OPEN, OPEN_STAGE, lane(4, 400 * MS, 10 * S)), rate_per_s=10.0)
FLOOR = ClientFloor(
    streams=64,
    interval_ns=20 * MS,
    events=10_000,
    events_per_s=3200.0,
    cpu_ns_per_event=9_000.0,
    ttft_error_ns=(50_000.0, 90_000.0, 2 * MS),
    itl_error_ns=(1_000.0, 2_000.0, 9_000.0),
    start_lateness_ns=None,
    kernel_stamps=True,
)


def load(stage: StageSummary, asked: LoadTrial = CLOSED) -> LoadSummary:
    return LoadSummary(asked, OK, (stage,), None)


def check(name: str, loads: tuple[LoadSummary, ...], *floors: ClientFloor) -> Check:
    (found,) = [c for c in load_checks(loads, floors) if name in c.name]
    return found


def client(**changes: object) -> Callable[[StageSummary], StageSummary]:
    def change(stage: StageSummary) -> StageSummary:
        facts: ClientFacts = replace(CLIENT, **changes)  # type: ignore[arg-type]
        return replace(stage, stage=replace(stage.stage, client=facts))

    return change


def busy(stage: StageSummary) -> StageSummary:
    """A worker took 60 % of a core."""
    return client(worker_cpu_ns=(S, 6 * S))(stage)


def waited(share: float) -> Callable[[StageSummary], StageSummary]:
    """A process of the client, for a core, of the time of the stage."""
    waited_ns = round(share * CLIENT.wall_ns)
    host = ServerHost(2, 10 * S, None, S, None, Untold.UNSEEN, client_waited_ns=waited_ns)

    def change(stage: StageSummary) -> StageSummary:
        return replace(stage, stage=replace(stage.stage, conditions=StageConditions(host=host)))

    return change


def fields(**changes: object) -> Callable[[StageSummary], StageSummary]:
    return lambda stage: replace(stage, **changes)  # type: ignore[arg-type]


def reopened(connections: int, resent: int, moved: float) -> Callable[[StageSummary], StageSummary]:
    """Of 200 requests."""
    cost = fields(reopening=Reopening(connections, resent, 0.2 * MS, moved))
    counted = client(connections_reopened=connections)
    return lambda stage: cost(counted(stage))


def refused(concurrency: float) -> Callable[[StageSummary], StageSummary]:
    """Slots waited 312 times."""
    conditions = StageConditions(waits=Waits(312, 4100 * MS, S))

    def change(stage: StageSummary) -> StageSummary:
        told = replace(stage.stage, conditions=conditions)
        return replace(stage, stage=told, concurrency=concurrency)

    return change


def control(
    ttft_ms: float,
    quickack_ms: float | None,
    load_after_head_ms: float | None = None,
    shared_reads: int = 0,
    apart: bool = True,
) -> Callable[[StageSummary], StageSummary]:
    """Control requests, whose first tokens came 1 ms less after their heads than after sent."""
    quick = None if quickack_ms is None else quickack_ms * MS
    after = None if load_after_head_ms is None else load_after_head_ms * MS
    found = SmallWrites(3, ttft_ms * MS, quick, (ttft_ms - 1) * MS, after, apart)

    def change(stage: StageSummary) -> StageSummary:
        told = replace(stage.stage, conditions=StageConditions(small_writes=found))
        return replace(stage, stage=told, shared_reads=shared_reads)

    return change


def sent(rate_per_s: float, scheduled_per_s: float) -> Callable[[StageSummary], StageSummary]:
    return fields(rate_per_s=rate_per_s, scheduled_per_s=scheduled_per_s)


def lengths(**changes: int) -> Callable[[StageSummary], StageSummary]:
    return lambda stage: replace(stage, lengths=replace(stage.lengths, **changes))


def spread(p50: float, half: float | None) -> LoadDistribution:
    assert BASE.e2e is not None
    figure = Figure(p50, None, None)
    if half is not None:
        figure = Figure(p50, p50 * (1 - half), p50 * (1 + half))
    return replace(BASE.e2e, p50=figure)


def lag(p99: float | None, highest: float) -> LoadDistribution:
    assert BASE.send_lag is not None
    figure = None if p99 is None else Figure(p99, None, None)
    return replace(BASE.send_lag, p99=figure, highest=highest)


def shifted(
    metric: str, share: float, part: Part = Part.SECOND_HALF, deviations: float = 6.0
) -> Callable[[StageSummary], StageSummary]:
    return fields(steadiness=Steadiness((Shift(metric, part, share, deviations),)))


def began(first_ns: float) -> Callable[[StageSummary], StageSummary]:
    """Later ones have a p90 of 100 ms."""
    return fields(steadiness=Steadiness(begin=Begin(first_ns, 100 * MS)))


def tokens(half: float) -> Callable[[StageSummary], StageSummary]:
    return fields(output_tokens_per_s=Figure(80.0, 80 * (1 - half), 80 * (1 + half)))


def stood(held: int) -> Callable[[StageSummary], StageSummary]:
    """Of 200 requests."""
    silences = Silences(count=1, longest_ns=S, total_ns=S, held=held, limit_ns=100.0 * MS)
    return fields(steadiness=Steadiness(silences=silences))


def outcomes(**counts: int) -> Callable[[StageSummary], StageSummary]:
    kinds = tuple((RequestOutcome(kind), count) for kind, count in counts.items())
    return fields(outcomes=kinds, reasons=(("60 s passed", 1),), failed_for="60 s passed")


def test_an_slo_of_an_itl_that_cannot_be_measured() -> None:
    asked = replace(CLOSED, slos=(Slo("itl_p99", 50 * MS),))
    stage = replace(BASE, itl=None, unmeasurable={"itl": 3.35}, slos_met=((None, None),))
    found = check("percentiles that decide", (load(stage, asked),))
    assert found.status is CheckStatus.FAILED
    assert "itl_p99 is not measurable: 3.35 tokens an event" in found.finding
    assert "event_gap or e2e" in found.remedy
    until = replace(CLOSED, extent=replace(CLOSED.extent, until=Until("itl_p50", 0.02)))
    found = check("until their interval was narrow", (load(stage, until),))
    assert "itl_p50 is not measurable" in found.finding
    assert "event_gap or e2e" in found.remedy
    gaps = replace(CLOSED, slos=(Slo("event_gap_p50", 500 * MS),))
    assert check("percentiles that decide", (load(stage, gaps),)).passed


def test_good_loads_fail_nothing() -> None:
    found = load_checks((load(BASE), load(OPEN_BASE, OPEN)), (FLOOR,))
    assert [c.name for c in found if not c.passed] == []
    assert all(c.finding for c in found)
    assert len({c.name for c in found}) == len(found)
    assert [c.name for c in found if not c.made] == [
        "other programs left the server its CPU",
        "prompts were not cached",
        "texts were sent once",
        "loads went on until their interval was narrow",
        "the server's count is that of the text that it sends",
        "answers come from the model that was asked for",
        "answers come as they are made",
        "the client waited for a core at most 10% of the time",
        "waiting for acknowledgements is at most 10% of TTFT",
    ]


def test_loads_without_a_stage_are_not_checked() -> None:
    found = load_checks((LoadSummary(CLOSED, TrialEnd(Outcome.LAUNCH_FAILED, "x"), (), None),))
    assert {c.status for c in found} == {CheckStatus.NOT_CHECKED}


def cached(beyond: int, told: int = 200) -> Callable[[StageSummary], StageSummary]:
    """Of 1,000 prompt tokens, a tenth of which may be shared."""
    return fields(cached=CachedTokens(told, 1000 if told else 0, beyond, beyond, 0.1))


def counters(tokens: int) -> Callable[[StageSummary], StageSummary]:
    """Cached by /metrics, of 1,000, where answers tell nothing."""

    def change(summary: StageSummary) -> StageSummary:
        counted = CacheCounters(1000, tokens, "/metrics: a counter")
        said = replace(summary.stage.conditions, cache=counted)
        return replace(cached(0, told=0)(summary), stage=replace(summary.stage, conditions=said))

    return change


@dataclass(frozen=True, slots=True)
class Case:
    """Where a check lies: the worst that passes, and the least that fails."""

    name: str
    passing: Callable[[StageSummary], StageSummary]
    failing: Callable[[StageSummary], StageSummary]
    remedy: str
    asked: LoadTrial = CLOSED


ASKED_UNTIL = replace(CLOSED, extent=replace(CLOSED.extent, until=Until("ttft_p50", 0.02)))
MOVED = Moved("ttft_p99", 0.011)
P999 = replace(CLOSED, slos=(Slo("ttft_p999", S),))
POISSON = replace(OPEN, arrivals=OpenLoop(10.0, (), Process.POISSON, 1.0, 0))

CASES = [
    Case("has answers", fields(), fields(requests=0), "load.duration"),
    Case("has answers", fields(), fields(e2e=None), "load.duration"),
    Case("concurrency", fields(concurrency=7.6), fields(concurrency=7.5), "workers idle: "),
    Case("concurrency", refused(7.6), refused(7.5), "lower load.concurrency"),
    Case(
        "concurrency",
        fields(concurrency=7.6),
        lambda stage: replace(busy(stage), concurrency=7.5),
        "raise load.workers",
    ),
    Case(
        "concurrency",
        fields(concurrency=7.6),
        fields(concurrency=7.5, e2e=spread(2 * S, 0.1)),
        "load.duration",
    ),
    Case("schedule", sent(10.19, 10.0), sent(10.21, 10.0), "client's machine", OPEN),
    Case("schedule", sent(9.81, 10.0), sent(9.79, 10.0), "client's machine", OPEN),
    # what a Poisson process drew is what is to be sent
    Case("schedule", sent(8.0, 8.0), sent(8.0, 8.2), "client's machine", POISSON),
    # 100 sends of it: 4 standard deviations are 40 %
    Case("schedule", sent(6.1, 6.1), sent(5.9, 5.9), "load.duration", POISSON),
    Case(
        "schedule",
        sent(10.0, 10.0),
        fields(rate_per_s=9.0, scheduled_per_s=10.0, dropped=10),
        "load.max_in_flight",
        OPEN,
    ),
    Case(
        "send on time",
        fields(send_lag=lag(MS, 9 * MS)),
        lambda stage: replace(busy(stage), send_lag=lag(2 * MS, 9 * MS), lag_moves=MOVED),
        "raise load.workers",
        OPEN,
    ),
    Case(
        "send on time",
        fields(send_lag=lag(MS, 9 * MS)),
        lambda stage: replace(
            client(parent_cpu_ns=7 * S)(stage), send_lag=lag(2 * MS, 9 * MS), lag_moves=MOVED
        ),
        "the process that makes the requests",
        OPEN,
    ),
    Case("dropped", fields(dropped=0), fields(dropped=1), "load.max_in_flight"),
    Case("failed", outcomes(ok=200), outcomes(ok=199, timeout=1), "load.request_timeout"),
    Case(
        "failed",
        outcomes(ok=190, timeout=10),
        outcomes(ok=189, timeout=11),
        "load.request_timeout",
        replace(CLOSED, slos=(Slo("success", 0.95),)),
    ),
    Case("cut off", outcomes(ok=199, cut_off=1), outcomes(ok=198, cut_off=2), "load.cooldown"),
    Case("ended early", lengths(early=10), lengths(early=11), "ignore_eos"),
    Case("outputs have", lengths(short_or_long=2), lengths(short_or_long=3), "max_total_tokens"),
    Case("prompts of", lengths(wrong_prompts=2), lengths(wrong_prompts=3), "load.tokenizer"),
    Case("not cached", cached(beyond=10), cached(beyond=11), "workload.seed"),
    Case("not cached", counters(110), counters(111), "shared_prefix"),
    Case(
        "not cached",
        fields(prefix_suspicion=0.2, concurrency=2.0),
        fields(prefix_suspicion=0.19, concurrency=2.0),
        "PREFIX_CACHING",
    ),
    Case("halves", shifted("e2e", -0.1), shifted("e2e", -0.11), "load.warmup"),
    Case("halves", shifted("ttft", 0.1), shifted("ttft", 0.11), "load.warmup"),
    Case("halves", shifted("tpot", 0.1), shifted("tpot", 0.11), "load.warmup"),
    Case(
        "halves",
        shifted("e2e", 0.5, deviations=-3.5),
        shifted("e2e", 0.5, deviations=-3.6),
        "load.warmup",
    ),
    Case(
        "halves",
        shifted("e2e", 0.5, deviations=5.0),
        shifted("e2e", 0.5, deviations=5.1),
        "load.rate",
        OPEN,
    ),
    Case(
        "middle",
        shifted("tpot", 0.25, Part.MIDDLE),
        shifted("tpot", 0.26, Part.MIDDLE),
        "other programs",
    ),
    Case("first requests", began(110 * MS), began(111 * MS), "load.warmup"),
    Case("tokens/s of closed", tokens(0.05), tokens(0.051), "load.duration"),
    Case("stand still", stood(2), stood(3), "what stopped the server"),
    Case(
        "enough requests",
        fields(),
        fields(e2e=replace(spread(MS, None), requests=9)),
        "load.duration",
    ),
    Case(
        "enough requests",
        fields(ttft=replace(spread(MS, None), requests=1000)),
        fields(ttft=replace(spread(MS, None), requests=999)),
        "load.requests",
        P999,
    ),
    Case(
        "enough requests",
        fields(itl=replace(spread(MS, None), requests=100, count=6300)),
        fields(itl=replace(spread(MS, None), requests=99, count=6300)),
        "load.requests",
        replace(CLOSED, slos=(Slo("itl_p99", S),)),
    ),
    Case(
        "intervals of the median",
        fields(ttft=spread(MS, 0.2)),
        fields(ttft=spread(MS, 0.21)),
        "load.duration",
    ),
    Case(
        "went on until",
        fields(ttft=spread(MS, 0.025)),
        fields(ttft=spread(MS, 0.026)),
        "load.until",
        ASKED_UNTIL,
    ),
    Case("went on until", fields(), fields(ttft=spread(MS, None)), "load.duration", ASKED_UNTIL),
    Case(
        "send on time",
        fields(send_lag=lag(MS, 9 * MS)),
        fields(send_lag=lag(MS + 1, 9 * MS), lag_moves=MOVED),
        "client's machine",
        OPEN,
    ),
    Case(
        "send on time",
        fields(send_lag=lag(0.5 * MS, S), ttft=spread(5 * MS, 0.1)),
        fields(send_lag=lag(0.51 * MS, S), ttft=spread(5 * MS, 0.1), lag_moves=MOVED),
        "client's machine",
        OPEN,
    ),
    Case(
        "send on time",
        fields(send_lag=lag(None, MS)),
        fields(send_lag=lag(None, 1.1 * MS), lag_moves=MOVED),
        "client's machine",
        OPEN,
    ),
    Case(
        "send on time",
        fields(send_lag=lag(9 * MS, 9 * MS), lag_moves=Moved("e2e_mean", 0.01)),
        fields(send_lag=lag(9 * MS, 9 * MS), lag_moves=Moved("e2e_mean", 0.011)),
        "client's machine",
        OPEN,
    ),
    Case(
        "send on time",
        fields(send_lag=lag(MS, 9 * MS), lag_moves=None),
        fields(send_lag=lag(MS + 1, 9 * MS), lag_moves=None),
        "client's machine",
        OPEN,
    ),
    Case(
        "of a core",
        client(worker_cpu_ns=(S, 8 * S)),
        client(worker_cpu_ns=(S, 8 * S + 1)),
        "load.workers",
    ),
    Case("of a core", client(), client(parent_cpu_ns=9 * S), "load.workers"),
    Case(
        "kept open",
        client(connections_reopened=2),
        client(connections_reopened=3),
        "server.url",
    ),
    Case(
        "kept open",
        reopened(200, 200, 0.01),
        reopened(200, 200, 0.011),
        "service TTFT",
    ),
    Case("kept open", reopened(2, 0, 0.5), reopened(3, 0, 0.5), "server.url"),
    Case("waited for a core", waited(0.1), waited(0.101), "taskset"),
    Case("clock", client(clock_step_ns=-MS), client(clock_step_ns=-MS - 1), "synchronisation"),
    Case("reads of their own", fields(shared_reads=40), fields(shared_reads=41), "buffering"),
    Case(
        "reads of their own",
        control(43.9, 4.1, shared_reads=40),
        control(43.9, 4.1, shared_reads=41),
        "load.quickack: true: the server holds",
    ),
    # TTFT of the load is 100 ms at p50.
    Case("acknowledgements", control(43.9, 34.0), control(43.9, 33.8), "load.quickack: true"),
    Case("acknowledgements", control(60.0, 48.1), control(60.0, 47.9), "load.quickack: true"),
    Case("acknowledgements", control(43.9, None), control(43.9, 4.1), "TCP_NODELAY"),
    Case(
        "acknowledgements",
        control(43.9, 4.1, load_after_head_ms=54.0),
        control(43.9, 4.1, load_after_head_ms=53.0),
        "load.quickack: true",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_check_passes_up_to_its_limit_and_fails_beyond(case: Case) -> None:
    base = OPEN_BASE if isinstance(case.asked.arrivals, OpenLoop) else BASE
    if case.asked is P999:
        assert not check(case.name, (load(base, case.asked),)).passed  # has 200
    good = check(case.name, (load(case.passing(base), case.asked),))
    assert good.passed, good.finding
    assert good.made
    assert good.remedy == ""
    bad = check(case.name, (load(base, case.asked), load(case.failing(base), case.asked)))
    assert not bad.passed
    assert bad.finding.startswith("2 of 2" if case.asked is P999 else "1 of ")
    assert case.asked.trial_id in bad.finding
    assert case.remedy in bad.remedy


def test_what_waits_for_acknowledgements_is_said() -> None:
    name, quick = "acknowledgements", replace(CLOSED, quickack=True)
    found = check(name, (load(control(43.9, 4.1)(BASE)),))
    assert (
        "alone, a first token took 43.9 ms, and 4.1 ms where reads were acknowledged at once: up "
        "to 39.8 ms of TTFT is the connection's, not the model's, of 100 ms (p50)" in found.finding
    )
    later = check(name, (load(control(43.9, 4.1, 80.0)(BASE)),))
    assert later.passed
    assert "this load's came 80 ms after their heads, so none waited" in later.finding
    assert check(name, (load(control(43.9, 43.0)(BASE)),)).passed
    assert not check(name, (load(control(43.9, 4.1, apart=False)(BASE)),)).made
    assert check(name, (load(control(43.9, 43.0, apart=False)(BASE)),)).made
    assert check(name, (load(control(43.9, 4.1)(BASE), quick),)).passed
    shared = check("reads of their own", (load(control(43.9, 4.1, None, 999)(BASE), quick),))
    assert "buffering" in shared.remedy
    assert not check(name, (load(control(43.9, 4.1)(BASE), replace(CLOSED, stream=False)),)).made


@pytest.mark.parametrize(
    ("stage", "asked", "why"),
    [
        (BASE, replace(CLOSED, stream=False), "nothing was streamed"),
        (BASE, CLOSED, "no control requests were answered"),
        (control(43.9, 4.1, apart=False)(BASE), CLOSED, "too unlike each other"),
    ],
)
def test_why_waiting_for_acknowledgements_was_not_checked(
    stage: StageSummary, asked: LoadTrial, why: str
) -> None:
    found = check("acknowledgements", (load(stage, asked),))
    assert not found.made
    assert why in found.finding
    assert ", or " not in found.finding


def test_loads_that_one_thing_mends_say_it_once() -> None:
    """Their workers took 10% and 20% of a core: that is of the finding."""
    few = fields(concurrency=7.0)(BASE)
    loads = (load(few), load(client(worker_cpu_ns=(S, 2 * S))(few)))
    found = check("of the asked concurrency", loads)
    for share in ("10%", "20%"):
        assert f"7 of 8; the busiest worker took {share} of a core" in found.finding
    assert found.remedy.count("see what requests waited for") == 1
    late = fields(send_lag=lag(2 * MS, 9 * MS), lag_moves=MOVED)(BASE)
    behind = (load(late, OPEN), load(client(worker_cpu_ns=(S, 2 * S))(late), OPEN))
    assert check("send on time", behind).remedy.count("were idle") == 1


def test_a_closed_loop_that_was_refused_says_how_often_it_waited() -> None:
    stage = refused(2.0)(outcomes(ok=190, overloaded=10)(BASE))
    words = "waited 312 times, 4.1 s in all, 1 s at most, because the server refused"
    for name in ("of the asked concurrency", "of the requests failed"):
        assert words in check(name, (load(stage),)).finding
    once = replace(stage.stage, conditions=StageConditions(waits=Waits(1, 10 * MS, 10 * MS)))
    found = check("of the asked concurrency", (load(replace(stage, stage=once)),))
    assert "it waited once, 10 ms in all, because the server refused" in found.finding


def test_the_clients_own_error() -> None:
    name = "own error"
    assert check(name, (load(BASE),)).status is CheckStatus.NOT_CHECKED
    assert check(name, (load(BASE),), FLOOR).status is CheckStatus.PASSED
    user = replace(FLOOR, kernel_stamps=False, itl_error_ns=(11 * MS, 12 * MS, 13 * MS))
    assert not check(name, (load(client(kernel_stamps=False)(BASE)),), user).passed
    assert check(name, (load(BASE),), user).status is CheckStatus.NOT_CHECKED
    late = replace(FLOOR, ttft_error_ns=(10.1 * MS, 10.1 * MS, 10.1 * MS), itl_error_ns=None)
    found = check(name, (load(BASE),), late)
    assert not found.passed
    assert "TTFT p50 100 ms, error 10.1 ms (10.1%)" in found.finding
    assert "selfcheck" in found.remedy


def test_the_floor_that_is_taken() -> None:
    """The fewest streams that are enough, of those with paced events."""
    bad = (50 * MS, 50 * MS, 50 * MS)
    few = replace(FLOOR, streams=4, ttft_error_ns=bad)
    many = replace(FLOOR, streams=512, ttft_error_ns=bad)
    unpaced = replace(FLOOR, streams=8, interval_ns=0, ttft_error_ns=bad)
    assert check("own error", (load(BASE),), few, many, unpaced, FLOOR).passed
    assert not check("own error", (load(BASE),), few, many, unpaced).passed
    assert not check("own error", (load(fields(concurrency=600.0)(BASE)),), FLOOR, many).passed


@pytest.mark.parametrize(
    "workload",
    [
        replace(CLOSED.workload, shared_prefix=SharedPrefix(50, 2)),
        replace(CLOSED.workload, turns=Turns(Fixed(3), 0)),
        replace(CLOSED.workload, file=WorkloadFile("t.jsonl", FileKind.MOONCAKE, False)),
    ],
)
def test_ttft_says_nothing_of_caches_where_prompts_share_heads(workload: object) -> None:
    asked = replace(CLOSED, workload=workload)  # type: ignore[arg-type]
    quiet = fields(prefix_suspicion=0.0, concurrency=1.0)(BASE)
    assert not check("not cached", (load(quiet, asked),)).made
    assert not check("not cached", (load(quiet),)).passed
    assert check("not cached", (load(cached(10)(quiet)),)).passed  # the server's word goes before


def test_ttft_under_load_says_nothing_of_caches() -> None:
    assert not check("not cached", (load(fields(prefix_suspicion=0.0)(BASE)),)).made


def test_think_time_is_not_in_flight() -> None:
    thinking = replace(CLOSED, workload=replace(CLOSED.workload, turns=Turns(Fixed(3), S)))
    assert not check("concurrency", (load(fields(concurrency=1.0)(BASE), thinking),)).made


def test_a_wall_clock_matters_to_kernel_stamps_only() -> None:
    stage = client(kernel_stamps=False, clock_step_ns=S)(BASE)
    assert not check("clock", (load(stage),)).made


DRIFTED = Steadiness((Shift("e2e", Part.SECOND_HALF, 2.0, 9.0),))
SEARCH = replace(
    CLOSED,
    trial_id="num_shard-1/load-find-max_concurrency",
    slos=(Slo("ttft_p50", 150 * MS),),
    find=Find(Sought.MAX_CONCURRENCY, 8, 1, 64, 0.05, 2),
)


def searched(found: SearchAnswer | None) -> LoadSummary:
    """A probe that met the SLO, and one that failed it under overload."""
    good = replace(BASE, slos_met=((100.0 * MS, True),))
    over = outcomes(ok=100, overloaded=100)(
        replace(
            BASE,
            stage=replace(STAGE, index=1, concurrency=16, repeat=1),
            slos_met=((900.0 * MS, False),),
            steadiness=DRIFTED,
            concurrency=3.0,
        )
    )
    return LoadSummary(SEARCH, OK, (good, over), found)


def test_overload_is_a_searchs_business() -> None:
    found = load_checks((searched(SearchAnswer(8, 8, 9, True)),), ())
    assert [c.name for c in found if not c.passed] == []


def test_the_client_is_asked_about_the_steps_that_decide() -> None:
    load = searched(SearchAnswer(8, 8, 16, True))
    slow = replace(load, stages=(load.stages[0], client(parent_cpu_ns=9 * S)(load.stages[1])))
    found = check("of a core", (slow,))
    assert not found.passed
    assert "find-max_concurrency at concurrency 16, repeat 2 (" in found.finding
    assert check("of a core", (replace(slow, found=SearchAnswer(8, 8, 9, True)),)).passed


def test_the_server_is_asked_about_the_answer() -> None:
    """Another value that met the SLOs is none that figures are taken from."""
    load = searched(SearchAnswer(8, 8, 16, True))
    drifted = replace(load.stages[0], steadiness=DRIFTED)
    assert not check("halves", (replace(load, stages=(drifted, load.stages[1])),)).passed
    other = replace(load, stages=(drifted, load.stages[1]), found=SearchAnswer(4, 4, 16, True))
    assert not check("halves", (other,)).made


def test_one_that_was_cut_off_has_no_answers_to_miss() -> None:
    cut = replace(BASE, stage=replace(STAGE, cut_off="interrupted"), e2e=None, requests=0)
    assert not check("has answers", (LoadSummary(CLOSED, None, (cut,), None),)).made


@pytest.mark.parametrize(
    ("found", "passed", "finding"),
    [
        (SearchAnswer(8, 8, 9, True), True, "bracketed in 1"),
        (SearchAnswer(None, None, 1, True), True, "bracketed in 1"),
        (SearchAnswer(64, 64, None, True), False, "64, the highest allowed, met them"),
        (SearchAnswer(8, 8, 16, False), False, "cut off"),
        (None, False, "cut off"),
    ],
)
def test_a_searchs_end(found: SearchAnswer | None, passed: bool, finding: str) -> None:
    made = check("searches", (searched(found),))
    assert made.passed is passed
    assert finding in made.finding


def finding(verdict: Verdict, name: str) -> str:
    (found,) = [c.finding for c in verdict.checks if c.name == name]
    return found


def test_a_search_that_contradicts_itself() -> None:
    agreeing = check("search's steps", (searched(SearchAnswer(8, 8, 9, True)),))
    assert agreeing.passed
    found = check(
        "search's steps", (searched(SearchAnswer(8, 8, 9, True, contradiction=(8.0, 9.0))),)
    )
    assert not found.passed
    assert "find-max_concurrency (8 surely missed an SLO, 9 surely met all)" in found.finding
    assert "load.find" in found.remedy
    assert check("search's steps", (searched(None),)).passed


SERVER = deployment(2)
BATCH = trial(SERVER, 4)
BOTH = replace(plan((SERVER,), (BATCH,)), load_trials=(CLOSED,))
ONLY = replace(plan((SERVER,), ()), load_trials=(CLOSED,))


def test_a_run_of_loads_only_has_no_checks_of_batches() -> None:
    found = judge(ONLY, Origin.SIMULATED, (record(SERVER),), (load(BASE), FLOOR), True)
    names = [c.name for c in found.checks]
    assert found.valid
    client = [c.name for c in found.checks if c.of_client]
    assert client == names[:5]  # what a starved client makes look bad comes after it
    assert names[5:8] == ["every trial ended", "no trial failed", "every load has answers"]
    assert names[-2:] == [
        "arguments in effect are those requested",
        "the server's version is the planned one",
    ]
    assert "at least 3 runs" not in names
    assert "1 of 1" in finding(found, "every trial ended")
    assert finding(found, "no trial failed") == "1 ok"


def test_a_run_of_both_has_all_checks() -> None:
    found = judge(BOTH, Origin.SIMULATED, (record(SERVER),), (summary(BATCH), load(BASE)), True)
    names = [c.name for c in found.checks]
    assert found.valid
    assert "at least 3 runs" in names
    assert "every load has answers" in names
    assert finding(found, "every trial ended") == "2 of 2"
    assert finding(found, "no trial failed") == "2 ok"


def test_a_load_that_is_not_finished() -> None:
    cut = LoadSummary(CLOSED, None, (), None)
    found = judge(BOTH, Origin.SIMULATED, (record(SERVER),), (summary(BATCH), cut), True)
    (bad,) = [c for c in found.checks if not c.passed]
    assert bad.name == "every trial ended"
    assert CLOSED.trial_id in bad.finding
    none = judge(ONLY, Origin.SIMULATED, (), (), False)
    assert [c.finding for c in none.checks if not c.passed][1] == "no trial was run"


def test_a_load_of_warm_up_alone_is_mended_by_its_duration() -> None:
    end = TrialEnd(Outcome.FAILED, "no request was sent and ended within the window")
    parts = (("warmup", 1), ("measured", 0), ("cooldown", 0))
    warm = replace(BASE, by_part=parts, outcomes=(), requests=0, e2e=None)
    for stage, key in ((warm, "load.duration"), (BASE, "load.request_timeout")):
        bare = LoadSummary(CLOSED, end, (stage,), None)
        found = judge(ONLY, Origin.SIMULATED, (record(SERVER),), (bare,), True)
        (bad,) = [c for c in found.checks if c.name == "no trial failed"]
        assert key in bad.remedy


def test_a_load_that_failed() -> None:
    died = LoadSummary(CLOSED, TrialEnd(Outcome.SHARD_DIED, "signal 9"), (), None)
    found = judge(ONLY, Origin.SIMULATED, (record(SERVER),), (died,), True)
    (bad,) = [c for c in found.checks if not c.passed]
    assert "shard died: signal 9" in bad.finding


def test_batches_that_no_socket_takes_beside_a_load() -> None:
    refused = ended(BATCH, Outcome.REFUSED, "vLLM has no gRPC shards")
    found = judge(BOTH, Origin.SIMULATED, (record(SERVER),), (refused, load(BASE)), True)
    assert finding(found, "no trial failed") == "1 refused, 1 ok"


def test_a_load_in_which_every_request_failed() -> None:
    nothing = outcomes(connection_refused=200)(replace(BASE, e2e=None, ttft=None))
    found = judge(ONLY, Origin.SIMULATED, (record(SERVER),), (load(nothing),), True)
    names = [c.name for c in found.checks if not c.passed]
    assert names[:2] == ["no trial failed", "every load has answers"]
    assert "at most 0.1% of the requests failed" in names
    (bad,) = [c for c in found.checks if c.name == "no trial failed"]
    assert "batches" not in bad.remedy


def test_a_starved_client_is_named_before_what_it_makes_look_bad() -> None:
    starved = client(parent_cpu_ns=9 * S)(replace(BASE, concurrency=1.0, e2e=None, ttft=None))
    found = judge(ONLY, Origin.SIMULATED, (record(SERVER),), (load(starved),), False)
    failed = [c for c in found.checks if not c.passed]
    assert "of a core" in failed[0].name
    assert failed[0].of_client
    assert [c.name for c in failed[1:4]] == [
        "every trial ended",
        "no trial failed",
        "every load has answers",
    ]
    assert not any(c.of_client for c in failed[1:])
    without = waited(0.291)(replace(BASE, concurrency=1.0))
    (first, *_) = [c for c in load_checks((load(without),)) if c.of_client and not c.passed]
    assert "worker or parent waited 29% of 10 s" in first.finding

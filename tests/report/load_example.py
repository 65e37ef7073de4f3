"""Runs with loads, of values chosen by hand: closed and open loops, a ramp, searches, failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.analysis.samples import GREEDY, MS, OK, deployment, facts, plan
from tests.report.example import simulated_run
from tgi_bench.analysis.rules import Verdict, failed, passed
from tgi_bench.analysis.run import DeploymentRecord, Origin, Run
from tgi_bench.analysis.samples import Figure, LoadDistribution
from tgi_bench.kinds.load.figures import (
    Begin,
    Lengths,
    LoadSummary,
    Part,
    Reopening,
    SearchAnswer,
    Shift,
    Silences,
    StageSummary,
    Steadiness,
    Window,
)
from tgi_bench.load_observation import (
    ClientFacts,
    ClientFloor,
    LoadStage,
    RequestOutcome,
    ServerCpu,
    ServerHost,
    SmallWrites,
    StageConditions,
    Waits,
)
from tgi_bench.observation import Outcome, TrialEnd
from tgi_bench.trials.load import (
    Arrivals,
    ClosedLoop,
    Extent,
    Find,
    Fixed,
    LoadTrial,
    LogNormal,
    OpenLoop,
    Process,
    RatePart,
    Slo,
    Sought,
    Until,
    Workload,
)

S = 1_000 * MS
TRUNCATED = (("Prompt lengths", "cut by the server to the asked length (`truncate`)"),)
SLOS = (Slo("ttft_p99", 500.0 * MS), Slo("itl_p99", 50.0 * MS), Slo("success", 0.999))
FLOORS = (
    ClientFloor(1, 0, 100_000, 310_000.0, 900.0, (18e3, 25e3, 60e3), None, None, True),
    ClientFloor(
        64, 20 * MS, 64_000, 3_199.5, 8_800.0, (21e3, 80e3, 230e3), (0, 1e3, 4e3), (5e3, 2e4, 9e4),
        True,
    ),
)  # fmt: skip


STEADY = Steadiness(
    shifts=(
        Shift("ttft", Part.SECOND_HALF, -0.02, 0.5),
        Shift("ttft", Part.MIDDLE, 0.01, 0.5),
        Shift("e2e", Part.SECOND_HALF, 0.012, 0.5),
        Shift("e2e", Part.MIDDLE, 0.004, 0.5),
    ),
    begin=Begin(61.0 * MS, 74.5 * MS),
    silences=Silences(count=1, longest_ns=900 * MS, total_ns=900 * MS, held=8, limit_ns=645.0 * MS),
)


def figure(value: float, spread: float | None = 0.03) -> Figure:
    """With an interval of ±spread of it; None: without one."""
    if spread is None:
        return Figure(value, None, None)
    return Figure(value, value * (1 - spread), value * (1 + spread))


def distribution(count: int, middle_ms: float, requests: int | None = None) -> LoadDistribution:
    """Percentiles as multiples of the median: p90 1.2, p95 1.3, p99 1.5, p99.9 2, max 2.5."""
    middle = middle_ms * MS
    return LoadDistribution(
        count=count,
        requests=count if requests is None else requests,
        mean=figure(middle * 1.05, 0.02 if count >= 10 else None),
        p50=figure(middle),
        p90=figure(middle * 1.2) if count >= 10 else None,
        p95=figure(middle * 1.3) if count >= 20 else None,
        p99=figure(middle * 1.5, 0.1) if count >= 100 else None,
        p999=figure(middle * 2, 0.2) if count >= 1000 else None,
        highest=middle * 2.5,
    )


def trial(deployment_id: str, name: str, arrivals: Arrivals, **changes: object) -> LoadTrial:
    plain = LoadTrial(
        trial_id=f"{deployment_id}/{name}",
        deployment_id=deployment_id,
        spoken="auto",
        stream=True,
        workload=Workload(Fixed(512), Fixed(128), None, None, None, None),
        arrivals=arrivals,
        extent=Extent(60 * S, None, 10 * S, 0, 0, 0, None),
        slos=(),
        find=None,
        sampling=GREEDY,
        request_timeout_ns=60 * S,
        max_in_flight=None,
        workers=None,
        tokenizer=None,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def client(kernel: bool = True) -> ClientFacts:
    return ClientFacts(
        workers=2,
        worker_cpu_ns=(3 * S, 4 * S),
        parent_cpu_ns=1 * S,
        wall_ns=70 * S,
        kernel_stamps=kernel,
        stamp_reason="" if kernel else "not Linux",
        clock_step_ns=-1_200,
        connections_opened=64,
        connections_reopened=0 if kernel else 3,
    )


def stage(
    of: LoadTrial,
    value: float | None,
    requests: int,
    ttft_ms: float,
    index: int = 0,
    repeat: int = 0,
    errors: int = 0,
) -> StageSummary:
    """A minute in which each answer had 128 events of one token, 20 ms apart, after TTFT."""
    closed = isinstance(of.arrivals, ClosedLoop)
    told = LoadStage(
        index=index,
        concurrency=int(value) if closed and value is not None else None,
        rate_per_s=None if closed else value,
        repeat=repeat,
        began_ns=10**15,
        ended_ns=10**15 + 71 * S,
        measured_from_ns=10**15 + 10 * S,
        measured_until_ns=10**15 + 70 * S,
        dialect="tgi",
        client=client(),
        details=TRUNCATED,
        conditions=StageConditions(
            answered_by=(("bigscience/bloomz-7b1", requests - errors),),
            engine="tgi",
            asked_model="tgi",
            own_names=("bigscience/bloomz-7b1",),
            versions=(("/info version", "3.3.7"),),
            host=ServerHost(
                cores=2,
                wall_ns=71 * S,
                busy_ns=round(71 * 1.71 * S),
                client_ns=round(71 * 0.29 * S),
                server=ServerCpu(3, 40, 71 * S, 71 * S, round(71 * 0.12 * S)),
            ),
        ),
    )
    answered = requests - errors
    e2e_ms = ttft_ms + 127 * 20
    found = {
        "ttft_p99": ttft_ms * 1.5 * MS,
        "itl_p99": 30.0 * MS,
        "success": answered / requests,
    }
    return StageSummary(
        stage=told,
        window=Window(told.measured_from_ns + S, told.measured_until_ns, True),
        requests=answered,
        by_part=(("warmup", requests // 6), ("measured", requests), ("cooldown", 0)),
        outcomes=(
            (RequestOutcome.OK, answered),
            *(((RequestOutcome.OVERLOADED, errors - 1),) if errors else ()),
            *(((RequestOutcome.TIMEOUT, 1),) if errors else ()),
        ),
        reasons=(
            (("no whole answer within 60 s", 1), ("429: Model is overloaded", errors - 1))
            if errors
            else ()
        ),
        failed_for="no whole answer within 60 s" if errors else "",
        ttft=distribution(answered, ttft_ms),
        service_ttft=distribution(answered, ttft_ms),
        itl=distribution(answered * 127, 20, answered),
        event_gap=distribution(answered * 127, 20, answered),
        tpot=distribution(answered, 20),
        e2e=distribution(answered, e2e_ms),
        send_lag=distribution(requests, 0.043),
        requests_per_s=figure(answered / 60),
        output_tokens_per_s=figure(answered * 128 / 60),
        total_tokens_per_s=figure(answered * 640 / 60),
        goodput_per_s=figure(answered * 0.9 / 60) if of.slos else None,
        concurrency=value if closed else answered / 60 * e2e_ms / 1e3,
        rate_per_s=requests / 60,
        late=0,
        dropped=0,
        shared_reads=answered // 10,
        events=answered * 129,
        lengths=Lengths(answered, answered, 0, 0, 0, 0, answered * 512, answered * 128),
        prefix_suspicion=None,
        counted_by=("server",),
        steadiness=STEADY,
        slos_met=tuple(
            (found[s.metric], found[s.metric] >= s.limit if s.metric == "success" else
             found[s.metric] <= s.limit)
            for s in of.slos
        ),
    )  # fmt: skip


def ended(of: LoadTrial, *stages: StageSummary, found: SearchAnswer | None = None) -> LoadSummary:
    return LoadSummary(of, OK, stages, found)


def _closed_and_open(server: str) -> tuple[LoadSummary, ...]:
    """Concurrency 1 and 64, 256 of which the server died; a Poisson rate with errors; a ramp."""
    until = Extent(60 * S, 5_000, 10 * S, 0, 0, 0, Until("ttft_p99", 0.02))
    closed = [
        trial(server, f"load-c{n}", ClosedLoop(n), slos=SLOS, extent=until) for n in (1, 64, 256)
    ]
    poisson = trial(
        server,
        "load-poisson-r4",
        OpenLoop(4.0, (), Process.POISSON, 1.0, 0),
        workload=Workload(LogNormal(300, 0.8, 16, 2000), Fixed(128), None, None, None, 7),
    )
    parts = (RatePart(60 * S, 1.0, 20.0), RatePart(30 * S, 20.0, 20.0))
    ramp = trial(
        server,
        "load-ramp",
        OpenLoop(None, parts, Process.CONSTANT, 1.0, 0),
        extent=Extent(None, None, 0, 0, 0, 0, None),
    )
    refused = stage(closed[1], 64, 1400, 180)
    conditions = replace(
        refused.stage.conditions,
        waits=Waits(312, 4_100 * MS, 640 * MS),
        small_writes=SmallWrites(3, 43_900_000, 4_100_000, 42_800_000, 43_100_000, True),
    )
    refused = replace(refused, stage=replace(refused.stage, conditions=conditions))
    in_user_space = stage(ramp, None, 1200, 400)
    in_user_space = replace(
        in_user_space,
        stage=replace(in_user_space.stage, client=client(False)),
        reopening=Reopening(requests=3, resent=2, wait_p50_ns=410_000.0, moved=0.0012),
    )
    return (
        ended(closed[0], stage(closed[0], 1, 24, 45)),
        ended(closed[1], refused),
        LoadSummary(closed[2], TrialEnd(Outcome.FAILED, "every request failed:\nreset"), (), None),
        ended(poisson, replace(stage(poisson, 4.0, 240, 60, errors=7), late=2, dropped=1)),
        ended(ramp, in_user_space),
    )


def search(server: str) -> LoadSummary:
    """4 and 8 met the SLOs, 16 and 9 did not; each once but the answer."""
    find = Find(Sought.MAX_RATE, 4.0, 1.0, 64.0, 0.15, 2)
    asked = trial(
        server,
        "load-find-max_rate",
        OpenLoop(4.0, (), Process.POISSON, 1.0, 0),
        slos=SLOS,
        find=find,
    )
    steps = ((4.0, 0, 60.0), (8.0, 0, 200.0), (16.0, 0, 900.0), (9.0, 0, 350.0), (8.0, 1, 220.0))
    stages = (
        stage(asked, rate, int(rate * 60), ttft_ms, index=i, repeat=repeat)
        for i, (rate, repeat, ttft_ms) in enumerate(steps)
    )
    return ended(asked, *stages, found=SearchAnswer(8.0, 8.0, 9.0, True))


def run_of(
    loads: Sequence[LoadSummary], servers: Sequence[DeploymentRecord], origin: Origin
) -> Run:
    """A run of loads only, with a verdict written by hand."""
    asked = replace(
        plan([s.deployment for s in servers], []), load_trials=tuple(s.trial for s in loads)
    )
    checks = (
        passed("every trial ended", f"{len(loads)} of {len(loads)}"),
        failed("no request was dropped", "1 of 240", "raise load.max_in_flight"),
    )
    return Run(
        run_id="20260101T000000Z-dddddd",
        plan=asked,
        origin=origin,
        environment=(("tgi-bench", "0.1.0"),),
        deployments=tuple(servers),
        verdict=Verdict(checks),
        finished=True,
        found=(*loads, *FLOORS),
    )


def load_run() -> Run:
    """Loads only, on num_shard 1 and 2."""
    servers = [DeploymentRecord(d, facts(d), "") for d in (deployment(1), deployment(2))]
    first, second = (s.deployment.deployment_id for s in servers)
    return run_of((*_closed_and_open(first), search(second)), servers, Origin.SIMULATED)


def mixed_run() -> Run:
    """The simulated run's batches, and a closed loop on one of its servers."""
    batches = simulated_run()
    asked = trial(batches.deployments[0].deployment.deployment_id, "load-c8", ClosedLoop(8))
    load = ended(asked, stage(asked, 8, 300, 75))
    return replace(
        batches,
        plan=replace(batches.plan, load_trials=(asked,)),
        found=(*batches.found, load, *FLOORS[1:]),
    )

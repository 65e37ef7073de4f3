"""Values that the tests of this folder record."""

from __future__ import annotations

from array import array

from tests.launch.deployments import embedded
from tgi_bench.devices.observation import Device, DeviceKind, DeviceSample, Telemetry
from tgi_bench.load_observation import (
    ClientFacts,
    ClientFloor,
    ControlPair,
    LoadPart,
    LoadStage,
    RequestObservation,
    RequestOutcome,
    ServerCpu,
    ServerHost,
    SmallWrites,
    StageConditions,
    TokenSource,
    Untold,
    Waits,
)
from tgi_bench.observation import (
    Identity,
    Outcome,
    Phase,
    RankTiming,
    ServerFacts,
    ShardFacts,
    StepObservation,
)
from tgi_bench.plan.plan import (
    ArgumentValue,
    BatchTrial,
    Deployment,
    Engine,
    LauncherArgument,
    Override,
    Plan,
    Sampling,
    Timeouts,
)
from tgi_bench.record.store import RunHeader
from tgi_bench.trials.load import (
    Arrivals,
    ClosedLoop,
    Extent,
    Fixed,
    LoadTrial,
    Slo,
    Until,
    Workload,
)

DIGEST = "0a1b2c" + "f" * 58
NEUTRAL = Sampling(False, None, None, None, None, None, False)


GPU = Device(0, DeviceKind.GPU, "NVIDIA L4", 24 << 30, 72_000, 72_000)
CPU = Device(1, DeviceKind.CPU, "package-0", None, None, None)
SEEN = Telemetry(
    absent="",
    period_ns=100_000_000,
    cpu_ns=2_000_000,
    wall_ns=10**9,
    devices=(GPU, CPU),
    samples=(
        DeviceSample(0, 10**15, 70_125, 5 * 10**12, 1 << 33, 0.5, 1980, 6251, 61, 4, 0),
        DeviceSample(1, 10**15 + 7, None, 12, None, None, None, None, None, None, None),
        DeviceSample(0, 10**15 + 10**9, None, None, None, None, None, None, None, None, 2),
    ),
    began=(("tgi_batch_current_size", 0.0), ("tgi_queue_size", 0.0)),
    ended=(("tgi_batch_current_size", 3.0), ("tgi_queue_size", 1.5)),
)


def deployment(
    deployment_id: str = "num_shard-2",
    values: tuple[tuple[str, ArgumentValue], ...] = (("max_total_tokens", 1512), ("num_shard", 2)),
) -> Deployment:
    return Deployment(
        deployment_id=deployment_id,
        launcher=embedded(),
        model="bigscience/bloomz-7b1-mt",
        image=None,
        tgi_version="0.9.4",
        version_assumed=False,
        arguments=tuple(LauncherArgument(n, v, n == "num_shard") for n, v in values),
        accelerator="A100-40GB-SXM",
        engine=Engine.TGI,
        env=(),
        timeouts=Timeouts(600.0, 600.0, 600.0, 60.0),
    )


def trial(batch_size: int = 1, deployment_id: str = "num_shard-2") -> BatchTrial:
    return BatchTrial(
        trial_id=f"{deployment_id}/s1024-d8-b{batch_size}",
        deployment_id=deployment_id,
        batch_size=batch_size,
        sequence_length=1024,
        decode_length=8,
        runs=10,
        warmups=1,
        sampling=NEUTRAL,
        step_timeout_s=600.0,
        prompt_seed=0,
    )


def plan() -> Plan:
    return Plan(
        experiment="bloomz",
        model="bigscience/bloomz-7b1-mt",
        deployments=(deployment(),),
        trials=(trial(1), trial(2), trial(4)),
        overrides=(Override("server.launcher", "embedded"),),
        digest=DIGEST,
    )


def header(of: Plan | None = None) -> RunHeader:
    return RunHeader(
        run_id="20261121T102233Z-0a1b2c",
        experiment_json='{"experiment": "bloomz"}',
        plan=of or plan(),
        origin="measured",
        environment=(("Python", "3.11"), ("CPU", "AMD EPYC")),
        created_utc="2026-11-21T10:22:33Z",
    )


def facts(version: str | None = "0.9.4") -> ServerFacts:
    return ServerFacts(
        command=("text-generation-launcher", "--model-id", "a b"),
        arguments=(("num_shard", "Some(2)"), ("revision", "None")),
        version=version,
        capacity_tokens=32000,
        capacity_source="log line",
        simulated=True,
        ready_ns=1_500_000_000,
        details=(("/info", '{"version": "0.9.4"}'), ("Image digest", "sha256:0a1b")),
        identity=Identity(engine="tgi", version=version, models=("a b",), revision="0a1b"),
        shards=ShardFacts("generate.v2", ("cuda", "cuda"), ("torch.float16", "torch.float16")),
    )


def run_of(run_index: int, steps: int = 3, ranks: int = 2) -> tuple[StepObservation, ...]:
    """One Prefill and steps - 1 Decodes, step k of run r sent at r * 1 s + k * 10 ms."""
    return tuple(
        StepObservation(
            run_index=run_index,
            warmup=run_index == 0,
            phase=Phase.DECODE if step else Phase.PREFILL,
            step_index=step,
            sent_ns=run_index * 10**9 + step * 10**7,
            ended_ns=run_index * 10**9 + step * 10**7 + 5 * 10**6,
            prompt_tokens=None if step else 2048,
            new_tokens=2,
            ranks=tuple(RankTiming(r, 4_000_000, None, 4_100_000, 1) for r in range(ranks)),
            outcome=Outcome.OK,
            reason="",
            health_ns=None if step else 400_000,
        )
        for step in range(steps)
    )


def load_trial(name: str = "load-c8", arrivals: Arrivals | None = None) -> LoadTrial:
    """512 prompt and 128 output tokens for 60 s; closed loop at 8 where nothing else is said."""
    return LoadTrial(
        trial_id=f"num_shard-2/{name}",
        deployment_id="num_shard-2",
        spoken="auto",
        stream=True,
        workload=Workload(Fixed(512), Fixed(128), None, None, None, 0),
        arrivals=arrivals or ClosedLoop(8),
        extent=Extent(60 * 10**9, None, 10**10, 0, 0, 0, Until("ttft_p99", 0.02)),
        slos=(Slo("ttft_p99", 5e8),),
        find=None,
        sampling=NEUTRAL,
        request_timeout_ns=60 * 10**9,
        max_in_flight=None,
        workers=None,
        tokenizer=None,
    )


def client() -> ClientFacts:
    return ClientFacts(
        workers=2,
        worker_cpu_ns=(10**9, 2 * 10**9),
        parent_cpu_ns=3 * 10**8,
        wall_ns=60 * 10**9,
        kernel_stamps=True,
        stamp_reason="",
        clock_step_ns=-120,
        connections_opened=9,
        connections_reopened=1,
    )


def load_stage(index: int = 0) -> LoadStage:
    return LoadStage(
        index=index,
        concurrency=8,
        rate_per_s=None,
        repeat=index,
        began_ns=10**15,
        ended_ns=10**15 + 60 * 10**9,
        measured_from_ns=10**15 + 10**10,
        measured_until_ns=10**15 + 60 * 10**9,
        dialect="tgi",
        client=client(),
        details=(("prompt lengths", "cut by the server to the asked length: `truncate`"),),
        conditions=StageConditions(
            answered_by=(("a b", 8),),
            two_models=1,
            in_place_of="c",
            waits=Waits(3, 70_000_000, 40_000_000),
            control=(
                ControlPair(30_500_000, 31_000_000, 16, 30_000_000, 150_000_000, 151 * 10**6),
            ),
            small_writes=SmallWrites(3, 43.9e6, 4.1e6, 43e6, None),
            host=ServerHost(2, 10**10, 10**9, 10**8, None, Untold.UNSEEN)
            if index
            else ServerHost(2, 10**10, 10**9, 10**8, ServerCpu(2, 9, 10**8, 10**8, 10**7)),
        ),
    )


def request(index: int, stage: int = 0, events: int = 3) -> RequestObservation:
    """Intended at 1 s x index; sent 1 ms, first token 101 ms, last answer 250 ms after that."""
    at_ns = 10**15 + index * 10**9
    arrivals = array("q", [at_ns + 101_000_000 + k * 20_000_000 for k in range(events)])
    return RequestObservation(
        stage=stage,
        request_index=index,
        worker=index % 2,
        part=LoadPart.MEASURED if index else LoadPart.WARMUP,
        conversation=index,
        turn=0,
        intended_ns=at_ns,
        sent_ns=at_ns + 1_000_000,
        ended_ns=at_ns + 250_000_000,
        event_ns=arrivals,
        event_tokens=array("i", [1] * events),
        events=events + 1,
        shared_reads=0,
        prompt_tokens_asked=512,
        prompt_tokens=512,
        cached_tokens=None,
        output_tokens_asked=events,
        output_tokens=events,
        counted_by=TokenSource.SERVER,
        finish_reason="length",
        status=200,
        new_connection=False,
        kernel_stamps=True,
        outcome=RequestOutcome.OK,
        reason="",
        resent=index % 2,
        tokens_told=index != 1,
        first_told=index != 2,
        text_tokens=events if index else None,
    )


def floor() -> ClientFloor:
    return ClientFloor(
        streams=64,
        interval_ns=20_000_000,
        events=100_000,
        events_per_s=3200.5,
        cpu_ns_per_event=8_800.0,
        ttft_error_ns=(21_000.0, 80_000.0, 230_000.0),
        itl_error_ns=(0.0, 1_000.0, 4_000.0),
        start_lateness_ns=None,
        kernel_stamps=True,
    )

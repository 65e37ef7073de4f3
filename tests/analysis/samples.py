"""Trials and observations for tests, with latencies chosen by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.launch.deployments import embedded
from tgi_bench.analysis.run import DeploymentRecord
from tgi_bench.engines.engine import Engine
from tgi_bench.kinds.batch.metrics import TrialSummary, summarise
from tgi_bench.observation import (
    Outcome,
    Phase,
    RankTiming,
    ServerFacts,
    ShardFacts,
    StepObservation,
    TrialEnd,
)
from tgi_bench.plan.plan import BatchTrial, Deployment, LauncherArgument, Plan, Timeouts
from tgi_bench.sections.section import Sampling

MS = 1_000_000
GREEDY = Sampling(False, None, None, None, None, None, False)
OK = TrialEnd(Outcome.OK, "")


def deployment(num_shard: int, quantize: str | None = None) -> Deployment:
    return Deployment(
        deployment_id=f"num_shard-{num_shard}+quantize-{quantize or 'none'}",
        launcher=embedded(),
        model="bigscience/bloomz-7b1-mt",
        image="ghcr.io/huggingface/text-generation-inference:2.4.0",
        tgi_version="2.4.0",
        version_assumed=False,
        arguments=(
            LauncherArgument("max_input_length", 1000, False),
            LauncherArgument("num_shard", num_shard, True),
            LauncherArgument("quantize", quantize, True),
        ),
        accelerator="A100-40GB-SXM",
        engine=Engine.TGI,
        env=(),
        timeouts=Timeouts(600.0, 600.0, 600.0, 60.0),
    )


def trial(server: Deployment, batch_size: int, decode_length: int = 3, runs: int = 3) -> BatchTrial:
    return BatchTrial(
        trial_id=f"{server.deployment_id}/s100-d{decode_length}-b{batch_size}",
        deployment_id=server.deployment_id,
        batch_size=batch_size,
        sequence_length=100,
        decode_length=decode_length,
        runs=runs,
        warmups=1,
        sampling=GREEDY,
        step_timeout_s=600.0,
        prompt_seed=None,
    )


def plan(deployments: Sequence[Deployment], trials: Sequence[BatchTrial]) -> Plan:
    return Plan(
        "bloomz", "bigscience/bloomz-7b1-mt", tuple(deployments), tuple(trials), (), "d" * 64
    )


def run(
    index: int, latencies_ms: Sequence[float], batch_size: int, warmup: bool = False
) -> tuple[StepObservation, ...]:
    """Prefill then decode steps of the given latencies; two ranks, 1 ms of client."""
    start = 10_000 * MS * index
    steps = []
    for i, latency in enumerate(latencies_ms):
        total = int((latency - 1) * MS)
        end = start + int(latency * MS)
        steps.append(
            StepObservation(
                run_index=index,
                warmup=warmup,
                phase=Phase.DECODE if i else Phase.PREFILL,
                step_index=i,
                sent_ns=start,
                ended_ns=end,
                prompt_tokens=None if i else 100 * batch_size,
                new_tokens=batch_size,
                ranks=(RankTiming(0, total, 0, total), RankTiming(1, total, 0, total)),
                outcome=Outcome.OK,
                reason="",
            )
        )
        start = end
    return tuple(steps)


def observed(asked: BatchTrial, prefill_ms: float, step_ms: float) -> tuple[StepObservation, ...]:
    """A slow warm-up, then runs that are each 1 % slower than the one before."""
    steps = asked.decode_length - 1
    seen = run(0, [prefill_ms * 9, *[step_ms * 9] * steps], asked.batch_size, warmup=True)
    for i in range(asked.runs):
        factor = 1 + i / 100
        latencies = [prefill_ms * factor, *[step_ms * factor] * steps]
        seen += run(i + 1, latencies, asked.batch_size)
    return seen


def summary(asked: BatchTrial, prefill_ms: float = 50, step_ms: float = 20) -> TrialSummary:
    return summarise(asked, observed(asked, prefill_ms, step_ms), OK)


def ended(asked: BatchTrial, outcome: Outcome, reason: str) -> TrialSummary:
    return summarise(asked, (), TrialEnd(outcome, reason))


def facts(server: Deployment) -> ServerFacts:
    quantize = "None" if server.quantize is None else f"Some(\n    {server.quantize.title()},\n)"
    return ServerFacts(
        command=("/usr/bin/python3", "-m", "tgi_bench.cli.main", "serve"),
        arguments=(
            ("model_id", '"bigscience/bloomz-7b1-mt"'),
            ("num_shard", f"Some(\n    {server.num_shard},\n)"),
            ("quantize", quantize),
            ("max_input_tokens", "None"),
            ("max_input_length", "Some(\n    1000,\n)"),
            ("port", "0"),
        ),
        version="2.4.0",
        capacity_tokens=32_000,
        capacity_source="log",
        simulated=True,
        ready_ns=MS,
        shards=ShardFacts(
            "generate.v3", ("simulated",) * server.num_shard, ("torch.float16",) * server.num_shard
        ),
    )


def record(server: Deployment, **changes: object) -> DeploymentRecord:
    said = replace(facts(server), **changes)  # type: ignore[arg-type]
    return DeploymentRecord(server, said, "")

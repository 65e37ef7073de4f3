"""Values that the tests of this folder record."""

from __future__ import annotations

from tgi_bench.observation import Outcome, Phase, RankTiming, ServerFacts, StepObservation
from tgi_bench.plan.plan import (
    ArgumentValue,
    BatchTrial,
    Deployment,
    EmbeddedOptions,
    Engine,
    LauncherArgument,
    LauncherKind,
    Override,
    Plan,
    Sampling,
    Timeouts,
)
from tgi_bench.record.store import RunHeader

DIGEST = "0a1b2c" + "f" * 58
NEUTRAL = Sampling(False, None, None, None, None, None, False)


def deployment(
    deployment_id: str = "num_shard-2",
    values: tuple[tuple[str, ArgumentValue], ...] = (("max_total_tokens", 1512), ("num_shard", 2)),
) -> Deployment:
    return Deployment(
        deployment_id=deployment_id,
        launcher=LauncherKind.EMBEDDED,
        model="bigscience/bloomz-7b1-mt",
        image=None,
        tgi_version="0.9.4",
        version_assumed=False,
        arguments=tuple(LauncherArgument(n, v, n == "num_shard") for n, v in values),
        embedded=EmbeddedOptions("simulated", "A100-40GB-SXM"),
        engine=Engine.TGI,
        env=(),
        timeouts=Timeouts(600.0, 600.0, 600.0, 60.0),
        host=None,
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
            ranks=tuple(RankTiming(r, 4_000_000, None, 4_100_000) for r in range(ranks)),
            outcome=Outcome.OK,
            reason="",
        )
        for step in range(steps)
    )

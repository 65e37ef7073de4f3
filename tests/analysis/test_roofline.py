"""Figures that no device of the named kind reaches: 7.1 billion weights of 2 bytes take an
A100-40GB 9.1 ms to read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.analysis.load_samples import CLOSED, MS, STAGE, S, lane
from tests.analysis.samples import deployment, facts, plan, summary, trial
from tests.launch.deployments import attach, program
from tgi_bench.analysis.planned import planned_setup
from tgi_bench.analysis.rules import Check, CheckStatus, Verdict
from tgi_bench.analysis.run import DeploymentRecord, Origin, Run
from tgi_bench.estimate.step_time import decode_limit_s, mean_decode_limit_s, prefill_limit_s
from tgi_bench.kinds.load.figures import LoadSummary
from tgi_bench.kinds.load.summary import summarise_stage
from tgi_bench.kinds.roofline_rule import check_roofline
from tgi_bench.observation import Identity, Outcome, ServerFacts, TrialEnd
from tgi_bench.plan.plan import Deployment, LauncherArgument
from tgi_bench.trials.load import Fixed, Uniform

PASSED, FAILED, NOT_CHECKED = CheckStatus.PASSED, CheckStatus.FAILED, CheckStatus.NOT_CHECKED
SERVER = deployment(1)
SETUP = planned_setup(SERVER).setup


def run_of(origin: Origin, record: DeploymentRecord, found: tuple[object, ...]) -> Run:
    none = plan((record.deployment,), ())
    return Run("limits", none, origin, (), (record,), Verdict(()), True, found)


def batch(
    server: Deployment, step_ms: float, told: ServerFacts | None = None, prefill_ms: float = 50
) -> Check:
    """One batch of one prompt of 100 tokens, and two decode steps."""
    record = DeploymentRecord(server, facts(server) if told is None else told, "")
    trials = (summary(trial(server, 1), prefill_ms, step_ms),)
    return check_roofline(run_of(Origin.MEASURED, record, trials))


def test_a_step_at_the_limit_passes_and_a_faster_one_fails() -> None:
    # summary()'s mean is 1.01 times what it is given
    limit_ms = mean_decode_limit_s(SETUP, 1, 100, 3) * 1e3 / 1.01
    assert limit_ms == pytest.approx(9.1, abs=0.1)
    at_it = batch(SERVER, limit_ms * 1.001)
    assert (at_it.status, at_it.finding) == (PASSED, "at most 100% of the roofline")
    beyond = batch(SERVER, limit_ms * 0.9)
    assert beyond.status is FAILED
    assert "b1, decode step (111% of the roofline of A100-40GB-SXM: 8.2" in beyond.finding
    assert "server.embedded.accelerator" in beyond.remedy
    (row,) = beyond.failing
    assert (row.trial_id, row.deployment_id) == (
        f"{SERVER.deployment_id}/s100-d3-b1",
        SERVER.deployment_id,
    )


def test_a_prefill() -> None:
    limit_ms = prefill_limit_s(SETUP, 1, 100) * 1e3 / 1.01
    assert batch(SERVER, 20, prefill_ms=limit_ms * 1.01).status is PASSED
    found = batch(SERVER, 20, prefill_ms=limit_ms * 0.5)
    assert "b1, prefill (200% of the roofline" in found.finding


def process(accelerator: str, **arguments: str) -> Deployment:
    given = tuple(LauncherArgument(name, value, False) for name, value in arguments.items())
    return replace(
        SERVER,
        launcher=program(),
        accelerator=accelerator,
        arguments=(*given, *SERVER.arguments),
    )


MEASURED = replace(facts(SERVER), simulated=False)
ON_A_GPU = replace(MEASURED, details=(("GPUs", "NVIDIA H100 80GB HBM3, 535.104.05"),))


@pytest.mark.parametrize(
    ("server", "told", "status", "why"),
    [
        (process("H100-SXM"), MEASURED, FAILED, "H100-SXM"),
        # what experiments have by default is nobody's word
        (process("A100-40GB-SXM"), MEASURED, NOT_CHECKED, "nobody named the accelerator"),
        (process("A100-40GB-SXM"), ON_A_GPU, FAILED, "H100-SXM"),
        (
            process("H100-SXM"),
            replace(MEASURED, identity=Identity(device_type="cpu")),
            NOT_CHECKED,
            "computes on a CPU",
        ),
        (process("H100-SXM", quantize="fp8"), MEASURED, NOT_CHECKED, "fp8"),
        (process("H100-SXM", dtype="float32"), MEASURED, NOT_CHECKED, "TF32"),
        (process("H100-SXM", kv_cache_dtype="fp8_e5m2"), MEASURED, NOT_CHECKED, "another type"),
        (process("H100-SXM", speculate="2"), MEASURED, NOT_CHECKED, "speculates"),
        (replace(process("H100-SXM"), model="/data/mine"), MEASURED, NOT_CHECKED, "/data/mine"),
        (
            replace(process("H100-SXM"), launcher=attach("http://h")),
            MEASURED,
            NOT_CHECKED,
            "running server's weights",
        ),
    ],
)
def test_what_is_not_known_is_not_checked(
    server: Deployment, told: ServerFacts, status: CheckStatus, why: str
) -> None:
    found = batch(server, 0.1, told)
    assert found.status is status, found.finding
    assert why in found.finding


def loaded(prompt: Fixed | Uniform, e2e_ms: int) -> Check:
    """Four tokens of equal times: TTFT and TPOT are a quarter of E2E each."""
    asked = replace(
        CLOSED,
        deployment_id=SERVER.deployment_id,
        workload=replace(CLOSED.workload, prompt=prompt),
    )
    stage = summarise_stage(asked, STAGE, lane(8, e2e_ms * MS, 10 * S))
    load = LoadSummary(asked, TrialEnd(Outcome.OK, ""), (stage,), None)
    record = DeploymentRecord(SERVER, facts(SERVER), "")
    return check_roofline(run_of(Origin.SIMULATED, record, (load,)))


def test_loads_of_prompts_of_one_length() -> None:
    """A TTFT below the prefill's limit is a cache's, or another model's."""
    assert max(decode_limit_s(SETUP, 1, 100), prefill_limit_s(SETUP, 1, 100)) < 0.01
    assert prefill_limit_s(SETUP, 1, 1024) > 0.04
    assert loaded(Fixed(100), 40).status is PASSED
    cached = loaded(Fixed(1024), 40)
    assert cached.status is FAILED
    assert "load-c8, TTFT p50 (4" in cached.finding
    mixed = loaded(Uniform(1, 2000), 40)
    assert mixed.status is NOT_CHECKED
    assert "prompts of one length" in mixed.finding

"""What answered against what was asked for: names, versions and types as real servers say them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.analysis.samples import deployment, facts, plan, record, summary, trial
from tests.launch.deployments import attach, docker, program, transformers
from tests.report.made import judge
from tgi_bench.analysis.rules import Check, CheckStatus
from tgi_bench.analysis.run import DeploymentRecord, Origin
from tgi_bench.engines.engine import Engine
from tgi_bench.kinds.identity_rules import identity_checks
from tgi_bench.launch.launcher import Launcher
from tgi_bench.observation import Identity, ServerFacts, ShardFacts
from tgi_bench.plan.plan import ANY_MODEL, ArgumentValue, Deployment, LauncherArgument

PASSED, FAILED, NOT_CHECKED = CheckStatus.PASSED, CheckStatus.FAILED, CheckStatus.NOT_CHECKED
COMMIT = "e985a63cdc139290c5f700ff1929f0b5942cced2"
ATTACH, PROCESS = attach("http://127.0.0.1:3000"), program()


def asked(
    model: str = "bigscience/bloomz", launcher: Launcher = PROCESS, **arguments: ArgumentValue
) -> Deployment:
    given = tuple(LauncherArgument(name, value, False) for name, value in arguments.items())
    return replace(deployment(1), model=model, launcher=launcher, arguments=given)


def said(shards: ShardFacts | None = None, **identity: object) -> ServerFacts:
    made = Identity(**identity)  # type: ignore[arg-type]
    plain = facts(deployment(1))
    return replace(plain, version=made.version, identity=made, shards=shards, simulated=False)


def check(word: str, of: Deployment, told: ServerFacts | None) -> Check:
    found = identity_checks((DeploymentRecord(of, told, ""),))
    (one,) = [check for check in found if word in check.name]
    return one


@pytest.mark.parametrize(
    ("model", "engine", "models", "status"),
    [
        ("bigscience/bloomz", "tgi", ("bigscience/bloomz",), PASSED),
        ("bigscience/bloomz", "tgi", ("BigScience/BLOOMZ",), PASSED),  # the hub knows no case
        ("bigscience/bloomz/", "tgi", ("bigscience/bloomz",), PASSED),
        ("/data/bloomz", "tgi", ("/data/bloomz/",), PASSED),
        ("/data/Bloomz", "tgi", ("/data/bloomz",), NOT_CHECKED),  # a file system may know case
        ("bigscience/bloomz", "tgi", ("bigscience/bloom-560m",), FAILED),
        ("bigscience/bloomz", "tgi", ("gpt2",), FAILED),
        ("gpt2", "tgi", ("openai-community/gpt2",), NOT_CHECKED),
        ("bigscience/bloomz", "tgi", ("mine/bloomz",), FAILED),
        # a path may hold anything, whatever it is called
        ("bigscience/bloomz", "tgi", ("/data/bloomz",), NOT_CHECKED),
        ("bigscience/bloomz", "tgi", ("/data/llama",), NOT_CHECKED),
        ("/data/bloomz", "tgi", ("bigscience/bloomz",), NOT_CHECKED),
        # but for the hub's own cache
        (
            "bigscience/bloomz",
            "tgi",
            (f"/data/models--bigscience--bloomz/snapshots/{COMMIT}",),
            PASSED,
        ),
        ("bigscience/bloomz", "tgi", ("/data/models--gpt2--x/snapshots/1",), FAILED),
        (ANY_MODEL, "tgi", ("gpt2",), NOT_CHECKED),
        ("bigscience/bloomz", "tgi", (), NOT_CHECKED),
        # vLLM: --served-model-name tiny; a LoRA adapter beside the model
        ("/data/tiny-h32", "vllm", ("tiny",), NOT_CHECKED),
        ("bigscience/bloomz", "vllm", ("tiny",), NOT_CHECKED),
        ("bigscience/bloomz", "vllm", ("bigscience/bloomz", "lora"), PASSED),
        ("bigscience/bloomz", "vllm", ("meta/other",), FAILED),
        ("bigscience/bloomz", "litellm", ("openai/gpt-4o",), NOT_CHECKED),
        ("bigscience/bloomz", None, ("other/model",), NOT_CHECKED),
    ],
)
def test_the_model(
    model: str, engine: str | None, models: tuple[str, ...], status: CheckStatus
) -> None:
    found = check("model served", asked(model), said(engine=engine, models=models))
    assert found.status is status, found.finding
    if status is FAILED:
        assert f"{', '.join(models)}, asked for was {model}" in found.finding
        assert "--model" in found.remedy


@pytest.mark.parametrize(
    ("launcher", "engine", "assumed", "says", "status"),
    [
        (PROCESS, Engine.VLLM, False, "vllm", PASSED),
        (PROCESS, Engine.TGI, False, "vllm", FAILED),
        (ATTACH, Engine.TGI, True, "vllm", NOT_CHECKED),  # of nobody's asking
        (ATTACH, Engine.TGI, False, "vllm", FAILED),  # a version of TGI was named
        (ATTACH, Engine.VLLM, True, "sglang", FAILED),
        (ATTACH, Engine.VLLM, True, "litellm", NOT_CHECKED),
        (PROCESS, Engine.TGI, False, None, NOT_CHECKED),
    ],
)
def test_the_engine(
    launcher: Launcher, engine: Engine, assumed: bool, says: str | None, status: CheckStatus
) -> None:
    of = replace(asked(launcher=launcher), engine=engine, version_assumed=assumed)
    assert check("engine", of, said(engine=says)).status is status


@pytest.mark.parametrize(
    ("revision", "says", "status"),
    [
        (COMMIT, COMMIT, PASSED),
        (COMMIT[:8], COMMIT, PASSED),
        (COMMIT, COMMIT[::-1], FAILED),
        ("main", "main", PASSED),
        ("main", COMMIT, NOT_CHECKED),
        (None, COMMIT, NOT_CHECKED),
        (COMMIT, None, NOT_CHECKED),
        (COMMIT, "main", NOT_CHECKED),
    ],
)
def test_the_revision(revision: str | None, says: str | None, status: CheckStatus) -> None:
    found = check("revision", asked(revision=revision), said(revision=says))
    assert found.status is status


def test_shards_of_other_backends_have_a_protocol_of_their_own() -> None:
    """TGI's of Gaudi and Neuron still speak generate.v2."""
    told = said(ranks("generate.v2", "hpu"), version="3.3.6-dev0")
    found = check("protocol", asked(), told)
    assert (found.status, "hpu" in found.finding) == (NOT_CHECKED, True)


def test_an_accelerator_that_was_named_is_asked_for() -> None:
    told = said(device_type="cpu")
    default = asked()
    assert check("device", default, told).status is NOT_CHECKED
    for launcher in (PROCESS, ATTACH):
        named = replace(default, launcher=launcher, accelerator="H100-SXM")
        found = check("device", named, told)
        assert found.status is FAILED
        assert "cpu, asked for was a GPU (H100-SXM)" in found.finding
        assert check("device", named, said(device_type="cuda")).status is PASSED


def ranks(protocol: str = "generate.v3", device: str = "cuda", count: int = 1) -> ShardFacts:
    return ShardFacts(protocol, (device,) * count, ("torch.float16",) * count)


@pytest.mark.parametrize(
    ("version", "assumed", "protocol", "status"),
    [
        ("0.9.4", False, "generate.v1", PASSED),
        ("1.2.0", False, "generate.v1", PASSED),
        ("1.3.0", False, "generate.v2", PASSED),
        ("2.0.4", False, "generate.v2", PASSED),
        ("2.1.0", False, "generate.v3", PASSED),
        ("3.3.6-dev0", False, "generate.v3", PASSED),
        ("3.3.6-dev0", False, "generate.v2", FAILED),
        ("2.0.4", False, "generate.v3", FAILED),
        (None, False, "generate.v3", PASSED),  # 2.4.0 was planned
        (None, True, "generate.v2", NOT_CHECKED),
    ],
)
def test_the_protocol(
    version: str | None, assumed: bool, protocol: str, status: CheckStatus
) -> None:
    of = replace(asked(), version_assumed=assumed)
    found = check("protocol", of, said(ranks(protocol), version=version))
    assert found.status is status, found.finding


@pytest.mark.parametrize(
    ("launcher", "told", "status"),
    [
        (docker(), said(device_type="cuda"), PASSED),
        (docker(), said(device_type="cpu"), FAILED),
        (docker(gpus="2"), said(ranks(device="cpu", count=2)), FAILED),
        (docker(gpus="all"), said(ranks(device="xpu")), PASSED),
        (docker(gpus="0"), said(device_type="cpu"), NOT_CHECKED),
        (docker(), said(), NOT_CHECKED),
        (docker(), replace(said(ranks(device="simulated")), simulated=True), NOT_CHECKED),
        (ATTACH, said(device_type="cpu"), NOT_CHECKED),
        (transformers(device="cuda"), said(device_type="cpu"), FAILED),
        (transformers(device="cpu"), said(device_type="cpu"), PASSED),
        (transformers(device="auto"), said(device_type="cpu"), NOT_CHECKED),
    ],
)
def test_the_device(launcher: Launcher, told: ServerFacts, status: CheckStatus) -> None:
    assert check("device", asked(launcher=launcher), told).status is status


@pytest.mark.parametrize(
    ("dtype", "told", "status"),
    [
        ("float16", said(ranks()), PASSED),
        ("half", said(dtype="torch.float16"), PASSED),
        ("bfloat16", said(ranks()), FAILED),
        ("float16", said(ranks(), dtype="torch.float32"), FAILED),
        (None, said(dtype="torch.float32"), NOT_CHECKED),
        ("auto", said(dtype="torch.float32"), NOT_CHECKED),
        ("float16", said(), NOT_CHECKED),
    ],
)
def test_the_dtype(dtype: str | None, told: ServerFacts, status: CheckStatus) -> None:
    assert check("dtype", asked(dtype=dtype), told).status is status


@pytest.mark.parametrize(
    ("num_shard", "shards", "status"),
    [
        (2, ranks(count=2), PASSED),
        (2, ranks(count=1), FAILED),
        (None, ranks(count=2), NOT_CHECKED),
        (2, None, NOT_CHECKED),
    ],
)
def test_the_ranks(num_shard: int | None, shards: ShardFacts | None, status: CheckStatus) -> None:
    found = check("ranks", asked(num_shard=num_shard), said(shards))
    assert found.status is status
    assert status is not FAILED or found.finding.endswith("1 rank, asked for was num_shard 2)")


def test_a_server_that_did_not_start_is_not_checked() -> None:
    found = identity_checks((DeploymentRecord(asked(), None, "no"),))
    assert {(one.status, one.finding) for one in found} == {(NOT_CHECKED, "no server became ready")}


def test_a_wrong_model_speaks_against_every_trial_of_its_server() -> None:
    right, wrong = deployment(1), deployment(2)
    told = facts(wrong)
    other = replace(told, identity=Identity(engine="tgi", models=("bigscience/bloom",)))
    batches = [trial(right, 1), trial(wrong, 1)]
    found = judge(
        plan((right, wrong), batches),
        Origin.SIMULATED,
        (record(right), DeploymentRecord(wrong, other, "")),
        [summary(batch) for batch in batches],
        True,
    )
    assert not found.valid
    assert found.word_of(batches[0].trial_id, batches[0].deployment_id) == "VALID"
    (bad,) = found.against(batches[1].trial_id, batches[1].deployment_id)
    assert bad.name == "the model served is the one that was asked for"

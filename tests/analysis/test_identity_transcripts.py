"""What recorded servers said of themselves, judged against what was asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.analysis.samples import deployment, facts
from tests.launch.deployments import attach
from tests.launch.recorded_server import recorded
from tgi_bench.analysis.rules import Check, CheckStatus
from tgi_bench.analysis.run import DeploymentRecord
from tgi_bench.ask import contact
from tgi_bench.engines.engine import Engine
from tgi_bench.kinds.argument_rules import check_version
from tgi_bench.kinds.identity_rules import identity_checks
from tgi_bench.launch.facts import ServerSaid
from tgi_bench.plan.plan import ANY_MODEL

PASSED, FAILED, NOT_CHECKED = CheckStatus.PASSED, CheckStatus.FAILED, CheckStatus.NOT_CHECKED
VLLM, LLAMACPP = "vllm-0.32.0", "llamacpp-xllamacpp-2026.10.11549"
LITELLM, TRANSFORMERS = "litellm-1.106.2", "transformers-serve-5.23.0"
OF_ANY = ("get-info-001", "get-models-001", "get-version-001", "get-props-001")


def answered(
    folder: str, names: tuple[str, ...], model: str, version: str, engine: Engine
) -> DeploymentRecord:
    asked = replace(
        deployment(1),
        model=model,
        launcher=attach("http://127.0.0.1:3000"),
        engine=engine,
        tgi_version=version,
        arguments=(),
    )
    with recorded(folder, *names) as server:
        identity = ServerSaid.by(contact(server.url)).identity
    said = replace(facts(asked), version=identity.version, identity=identity, shards=None)
    return DeploymentRecord(asked, replace(said, simulated=False), "")


def named(word: str, found: tuple[Check, ...]) -> Check:
    (one,) = [check for check in found if word in check.name]
    return one


@pytest.mark.parametrize(
    ("folder", "names", "model", "status"),
    [
        ("tgi-3.3.7", ("info", "models"), "/data/tiny-gpt2", PASSED),
        (
            "tgi-3.3.7",
            ("info", "models"),
            "tiny-gpt2",
            NOT_CHECKED,
        ),  # a folder of any name may hold it
        ("tgi-3.3.7", ("info", "models"), "bigscience/bloomz", NOT_CHECKED),
        (VLLM, OF_ANY, "/data/tiny-h32", PASSED),
        (VLLM, OF_ANY, "/data/tiny-h64", NOT_CHECKED),
        (VLLM, OF_ANY, ANY_MODEL, NOT_CHECKED),
        (LITELLM, OF_ANY, "tiny", PASSED),
        (LITELLM, OF_ANY, "bigscience/bloomz", NOT_CHECKED),
        (LITELLM, OF_ANY, "tiny-vllm", PASSED),
        (TRANSFORMERS, OF_ANY, "/data/tiny-llama", NOT_CHECKED),
    ],
)
def test_the_model(folder: str, names: tuple[str, ...], model: str, status: CheckStatus) -> None:
    found = identity_checks((answered(folder, names, model, "3.3.7", Engine.TGI),))
    check = named("the model served", found)
    assert check.status is status, check
    assert (check.status is FAILED) == bool(check.remedy)


@pytest.mark.parametrize(
    ("folder", "asked", "status"),
    [
        # Both say 3.3.6-dev0, and the commit of this build is neither's tag.
        ("tgi-3.3.7", "3.3.7", PASSED),
        ("tgi-3.3.7", "3.3.6", PASSED),
        ("tgi-3.3.7", "2.0.4", FAILED),
        ("tgi-2.0.4", "2.0.4", PASSED),
        ("tgi-2.0.4", "3.3.7", FAILED),
    ],
)
def test_the_version(folder: str, asked: str, status: CheckStatus) -> None:
    found = answered(folder, ("info", "models"), "/data/tiny-gpt2", asked, Engine.TGI)
    check = check_version((found,))
    assert check.status is status, check


@pytest.mark.parametrize(
    ("folder", "names", "engine", "status"),
    [
        (VLLM, OF_ANY, Engine.VLLM, PASSED),
        ("tgi-3.3.7", ("info", "models"), Engine.VLLM, FAILED),
        (VLLM, OF_ANY, Engine.SGLANG, FAILED),
        (TRANSFORMERS, OF_ANY, Engine.VLLM, NOT_CHECKED),
    ],
)
def test_the_engine(
    folder: str, names: tuple[str, ...], engine: Engine, status: CheckStatus
) -> None:
    check = named("the engine", identity_checks((answered(folder, names, ANY_MODEL, "", engine),)))
    assert check.status is status, check

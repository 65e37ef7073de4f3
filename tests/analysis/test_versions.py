"""The version that a server says against the one that was planned: TGI's tags do not always say
their own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.launch.deployments import docker
from tests.launch.recorded_server import TRANSCRIPTS
from tgi_bench.analysis.rules import CheckStatus
from tgi_bench.analysis.run import DeploymentRecord
from tgi_bench.engines.engine import Engine
from tgi_bench.engines.versions import built_from, tags_saying
from tgi_bench.kinds.argument_rules import check_version
from tgi_bench.observation import Identity, ServerFacts
from tgi_bench.plan.plan import Deployment, Timeouts

OF_336 = "efb94e0d3db6aba9d464bc9a2f83191146203152"
OF_337 = "dfb3fbe78e0d1d69251bd33065591c61bafdfaa8"
TGI_336, TGI_337 = Identity("tgi", sha=OF_336), Identity("tgi", sha=OF_337)
LABEL_336 = Identity("tgi", docker_label="sha-efb94e0-rocm")
LABEL_337 = Identity("tgi", docker_label="sha-dfb3fbe")
PASSED, FAILED, UNMADE = CheckStatus.PASSED, CheckStatus.FAILED, CheckStatus.NOT_CHECKED
BOTH = "3.3.6-dev0, as 3.3.6 and 3.3.7 say of themselves: no commit tells which"


def _record(
    planned: str,
    said: str | None,
    own: Identity | None = None,
    engine: Engine = Engine.TGI,
    assumed: bool = False,
) -> DeploymentRecord:
    deployment = Deployment(
        deployment_id="default",
        launcher=docker(),
        model="m",
        image=None,
        tgi_version=planned,
        version_assumed=assumed,
        arguments=(),
        accelerator="A100-40GB-SXM",
        engine=engine,
        env=(),
        timeouts=Timeouts(1.0, 1.0, 1.0, 1.0),
    )
    identity = replace(own or Identity(engine=engine.value), version=said)
    facts = ServerFacts((), None, said, None, "", False, 0, identity=identity)
    return DeploymentRecord(deployment, facts, "")


@pytest.mark.parametrize(
    ("planned", "said", "own", "status", "finding"),
    [
        ("0.9.4", "0.9.4", None, PASSED, "0.9.4 at 1 server"),
        ("3.3.7", "3.3.6-dev0", None, PASSED, f"{BOTH} at 1 server"),
        ("3.3.6", "3.3.6-dev0", None, PASSED, f"{BOTH} at 1 server"),
        ("3.3.5", "3.3.6-dev0", None, FAILED, f"({BOTH}, planned was 3.3.5)"),
        ("3.3.7", "3.3.6-dev0", TGI_337, PASSED,
         "3.3.6-dev0, built from the commit of 3.3.7 at 1 server"),
        ("3.3.7", "3.3.6-dev0", TGI_336, FAILED,
         "(3.3.6-dev0, built from the commit of 3.3.6, planned was 3.3.7)"),
        ("3.3.7", "3.3.6-dev0", LABEL_337, PASSED, "commit of 3.3.7"),
        ("3.3.7", "3.3.6-dev0", LABEL_336, FAILED, "commit of 3.3.6"),
        # A commit of no tag tells nothing: somebody's own build.
        ("3.3.7", "3.3.6-dev0", Identity("tgi", sha="0" * 40), PASSED, BOTH),
        ("1.0.2", "1.0.1", None, PASSED, "1.0.1, as 1.0.1 and 1.0.2 say of themselves"),
        ("2.0.3", "2.0.2", None, PASSED, "2.0.2, as 2.0.2 and 2.0.3 say of themselves"),
        ("2.3.0", "2.3.1-dev0", None, PASSED, "2.3.1-dev0, as 2.3.0 says of itself"),
        ("2.3.1", "2.3.1-dev0", None, FAILED,
         "(2.3.1-dev0, as 2.3.0 says of itself, planned was 2.3.1)"),
        ("2.3.1", "2.3.1", None, PASSED, "2.3.1 at 1 server"),
        # What no tag says: a build from between two, a newer one, the embedded server.
        ("2.4.1", "2.4.1-dev0", None, PASSED, "2.4.1-dev0 at 1 server"),
        ("3.3.7", "3.3.7", None, PASSED, "3.3.7 at 1 server"),
        ("3.3.7", "3.4.0", None, FAILED, "(3.4.0, planned was 3.3.7)"),
        ("0.9.4", "2.0.4", None, FAILED, "(2.0.4, planned was 0.9.4)"),
        ("0.9.4", None, None, UNMADE, "no server said its version"),
    ],
)  # fmt: skip
def test_what_a_tag_s_sources_say(
    planned: str, said: str | None, own: Identity | None, status: CheckStatus, finding: str
) -> None:
    check = check_version([_record(planned, said, own)])
    assert check.status is status, check
    assert finding in check.finding
    assert check.remedy == ("say the right one in server.version" if status is FAILED else "")


def test_a_version_that_was_only_assumed_fails_nothing() -> None:
    check = check_version([_record("3.3.7", "1.4.5", assumed=True)])
    assert check.passed
    assert check.finding == "1.4.5; none was asked for at 1 server"


@pytest.mark.parametrize(
    ("planned", "said", "status"),
    [
        ("0.11.0", "0.11.0", PASSED),
        ("v0.11.0", "0.11.0+cpu", PASSED),
        ("0.11.0", "0.32.0", FAILED),
        ("latest", "0.32.0", UNMADE),
        ("", "0.32.0", UNMADE),
        ("server-b4719", "b4719-0a1b", UNMADE),
    ],
)
def test_of_another_engine(planned: str, said: str, status: CheckStatus) -> None:
    assert check_version([_record(planned, said, engine=Engine.VLLM)]).status is status


def test_a_version_that_nobody_asked_for_is_not_one_that_was_not_said() -> None:
    of_another = _record("3.3.7", "0.32.0", Identity("vllm"), assumed=True)
    unasked = _record("", "0.32.0", engine=Engine.VLLM)
    for record in (of_another, unasked):
        assert check_version([record]).finding == "no version was asked for"
    asked = check_version([_record("latest", "0.32.0", engine=Engine.VLLM)])
    assert asked.finding.endswith("the version asked for is not three numbers")


def test_another_engine_than_planned_has_no_version_of_it() -> None:
    assert not check_version([_record("3.3.7", "0.32.0", Identity("vllm"))]).made


@pytest.mark.parametrize(("folder", "planned"), [("tgi-3.3.7", "3.3.7"), ("tgi-2.0.4", "2.0.4")])
def test_what_real_servers_say(folder: str, planned: str) -> None:
    """No run on TGI 3.3.7 could be VALID before: its images say 3.3.6-dev0."""
    info = json.loads(_body(TRANSCRIPTS / folder / "http" / "info.jsonl"))
    own = Identity("tgi", sha=info["sha"], docker_label=info["docker_label"])
    check = check_version([_record(planned, info["version"], own)])
    assert check.status is PASSED, check


def _body(file: Path) -> str:
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    said = "".join(line.get("bytes", "") for line in lines if line.get("from") == "server")
    return said.partition("\r\n\r\n")[2]


def test_tags() -> None:
    assert [tag.version for tag in tags_saying("3.3.6-dev0")] == ["3.3.6", "3.3.7"]
    assert tags_saying("9.9.9") == ()
    found = built_from(OF_336, None)
    assert found is not None
    assert (found.version, found.says) == ("3.3.6", "3.3.6-dev0")
    assert built_from(None, "sha-0000000") is None
    assert built_from("efb94", "latest") is None
    assert built_from(None, None) is None

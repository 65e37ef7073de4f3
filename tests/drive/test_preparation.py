"""What a load needs before its clock starts, and what is refused before it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.dialects.fake_engines import Engine, serve
from tests.drive.faulty_server import FaultyServer, refused_url
from tests.drive.loads import WORKLOAD, closed
from tgi_bench.drive.load import run_load
from tgi_bench.drive.preparation import LoadTarget, prepare
from tgi_bench.errors import InputError
from tgi_bench.load_observation import RequestOutcome
from tgi_bench.plan.load_trial import FileKind, WorkloadFile

AUTO = closed(4, 2, spoken="auto")


def test_a_key_goes_with_every_question_and_every_request() -> None:
    with serve(Engine(key="a secret key")) as url:
        key = (("Authorization", "Bearer a secret key"),)
        ready = prepare(LoadTarget(url, "", "", key), AUTO)
        assert ready.headers == key
        assert ready.abilities.dialect.name == "completions"
        assert "a secret key" not in str(ready.details)
        another = (("Authorization", "Bearer another"),)
        for wrong, said in (((), "an API key"), (another, "another API key")):
            with pytest.raises(InputError, match=f"wants {said}: HTTP 401") as caught:
                prepare(LoadTarget(url, "", "", wrong), AUTO)
            assert "--api-key-env" in str(caught.value)
            assert "--header" in str(caught.value)
            assert "secret" not in str(caught.value)


def test_a_base_path_is_taken_apart_once() -> None:
    with FaultyServer() as server:
        url = f"{server.url}/base/path"
        asked = closed(2, 1, spoken="tgi")
        ready = prepare(LoadTarget(url, "tgi", ""), asked)
    assert (ready.base_path, ready.host) == ("/base/path", f"127.0.0.1:{server.port}")


@pytest.mark.parametrize(
    ("asked", "in_place_of"), [("nonsense", "nonsense"), ("served", ""), ("auto", ""), ("", "")]
)
def test_a_name_that_the_only_listed_one_takes_the_place_of(asked: str, in_place_of: str) -> None:
    with serve(Engine()) as url:
        ready = prepare(LoadTarget(url, "", asked), AUTO)
    assert (ready.conditions.asked_model, ready.conditions.in_place_of) == ("served", in_place_of)


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(InputError, match=r"does not answer: .*refused"):
        prepare(LoadTarget(refused_url(), "", ""), AUTO)


def test_a_file_is_read_and_named(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "one two"}\n{"prompt": "three"}\n')
    workload = replace(WORKLOAD, prompt=None, file=WorkloadFile(str(file), FileKind.JSONL, False))
    with serve(Engine()) as url:
        ready = prepare(LoadTarget(url, "", ""), replace(AUTO, workload=workload))
    assert ready.corpus is not None
    assert len(ready.corpus.entries) == 2
    assert dict(ready.details)["Workload file"].startswith(f"{file}, SHA-256 ")


@pytest.mark.parametrize("text", ["", "{}\n", "no json\n"])
def test_a_bad_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(text)
    workload = replace(WORKLOAD, prompt=None, file=WorkloadFile(str(file), FileKind.JSONL, False))
    with serve(Engine()) as url, pytest.raises(InputError, match=r"prompts\.jsonl"):
        prepare(LoadTarget(url, "", ""), replace(AUTO, workload=workload))


def test_a_load_to_a_server_of_unknown_kind() -> None:
    with serve(Engine(owner="unknown")) as url:
        stage, seen = run_load(url, AUTO)
    assert [one.request_index for one in seen] == [0, 1, 2, 3]
    assert {one.outcome for one in seen} == {RequestOutcome.OK}
    assert stage.dialect == "completions"

"""What a load needs before its clock starts, and what is refused before it; the file of its
workload, and which texts count as sent before."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from tests.dialects.fake_engines import Engine, serve
from tests.drive.faulty_server import FaultyServer, refused_url
from tests.drive.loads import WORKLOAD, closed, counted, prepared, send, send_prepared, trial
from tgi_bench.dialects.dialect import Ask
from tgi_bench.drive import load_files as corpus_file
from tgi_bench.drive import preparation as sent_texts
from tgi_bench.drive.load import run_load
from tgi_bench.drive.load_files import read_corpus, require_files
from tgi_bench.drive.preparation import LEAST_HEAD, LoadTarget, SentTexts, prepare
from tgi_bench.errors import InputError
from tgi_bench.load_observation import PromptTexts, RequestOutcome
from tgi_bench.plan.corpus import Entry
from tgi_bench.trials.load import (
    ClosedLoop,
    FileKind,
    Fixed,
    SharedPrefix,
    TraceTimes,
    Turns,
    Workload,
    WorkloadFile,
)

HEAD = "x" * LEAST_HEAD


def texts_sent(texts: Sequence[str], made: bool = False) -> PromptTexts:
    sent = SentTexts()
    for text in texts:
        sent.add(Ask(text, (), None, 1), made)
    return sent.counted


def test_new_texts() -> None:
    assert texts_sent(["one", "two", "three"]) == PromptTexts(sent=3, characters=11)


def test_repeated_texts() -> None:
    found = texts_sent(["one", "two", "one", "one"])
    assert (found.sent, found.repeated, found.shared_heads) == (4, 2, 0)
    assert (found.characters, found.repeated_characters, found.shared_characters) == (12, 6, 0)


def test_shared_heads_are_at_least_so_long() -> None:
    found = texts_sent([HEAD + "a", HEAD + "b", HEAD * 5 + "c", HEAD * 5 + "d", "y" + HEAD])
    assert (found.sent, found.repeated, found.shared_heads) == (5, 0, 3)
    # of the last but one 512 of the 640 that it has in common: a doubling is a step
    assert found.shared_characters == (1 + 1 + 4) * LEAST_HEAD
    assert texts_sent([HEAD[1:] + "a", HEAD[1:] + "b"]).shared_heads == 0


def test_messages_are_one_text() -> None:
    sent = SentTexts()
    system = ("system", HEAD)
    for said in ("one", "two", "two"):
        sent.add(Ask("", (system, ("user", said)), None, 1), made=False)
    assert (sent.counted.repeated, sent.counted.shared_heads) == (1, 1)


def test_texts_of_too_few_words_to_be_new_are_not_counted_where_they_are_made() -> None:
    assert texts_sent(["a b c", "a b c"], made=True).repeated == 0
    assert texts_sent(["a b c d", "a b c d"], made=True).repeated == 1
    assert texts_sent(["a", "a"]).repeated == 1


def test_another_stage_is_compared_with_those_before() -> None:
    sent = SentTexts()
    sent.add(Ask("one", (), None, 1), made=False)
    sent.begin()
    sent.add(Ask("two", (), None, 1), made=False)
    sent.add(Ask("one", (), None, 1), made=False)
    assert (sent.counted.sent, sent.counted.repeated) == (2, 1)


def test_its_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent_texts, "_MOST_KEPT", 2)
    found = texts_sent(["one", "two", "three", "three", "one"])
    assert (found.sent, found.repeated) == (5, 1)


def of_file(folder: Path, texts: Sequence[str], **changes: object) -> Workload:
    file = folder / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    told = WorkloadFile(str(file), FileKind.JSONL, False)
    return replace(WORKLOAD, prompt=None, file=told, **changes)  # type: ignore[arg-type]


def sent(workload: Workload, requests: int, most: int = 2) -> PromptTexts:
    with FaultyServer() as server:
        ready = prepared(server.url, closed(requests, most, workload=workload))
        if workload.file is not None:
            ready = replace(ready, corpus=read_corpus(workload.file)[0])
        stage, seen = send_prepared(ready)
    assert len(seen) == requests
    assert stage.conditions.prompts is not None
    return stage.conditions.prompts


def test_a_file_gone_through_again_and_again(tmp_path: Path) -> None:
    texts = [f"question number {number}" for number in range(10)]
    assert sent(of_file(tmp_path, texts), 10).repeated == 0  # made ahead and not sent: no repeat
    found = sent(of_file(tmp_path, texts), 30)
    assert (found.sent, found.repeated) == (30, 20)


def test_heads_that_a_file_brings(tmp_path: Path) -> None:
    found = sent(of_file(tmp_path, [f"{HEAD} question {number}" for number in range(20)]), 20)
    assert (found.sent, found.repeated, found.shared_heads) == (20, 0, 19)


@pytest.mark.parametrize("tokens", [1, 4, 40, 400])
def test_made_texts_are_new(tokens: int) -> None:
    found = sent(replace(WORKLOAD, prompt=Fixed(tokens), seed=None), 60)
    assert (found.sent, found.repeated, found.shared_heads) == (60, 0, 0)


def test_heads_on_purpose_are_counted_too() -> None:
    shared = replace(WORKLOAD, prompt=Fixed(200), shared_prefix=SharedPrefix(100, 2))
    found = sent(shared, 40)
    assert (found.repeated, found.shared_heads) == (0, 38)


def test_of_a_conversation_the_first_text_counts() -> None:
    talk = replace(WORKLOAD, prompt=Fixed(60), turns=Turns(Fixed(4), 0))
    found = sent(talk, 40)
    assert (found.repeated, found.shared_heads) == (0, 0)
    assert 10 <= found.sent <= 11


def test_what_was_not_sent_is_not_counted() -> None:
    with FaultyServer() as server:
        url = server.url
    stage, _ = send(url, closed(3, 1))
    assert stage.conditions.prompts == PromptTexts()


def refusal(path: Path | str) -> str:
    with pytest.raises(InputError) as caught:
        read_corpus(WorkloadFile(str(path), FileKind.JSONL, shuffle=False))
    return str(caught.value)


def test_a_file_and_its_digest(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_bytes(b'{"prompt": "a"}\r\n')
    corpus, digest = read_corpus(WorkloadFile(str(file), FileKind.JSONL, shuffle=False))
    assert corpus.entries == (Entry(text="a"),)
    assert digest == sha256(file.read_bytes()).hexdigest()


def test_files_are_read_before_anything_is_started(tmp_path: Path) -> None:
    """A trace without times is refused there, and its column is named."""
    file = tmp_path / "t.csv"
    file.write_text("prompt_tokens,output_tokens\n4,3\n", encoding="utf-8")
    workload = Workload(None, None, WorkloadFile(str(file), FileKind.CSV, False), None, None, 0)
    require_files([trial(ClosedLoop(1), counted(1)), trial(ClosedLoop(1), counted(1), workload)])
    with pytest.raises(InputError, match=r"t\.csv: has no times, .* a column `time_s`"):
        require_files([trial(TraceTimes(1.0), counted(1), workload)])
    missing = replace(workload, file=WorkloadFile("nobody.csv", FileKind.CSV, False))
    with pytest.raises(InputError, match=r"^nobody\.csv: no such workload file"):
        require_files([trial(ClosedLoop(1), counted(1), missing)])


def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary, bad, pipe = (tmp_path / name for name in ("binary", "bad", "pipe"))
    binary.write_bytes(b'{"prompt": "a"}\n\xff')
    bad.write_text("{}", encoding="utf-8")
    os.mkfifo(pipe)
    nobody = tmp_path / "nobody"
    assert refusal(nobody) == f"{nobody}: no such workload file (workload.file.path)"
    assert refusal(tmp_path) == f"{tmp_path}: is a directory, not a workload file"
    assert refusal(binary) == f"{binary}:2: is not text in UTF-8"
    assert refusal(bad) == f'{bad}:1: must hold either "prompt" or "messages"'
    assert refusal(pipe) == f"{pipe}: is no regular file, which a workload's must be"
    assert refusal(bad / "below") == f"{bad / 'below'}: cannot be read: Not a directory"
    assert "cannot be read" in refusal("a\0b")
    monkeypatch.setattr(corpus_file, "MOST_BYTES", 10)
    assert refusal(binary) == f"{binary}: is 17 bytes long; at most 10 are read"


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

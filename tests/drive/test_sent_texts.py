"""Which texts the client counts as sent before, and loads of files whose texts are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.drive.faulty_server import FaultyServer
from tests.drive.loads import WORKLOAD, closed, prepared, send, send_prepared
from tgi_bench.dialects.dialect import Ask
from tgi_bench.drive import preparation as sent_texts
from tgi_bench.drive.load_files import read_corpus
from tgi_bench.drive.preparation import LEAST_HEAD, SentTexts
from tgi_bench.load_observation import PromptTexts
from tgi_bench.plan.load_trial import FileKind, Fixed, SharedPrefix, Turns, Workload, WorkloadFile

HEAD = "x" * LEAST_HEAD


def counted(texts: Sequence[str], made: bool = False) -> PromptTexts:
    sent = SentTexts()
    for text in texts:
        sent.add(Ask(text, (), None, 1), made)
    return sent.counted


def test_new_texts() -> None:
    assert counted(["one", "two", "three"]) == PromptTexts(sent=3, characters=11)


def test_repeated_texts() -> None:
    found = counted(["one", "two", "one", "one"])
    assert (found.sent, found.repeated, found.shared_heads) == (4, 2, 0)
    assert (found.characters, found.repeated_characters, found.shared_characters) == (12, 6, 0)


def test_shared_heads_are_at_least_so_long() -> None:
    found = counted([HEAD + "a", HEAD + "b", HEAD * 5 + "c", HEAD * 5 + "d", "y" + HEAD])
    assert (found.sent, found.repeated, found.shared_heads) == (5, 0, 3)
    # of the last but one 512 of the 640 that it has in common: a doubling is a step
    assert found.shared_characters == (1 + 1 + 4) * LEAST_HEAD
    assert counted([HEAD[1:] + "a", HEAD[1:] + "b"]).shared_heads == 0


def test_messages_are_one_text() -> None:
    sent = SentTexts()
    system = ("system", HEAD)
    for said in ("one", "two", "two"):
        sent.add(Ask("", (system, ("user", said)), None, 1), made=False)
    assert (sent.counted.repeated, sent.counted.shared_heads) == (1, 1)


def test_texts_of_too_few_words_to_be_new_are_not_counted_where_they_are_made() -> None:
    assert counted(["a b c", "a b c"], made=True).repeated == 0
    assert counted(["a b c d", "a b c d"], made=True).repeated == 1
    assert counted(["a", "a"]).repeated == 1


def test_another_stage_is_compared_with_those_before() -> None:
    sent = SentTexts()
    sent.add(Ask("one", (), None, 1), made=False)
    sent.begin()
    sent.add(Ask("two", (), None, 1), made=False)
    sent.add(Ask("one", (), None, 1), made=False)
    assert (sent.counted.sent, sent.counted.repeated) == (2, 1)


def test_its_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent_texts, "_MOST_KEPT", 2)
    found = counted(["one", "two", "three", "three", "one"])
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

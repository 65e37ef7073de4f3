"""Workload files: what is read of each kind, and what is refused with file and line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tgi_bench.errors import InputError
from tgi_bench.plan.corpus import Corpus, Entry, parse_corpus
from tgi_bench.trials.load import FileKind

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
"""


def test_jsonl() -> None:
    text = (
        '{"prompt": "Hello", "output_tokens": 5, "id": 7}\r\n\n'
        '{"messages": [{"role": "system", "content": "Be"}, {"role": "user", "content": "é"}]}\n'
    )
    corpus = parse_corpus(FileKind.JSONL, text, "p.jsonl")
    assert corpus == Corpus(
        (
            Entry(text="Hello", output_tokens=5),
            Entry(messages=(("system", "Be"), ("user", "é"))),
        ),
        0,
        "p.jsonl",
    )
    assert not corpus.timed


def test_sharegpt() -> None:
    text = """[
    {"id": "a", "conversations": [
        {"from": "system", "value": "s"}, {"from": "human", "value": "one"},
        {"from": "gpt", "value": "x"}, {"from": "user", "value": "two"}]},
    {"conversations": []},
    {"conversations": [{"from": "gpt", "value": "alone"}, {"from": "human", "value": ""}]}
    ]"""
    corpus = parse_corpus(FileKind.SHAREGPT, text, "s.json")
    entry = Entry(text="one", later=("two",), answers=("x", ""))
    assert corpus == Corpus((entry,), 2, "s.json")


def test_an_answer_that_is_no_text_is_no_reason_to_refuse_a_file() -> None:
    text = r"""[{"conversations": [{"from": "human", "value": "one"},
        {"from": "gpt", "value": "a\ud800"}, {"from": "gpt", "value": "more"}]}]"""
    corpus = parse_corpus(FileKind.SHAREGPT, text, "s.json")
    assert corpus.entries == (Entry(text="one", answers=("a?",)),)


def test_azure() -> None:
    corpus = parse_corpus(FileKind.AZURE, "\ufeff" + AZURE, "a.csv")
    assert corpus.entries == (
        Entry(prompt_tokens=4808, output_tokens=10, at_ns=0),
        Entry(prompt_tokens=3180, output_tokens=8, at_ns=52_000_000),
    )
    assert corpus.timed


def test_the_newer_azure_times_and_rows_in_any_order() -> None:
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
        "2024-05-10 00:00:01.009930+00:00,5,0\r\n"
        "2024-05-10 00:00:01+00:00,7,2\r\n"
        "2024-05-09 23:59:59.5+00:00,6.0,1\r\n"
    )
    corpus = parse_corpus(FileKind.AZURE, text, "a.csv")
    assert corpus.left_out == 1
    assert [(e.prompt_tokens, e.at_ns) for e in corpus.entries] == [(6, 0), (7, 1_500_000_000)]


def test_mooncake() -> None:
    text = (
        '{"timestamp": 27000, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}\n'
        '{"timestamp": 27000.5, "input_length": 10, "output_length": 1}\n'
        '{"timestamp": 30000, "input_length": 10, "output_length": 0, "hash_ids": []}\n'
    )
    corpus = parse_corpus(FileKind.MOONCAKE, text, "m.jsonl")
    assert corpus.entries == (
        Entry(prompt_tokens=6955, output_tokens=52, at_ns=0, hash_ids=(46, 47)),
        Entry(prompt_tokens=10, output_tokens=1, at_ns=500_000),
    )
    assert corpus.left_out == 1


def test_csv() -> None:
    text = "output_tokens, time_s ,prompt_tokens,user\n8,1.5,100,a\n\n9,1.500000001,200,b\n"
    corpus = parse_corpus(FileKind.CSV, text, "c.csv")
    assert corpus.entries == (
        Entry(prompt_tokens=100, output_tokens=8, at_ns=0),
        Entry(prompt_tokens=200, output_tokens=9, at_ns=1),
    )
    untimed = parse_corpus(FileKind.CSV, "prompt_tokens,output_tokens\n3,4\n1,2\n", "c.csv")
    assert [e.prompt_tokens for e in untimed.entries] == [3, 1]
    assert not untimed.timed


LONE_SURROGATE = '{"prompt": "\\ud800"}'


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("jsonl", '\n{"prompt": 5}', 'f:2: "prompt" must be a string that is not empty, not `5`'),
        ("jsonl", '{"prompt": ""}', 'f:1: "prompt" must be a string that is not empty, not ``'),
        ("jsonl", '{"text": "a"}', 'f:1: must hold either "prompt" or "messages"'),
        (
            "jsonl",
            '{"prompt": "a", "messages": []}',
            'f:1: must hold either "prompt" or "messages"',
        ),
        (
            "jsonl",
            '{"messages": []}',
            'f:1: "messages" must be a list with at least one message',
        ),
        (
            "jsonl",
            '{"messages": [{"role": "user"}]}',
            'f:1: "content" must be a string that is not empty, not `null`',
        ),
        ("jsonl", '{"messages": ["a"]}', "f:1: must be a message with role and content, not `a`"),
        ("jsonl", "[1]", "f:1: must be a JSON object, not `[1]`"),
        ("jsonl", '{"prompt": "a"', "f:1: is no valid JSON: Expecting ',' delimiter at line 1"),
        ("jsonl", "[" * 100_000, "f:1: is nested too deeply"),
        ("jsonl", "9" * 5000, "f:1: is no valid JSON: holds a number of too many digits"),
        ("jsonl", LONE_SURROGATE, 'f:1: "prompt" holds half of a surrogate pair, which is no text'),
        (
            "jsonl",
            '{"prompt": "a", "output_tokens": 0}',
            'f:1: "output_tokens" must be a whole number from 1 to 10000000, not `0`',
        ),
        ("jsonl", "\n \n", "f: holds no request that can be sent"),
        ("sharegpt", '{"a": 1}', "f: must be a JSON list of conversations, not `a mapping`"),
        ("sharegpt", '[{"conversations": 3}]', 'f: conversation 1: must hold "conversations", a'),
        ("sharegpt", "[\n\n,", "f: is no valid JSON: Expecting value at line 3"),
        ("sharegpt", '[{"conversations": []}]', "f: holds no request that can be sent"),
        ("azure", "", "f:1: has no column `ContextTokens`; its columns: none"),
        (
            "azure",
            "TIMESTAMP,ContextToken,GeneratedTokens\n",
            "f:1: has no column `ContextTokens`; its columns: TIMESTAMP, ContextToken, "
            "GeneratedTokens; did you mean `ContextToken`?",
        ),
        ("azure", AZURE + "now,1,1\n", "f:4: TIMESTAMP must be as in 2023-11-16 18:17:03.9799600"),
        ("azure", AZURE + "2023-13-16 18:17:03,1,1\n", "f:4: TIMESTAMP must be as in"),
        ("azure", AZURE + "2023-11-16 18:17:03,x,1\n", "f:4: ContextTokens must be a whole number"),
        ("azure", AZURE + "2023-11-16 18:17:03,-1,1\n", "f:4: ContextTokens must be a whole"),
        ("azure", AZURE + "2023-11-16 18:17:03,1\n", "f:4: holds 2 cells, but the header 3"),
        ("csv", 'prompt_tokens,output_tokens\n1,"2\n', "f:2: unexpected end of data"),
        ("csv", "time_s,prompt_tokens,output_tokens\n-1,1,1\n", "f:2: time_s must be seconds"),
        ("csv", "time_s,prompt_tokens,output_tokens\nnan,1,1\n", "f:2: time_s must be seconds"),
        (
            "csv",
            "prompt_tokens,output_tokens\n1,999999999\n",
            'f:2: "output_tokens" must be a whole number from 0 to 10000000, not `999999999`',
        ),
        ("csv", "prompt_tokens,output_tokens\n", "f: holds no request that can be sent"),
        ("mooncake", '{"input_length": 1}', 'f:1: "timestamp" must be milliseconds, not `null`'),
        (
            "mooncake",
            '{"timestamp": -1}',
            'f:1: "timestamp" must be milliseconds, not `-1`',
        ),
        ("mooncake", '{"timestamp": NaN}', 'f:1: "timestamp" must be milliseconds, not `nan`'),
        (
            "mooncake",
            '{"timestamp": 0, "hash_ids": [-1]}',
            'f:1: "hash_ids" must be a list of whole numbers',
        ),
        (
            "mooncake",
            '{"timestamp": 0, "input_length": 1.5}',
            'f:1: "input_length" must be a whole number from 0 to 10000000, not `1.5`',
        ),
    ],
)
def test_what_is_refused(kind: str, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_corpus(FileKind(kind), text, "f")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def read_or_refused(kind: FileKind, text: str) -> Corpus | str:
    try:
        return parse_corpus(kind, text, "f")
    except InputError as error:
        return str(error)


@given(st.sampled_from(list(FileKind)), st.text(max_size=200))
def test_any_text_is_read_or_refused(kind: FileKind, text: str) -> None:
    found = read_or_refused(kind, text)
    assert found.startswith("f") if isinstance(found, str) else found.entries

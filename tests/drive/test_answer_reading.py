"""What answers mean: a table of each dialect's quirks, by hand."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.drive.asks import ASK, CHAT, COMPLETIONS, EVENT_STREAM, JSON, TGI, able, answer
from tgi_bench.dialects.answer import Answer, Reading
from tgi_bench.dialects.dialect import Abilities
from tgi_bench.dialects.event_tokens import placed
from tgi_bench.dialects.reading import read_answer
from tgi_bench.load_observation import RequestOutcome, TokenSource

DONE = b"data: [DONE]\n\n"


def sse(event: object) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def read(
    came: Answer,
    abilities: Abilities = CHAT,
    stream: bool = True,
    count: Callable[[str], int] | None = None,
) -> Reading:
    reading = read_answer(came, abilities, stream, ASK, count)
    assert reading.output_tokens == sum(reading.event_tokens)
    assert len(reading.event_ns) == len(reading.event_tokens)
    assert all(tokens > 0 for tokens in reading.event_tokens)
    return reading


def tokens_at(reading: Reading) -> list[tuple[int, int]]:
    return list(zip(reading.event_ns, reading.event_tokens, strict=True))


def told(reading: Reading) -> tuple[RequestOutcome, str]:
    return reading.outcome, reading.reason


# TGI


def token(text: str = " t", special: bool = False, **rest: object) -> dict[str, object]:
    said = {"id": 1, "text": text, "logprob": -0.5, "special": special}
    return {"index": 1, "token": said, "generated_text": None, "details": None} | rest


def last(generated: int | None = 3, text: str = " t t t", **details: object) -> dict[str, object]:
    told: dict[str, object] | None = None
    if generated is not None:
        told = {"finish_reason": "length", "generated_tokens": generated, "seed": None} | details
    return token(generated_text=text, details=told)


def test_tgi_stream() -> None:
    came = answer(sse(token()), sse(token()) + sse(token()), sse(last(4, input_length=7)))
    reading = read(came, TGI)
    assert told(reading) == (RequestOutcome.OK, "")
    assert tokens_at(reading) == [(1, 1), (2, 1), (2, 1), (3, 1)]
    assert (reading.events, reading.shared_reads) == (4, 1)
    assert (reading.prompt_tokens, reading.cached_tokens) == (7, None)
    assert (reading.output_tokens, reading.counted_by) == (4, TokenSource.SERVER)
    assert (reading.finish_reason, reading.text) == ("length", " t t t")


def test_tgi_without_details() -> None:
    reading = read(answer(sse(token()), sse(last(None))), TGI)
    assert told(reading) == (RequestOutcome.OK, "")
    assert (reading.output_tokens, reading.finish_reason, reading.prompt_tokens) == (2, None, None)


def test_tgi_special_tokens_and_comments() -> None:
    eos = token("</s>", special=True, generated_text=" t", details={"finish_reason": "eos_token"})
    reading = read(answer(b":\n\n", sse(token()), b": \n\n", sse(eos)), TGI)
    assert (reading.output_tokens, reading.events) == (2, 2)
    assert (reading.finish_reason, reading.text) == ("eos_token", " t")


@pytest.mark.parametrize(
    ("generated", "counts"), [(3, [1, 1, 1]), (5, [1, 2, 2]), (6, [1, 2, 3]), (2, [1, 1])]
)
def test_tgi_the_servers_count_is_recorded(generated: int, counts: list[int]) -> None:
    reading = read(answer(sse(token()), sse(token()), sse(last(generated))), TGI)
    assert list(reading.event_tokens) == counts
    assert list(reading.event_ns) == [1, 2, 3][: len(counts)]
    assert reading.tokens_told is (generated == 3)
    assert reading.outcome is RequestOutcome.OK


def test_tgi_ends_early() -> None:
    reading = read(answer(sse(token(" a")), sse(token(" b"))), TGI)
    assert told(reading) == (
        RequestOutcome.INCOMPLETE,
        "the answer ended after 2 events, 2 of 3 tokens, without generated_text",
    )
    assert (reading.output_tokens, reading.text) == (2, " a b")


def test_tgi_cut_off_within_an_event() -> None:
    reading = read(answer(sse(token()), sse(last())[:-30]), TGI)
    assert reading.outcome is RequestOutcome.INCOMPLETE
    assert reading.output_tokens == 1


def test_tgi_last_event_without_a_blank_line() -> None:
    reading = read(answer(sse(token()), sse(last(2)).rstrip()), TGI)
    assert told(reading) == (RequestOutcome.OK, "")
    assert reading.output_tokens == 2


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        ({"error": "Model is overloaded", "error_type": "overloaded"}, RequestOutcome.OVERLOADED),
        ({"error": "Input", "error_type": "validation"}, RequestOutcome.REJECTED),
        ({"error": "x", "error_type": "incomplete_generation_stream"}, RequestOutcome.SERVER_ERROR),
    ],
)
def test_tgi_error_in_a_stream(error: dict[str, str], outcome: RequestOutcome) -> None:
    reading = read(answer(sse(token()), sse(error)), TGI)
    assert told(reading) == (outcome, f"{error['error']} ({error['error_type']})")
    assert reading.output_tokens == 1


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b'data: {"token": \n\n', 'event 2 is not JSON: {"token":'),
        (b'data: {"token": "\xff"}\n\n', "event 2 is not UTF-8: byte 0xff at offset 11"),
        (b"data: [1]\n\n", "event 2 is no JSON object"),
        (b"data: [DONE]\n\n", "event 2 is not JSON: [DONE]"),
        (b"data: null\n\n", "event 2 is no JSON object"),
    ],
)
def test_tgi_what_cannot_be_read(bad: bytes, reason: str) -> None:
    reading = read(answer(sse(token()), bad, sse(token())), TGI)
    assert told(reading) == (RequestOutcome.PROTOCOL, reason)
    assert reading.output_tokens == 1


WHOLE = {
    "generated_text": " t t",
    "details": {"finish_reason": "eos_token", "generated_tokens": 2, "seed": None, "tokens": []},
}


@pytest.mark.parametrize("body", [WHOLE, [WHOLE]])
def test_tgi_whole(body: object) -> None:
    text = json.dumps(body).encode()
    came = answer(text[:9], text[9:], kind=JSON, headers=[("x-prompt-tokens", "12")])
    reading = read(came, TGI, stream=False)
    assert told(reading) == (RequestOutcome.OK, "")
    assert tokens_at(reading) == [(99, 2)]
    assert (reading.events, reading.prompt_tokens) == (1, 12)
    assert (reading.finish_reason, reading.text) == ("eos_token", " t t")
    assert reading.counted_by is TokenSource.SERVER


def test_tgi_whole_without_details() -> None:
    body = b'{"generated_text": "a b c"}'
    came = answer(body, kind=JSON, headers=[("x-generated-tokens", "5")])
    reading = read(came, TGI, stream=False)
    assert (reading.output_tokens, reading.counted_by) == (5, TokenSource.SERVER)
    counted = read(answer(body, kind=JSON), TGI, stream=False, count=lambda text: len(text))
    assert (counted.output_tokens, counted.counted_by) == (5, TokenSource.TOKENIZER)
    alone = read(answer(body, kind=JSON), TGI, stream=False)
    assert (alone.output_tokens, alone.counted_by) == (1, TokenSource.EVENTS)


@pytest.mark.parametrize(
    ("body", "outcome", "reason"),
    [
        (b"", RequestOutcome.PROTOCOL, "the body is empty"),
        (b"<html>", RequestOutcome.PROTOCOL, "the body is not JSON: <html>"),
        (b"\xff", RequestOutcome.PROTOCOL, "the body is not UTF-8: byte 0xff at offset 0"),
        (b"5", RequestOutcome.PROTOCOL, "the body is no JSON object"),
        (b"[]", RequestOutcome.PROTOCOL, "the body is no JSON object"),
        (b"{}", RequestOutcome.PROTOCOL, "the body has no generated_text"),
        (b'{"error": "no", "error_type": "x"}', RequestOutcome.SERVER_ERROR, "no (x)"),
    ],
)
def test_tgi_whole_that_cannot_be_read(body: bytes, outcome: RequestOutcome, reason: str) -> None:
    assert told(read(answer(body, kind=JSON), TGI, stream=False)) == (outcome, reason)


# OpenAI


def chat(content: str | None = " t", finish: str | None = None, **rest: Any) -> dict[str, Any]:
    delta = {} if content is None else {"content": content}
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "choices": [choice], "usage": None} | rest


def delta(**fields: object) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


def usage(tokens: int, prompt: int = 7, **rest: object) -> dict[str, Any]:
    return {
        "choices": [],
        "usage": {"prompt_tokens": prompt, "completion_tokens": tokens} | rest,
    }


ROLE = delta(role="assistant", content="")


def counted(*events: object, count: Callable[[str], int] | None = None) -> Reading:
    """Each event in a read of its own, then [DONE]; the outcome is OK."""
    reading = read(answer(*[sse(event) for event in events], DONE), count=count)
    assert told(reading) == (RequestOutcome.OK, "")
    return reading


def test_chat_stream() -> None:
    reading = counted(ROLE, chat(" a"), chat(" b"), chat(" c", "length"), usage(3))
    assert tokens_at(reading) == [(2, 1), (3, 1), (4, 1)]
    assert (reading.events, reading.shared_reads, reading.prompt_tokens) == (6, 0, 7)
    assert (reading.counted_by, reading.finish_reason) == (TokenSource.USAGE, "length")
    assert reading.text == " a b c"


def test_completions_stream() -> None:
    chunks = [
        {"choices": [{"index": 0, "text": " a", "finish_reason": ""}]},
        {"choices": [{"index": 0, "text": " b", "finish_reason": "length"}]},
    ]
    reading = read(answer(*map(sse, chunks), DONE), COMPLETIONS)
    assert told(reading) == (RequestOutcome.OK, "")
    assert tokens_at(reading) == [(1, 1), (2, 1)]
    assert (reading.finish_reason, reading.text) == ("length", " a b")
    assert reading.counted_by is TokenSource.EVENTS


def test_role_chunk_is_no_token_and_shares_no_read() -> None:
    reading = read(answer(sse(ROLE) + sse(chat()) + sse(chat()), sse(chat(None, "stop"))))
    assert tokens_at(reading) == [(1, 1), (1, 1)]
    assert reading.shared_reads == 1


def test_null_content_with_a_role() -> None:
    assert counted(delta(role="assistant", content=None), chat(" a", "stop")).output_tokens == 1


def test_tgi_names_the_role_in_every_chunk() -> None:
    chunk = delta(role="assistant", content=" a")
    assert tokens_at(counted(chunk, chunk, chat(" b", "length"))) == [(1, 1), (2, 1), (3, 1)]


def test_usage_in_every_chunk_counts_each() -> None:
    reading = counted(
        ROLE | {"usage": {"prompt_tokens": 7, "completion_tokens": 0}},
        chat(" a b c", usage={"prompt_tokens": 7, "completion_tokens": 3}),
        chat("", usage={"prompt_tokens": 7, "completion_tokens": 4}),
        chat(" d", "length", usage={"prompt_tokens": 7, "completion_tokens": 6}),
        usage(6),
    )
    assert tokens_at(reading) == [(2, 3), (3, 1), (4, 2)]
    assert reading.counted_by is TokenSource.USAGE


def test_usage_that_falls_is_not_used_for_each() -> None:
    reading = counted(
        chat(usage={"completion_tokens": 5}), chat(finish="stop", usage={"completion_tokens": 2})
    )
    assert tokens_at(reading) == [(1, 1), (2, 1)]


def test_token_ids_and_logprobs_count_each() -> None:
    def listed(count: int, finish: str | None = None) -> dict[str, Any]:
        chunk = chat(" x", finish)
        chunk["choices"][0]["token_ids"] = list(range(count))
        return chunk

    reading = counted(listed(4), listed(2, "length"))
    assert tokens_at(reading) == [(1, 4), (2, 2)]
    assert reading.counted_by is TokenSource.SERVER
    reading = counted(listed(4), listed(2, "length"), usage(6))
    assert tokens_at(reading) == [(1, 4), (2, 2)]
    assert reading.counted_by is TokenSource.USAGE
    chunk = chat(" x", "length")
    chunk["choices"][0]["logprobs"] = {"content": [{"token": " x"}, {"token": "y"}]}
    assert tokens_at(counted(chunk)) == [(1, 2)]


def test_several_tokens_an_event_are_not_told() -> None:
    """The first event is never given more: TPOT is of the tokens after it."""
    reading = counted(ROLE, chat(), chat(), chat(finish="length"), usage(8))
    assert tokens_at(reading) == [(2, 1), (3, 3), (4, 4)]
    assert (reading.output_tokens, reading.counted_by) == (8, TokenSource.USAGE)
    assert (reading.tokens_told, reading.first_told) == (False, True)


def test_the_end_of_the_sequence_is_a_token_without_text() -> None:
    reading = counted(ROLE, chat(), chat(""), chat(), chat(None, "stop"), usage(3))
    assert tokens_at(reading) == [(2, 1), (4, 1), (5, 1)]
    both = counted(ROLE, chat(), chat(""), chat(), chat(None, "stop"), usage(4))
    assert tokens_at(both) == [(2, 1), (3, 1), (4, 1), (5, 1)]


def test_the_length_is_no_token() -> None:
    """A part of a character was held back; the empty last chunk says why it ended."""
    reading = counted(ROLE, chat(), chat(""), chat(), chat(None, "length"), usage(3))
    assert tokens_at(reading) == [(2, 1), (3, 1), (4, 1)]


def test_no_text_at_all() -> None:
    reading = counted(ROLE, chat("", "stop"), usage(1))
    assert tokens_at(reading) == [(2, 1)]
    nothing = counted(ROLE, chat(None, "stop"), usage(0))
    assert tokens_at(nothing) == []


def test_fewer_tokens_than_events() -> None:
    """The last ones carry none: a first token stays where it came."""
    reading = counted(chat(), chat(), chat(finish="stop"), usage(2))
    assert tokens_at(reading) == [(1, 1), (2, 1)]
    assert (reading.tokens_told, reading.first_told) == (False, True)


FILLER = chat("")
"""An event without text or role, as proxies send while they wait."""


@pytest.mark.parametrize(
    ("events", "told_at", "first_told"),
    [
        # As many tokens as texts: the filler is none.
        ([FILLER, chat(), chat(finish="length"), usage(2)], [(2, 1), (3, 1)], True),
        # One more: nobody says whose it is, so it is not the first one's.
        ([FILLER, chat(), chat(finish="length"), usage(3)], [(2, 1), (3, 2)], False),
        ([FILLER, chat(), chat(None, "stop"), usage(2)], [(2, 1), (3, 1)], False),
        ([FILLER, FILLER, chat(finish="length"), usage(3)], [(3, 3)], False),
        # Nobody counts.
        ([FILLER, chat(), chat(finish="length")], [(2, 1), (3, 1)], False),
        # A role says that it is none.
        ([ROLE, chat(), chat(None, "stop"), usage(2)], [(2, 1), (3, 1)], True),
        ([ROLE, ROLE, chat(), chat(finish="length"), usage(3)], [(3, 1), (4, 2)], True),
        # Each event says how many tokens there were until then.
        (
            [
                FILLER | {"usage": {"completion_tokens": 1}},
                chat(finish="length", usage={"completion_tokens": 2}),
            ],
            [(1, 1), (2, 1)],
            True,
        ),
        (
            [
                FILLER | {"usage": {"completion_tokens": 0}},
                chat(finish="length", usage={"completion_tokens": 2}),
            ],
            [(2, 2)],
            True,
        ),
    ],
)
def test_events_without_text_before_the_first(
    events: list[object], told_at: list[tuple[int, int]], first_told: bool
) -> None:
    reading = counted(*events)
    assert tokens_at(reading) == told_at
    assert reading.first_told is first_told


@pytest.mark.parametrize("engine", ["tgi", "vllm", "sglang"])
def test_engines_that_send_each_token(engine: str) -> None:
    """A character cut in the middle is an event without text there, the first one too."""
    events = [FILLER, chat(), FILLER, chat(finish="length"), usage(4)]
    came = answer(*[sse(event) for event in events], DONE)
    reading = read(came, able("chat", engine, usage=True))
    assert tokens_at(reading) == [(1, 1), (2, 1), (3, 1), (4, 1)]
    assert (reading.tokens_told, reading.first_told) == (True, True)


def test_a_total_below_the_events_of_such_an_engine() -> None:
    """Those without text go first, the last one before the others."""
    events = [FILLER, chat(), FILLER, chat(finish="length"), usage(3)]
    came = answer(*[sse(event) for event in events], DONE)
    reading = read(came, able("chat", "vllm", usage=True))
    assert tokens_at(reading) == [(1, 1), (2, 1), (4, 1)]
    assert reading.tokens_told is False


def test_what_comes_after_the_end_is_no_token() -> None:
    """litellm's usage has a choice, without anything in it."""
    filler = delta() | {"usage": {"prompt_tokens": 7, "completion_tokens": 3}}
    reading = counted(ROLE, chat(), chat(None, "length"), filler)
    assert tokens_at(reading) == [(2, 3)]


def test_text_is_counted_beside_the_server() -> None:
    reading = counted(chat(" a b"), chat(" c", "length"), usage(9), count=lambda t: len(t.split()))
    assert (reading.output_tokens, reading.text_tokens) == (9, 3)
    came = answer(sse(token(" a b")), sse(last(3, " a b c d")))
    assert read(came, TGI, count=lambda text: len(text.split())).text_tokens == 4
    body = json.dumps({"generated_text": "a b", "details": WHOLE["details"]}).encode()
    whole = read(answer(body, kind=JSON), TGI, stream=False, count=lambda t: len(t.split()))
    assert (whole.output_tokens, whole.text_tokens) == (2, 2)
    assert counted(chat(finish="stop"), usage(1)).text_tokens is None


def test_what_an_error_says_is_inert() -> None:
    reading = read(answer(sse({"error": {"message": "a\x1b[31m\n" + "b" * 400}})))
    assert reading.reason == r"a\x1b[31m " + "b" * 287 + "..."
    assert len(reading.reason) == 300
    odd = chat(finish="stop") | {"model": "m\x1b" + "n" * 900}
    assert counted(odd).models == (r"m\x1b" + "n" * 192 + "...",)


def test_who_answers() -> None:
    said = {"model": "m", "system_fingerprint": "f"}
    reading = counted(chat() | said, chat(finish="stop") | said | {"model": "n"}, usage(2))
    assert (reading.models, reading.fingerprints) == (("m", "n"), ("f",))
    assert read(answer(sse(token()), sse(last())), TGI).models == ()


def test_a_usage_of_nothing_is_not_believed() -> None:
    reading = counted(chat(), chat(finish="stop"), usage(0))
    assert (reading.output_tokens, reading.counted_by) == (2, TokenSource.EVENTS)


def test_a_tokenizer_counts_where_the_server_does_not() -> None:
    reading = counted(chat(" a b"), chat(" c d", "length"), count=lambda text: len(text.split()))
    assert tokens_at(reading) == [(1, 1), (2, 3)]
    assert (reading.counted_by, reading.tokens_told) == (TokenSource.TOKENIZER, False)


def test_reasoning_and_calls_are_tokens_and_no_text() -> None:
    reading = counted(
        ROLE,
        delta(reasoning_content="hm"),
        delta(reasoning="hm", reasoning_content="hm", content=None),
        delta(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": ""}}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": "{}"}}]),
        chat(" a", "tool_calls"),
        count=len,
    )
    assert [at for at, _ in tokens_at(reading)] == [2, 3, 4, 5, 6]
    assert reading.output_tokens == len("hm" + "hm" + "f" + "{}" + " a")
    assert reading.text == " a"


@pytest.mark.parametrize(
    ("event", "cached"),
    [
        (usage(1, prompt_tokens_details={"cached_tokens": 5}), 5),
        (usage(1, prompt_tokens_details=None), None),
        (usage(1) | {"timings": {"cache_n": 4, "prompt_n": 3}}, 4),
        (usage(1) | {"meta_info": {"cached_tokens": 3}}, 3),
        (usage(1) | {"tokens_cached": 9}, None),
        (usage(1, prompt_tokens_details={"cached_tokens": True}), None),
    ],
)
def test_cached_tokens(event: dict[str, Any], cached: int | None) -> None:
    assert counted(chat(finish="stop"), event).cached_tokens == cached


def test_done_may_be_missing() -> None:
    reading = read(answer(sse(chat()), sse(chat(finish="length"))))
    assert told(reading) == (RequestOutcome.OK, "")


def test_done_may_come_without_a_finish_reason() -> None:
    reading = read(answer(sse(chat()), DONE))
    assert told(reading) == (RequestOutcome.OK, "")
    assert reading.finish_reason is None


@pytest.mark.parametrize("events", [[sse(chat())], [sse(ROLE)], [DONE], [b": x\n\n"], []])
def test_openai_ends_early(events: list[bytes]) -> None:
    reading = read(answer(*events))
    assert reading.outcome is RequestOutcome.INCOMPLETE
    assert "without a finish_reason" in reading.reason


@pytest.mark.parametrize(
    ("event", "outcome", "reason"),
    [
        (
            {"error": {"message": "Input", "http_status_code": 422}},
            RequestOutcome.SERVER_ERROR,
            "Input",
        ),
        (
            {"error": {"message": "Model is overloaded", "http_status_code": 422}},
            RequestOutcome.OVERLOADED,
            "Model is overloaded",
        ),
        (
            {"error": "Model is overloaded", "error_type": "overloaded"},
            RequestOutcome.OVERLOADED,
            "Model is overloaded (overloaded)",
        ),
        ({"error": "boom"}, RequestOutcome.SERVER_ERROR, "boom"),
        (
            {"error": {"message": "CUDA", "type": "InternalServerError", "code": 500}},
            RequestOutcome.SERVER_ERROR,
            "CUDA (InternalServerError)",
        ),
        (
            {"error": {"message": "wait", "code": 503, "type": "unavailable_error"}},
            RequestOutcome.OVERLOADED,
            "wait (unavailable_error)",
        ),
        ({"error": {"message": "wait", "code": "429"}}, RequestOutcome.OVERLOADED, "wait"),
        (
            {"object": "error", "message": "bad", "type": "BadRequestError", "code": 400},
            RequestOutcome.REJECTED,
            "bad (BadRequestError)",
        ),
        (chat() | {"error": {"message": "x"}}, RequestOutcome.SERVER_ERROR, "x"),
        ({"error": {"a": 1}}, RequestOutcome.SERVER_ERROR, "{'a': 1}"),
    ],
)
def test_errors_inside_a_200(event: dict[str, Any], outcome: RequestOutcome, reason: str) -> None:
    reading = read(answer(sse(ROLE), sse(chat()), sse(event), DONE))
    assert told(reading) == (outcome, reason)
    assert reading.output_tokens == 1
    # llama.cpp and others answer 200 with the error alone, as JSON.
    alone = read(answer(json.dumps(event).encode(), kind=JSON))
    assert told(alone) == (outcome, reason)


def test_llamacpp_errors_of_old() -> None:
    reading = read(answer(sse(chat()), b'error: {"code":500,"message":"no","type":"e"}\n\n'))
    assert told(reading) == (RequestOutcome.SERVER_ERROR, "no (e)")


def test_openai_what_cannot_be_read() -> None:
    reading = read(answer(sse(chat()), b"data: {\n\n", sse(chat())))
    assert told(reading) == (RequestOutcome.PROTOCOL, "event 2 is not JSON: {")
    assert reading.output_tokens == 1
    assert read(answer(b"data: 7\n\n")).reason == "event 1 is no JSON object"


@pytest.mark.parametrize(
    "choices", [None, 5, [], [5], [{}], [{"delta": 5}], [{"delta": {"content": 5}}]]
)
def test_odd_chunks_carry_no_token(choices: object) -> None:
    reading = counted({"choices": choices}, {}, {"choices": [{"text": " a"}]}, usage(1))
    assert tokens_at(reading) == [(3, 1)]


@pytest.mark.parametrize(
    ("choice", "count", "tokens", "by"),
    [
        ({"message": {"content": "a b"}, "finish_reason": "stop"}, None, 1, TokenSource.EVENTS),
        ({"message": {"content": "a b"}, "finish_reason": "stop"}, len, 3, TokenSource.TOKENIZER),
        ({"text": "a b", "finish_reason": "stop"}, None, 1, TokenSource.EVENTS),
        (
            {"text": "a b", "finish_reason": "stop", "token_ids": [1, 2]},
            None,
            2,
            TokenSource.SERVER,
        ),
    ],
)
def test_openai_whole(
    choice: dict[str, Any],
    count: Callable[[str], int] | None,
    tokens: int,
    by: TokenSource,
) -> None:
    body = json.dumps({"choices": [choice]}).encode()
    reading = read(answer(body, kind=JSON), stream=False, count=count)
    assert told(reading) == (RequestOutcome.OK, "")
    assert (tokens_at(reading), reading.counted_by) == ([(99, tokens)], by)
    assert (reading.text, reading.finish_reason) == ("a b", "stop")
    said = {"choices": [choice], "usage": {"prompt_tokens": 4, "completion_tokens": 9}}
    reading = read(answer(json.dumps(said).encode(), kind=JSON), stream=False, count=count)
    assert (tokens_at(reading), reading.counted_by) == ([(99, 9)], TokenSource.USAGE)
    assert reading.prompt_tokens == 4


def test_openai_whole_without_a_choice() -> None:
    reading = read(answer(b"{}", kind=JSON), stream=False)
    assert told(reading) == (RequestOutcome.PROTOCOL, "the body has no choice")


# Both


@pytest.mark.parametrize(
    ("status", "headers", "body", "outcome", "reason"),
    [
        (429, [("retry-after", "7")], b"", "overloaded", "HTTP 429, Retry-After: 7"),
        (503, [], b"busy\nnow", "overloaded", "HTTP 503: busy now"),
        (
            302,
            [("location", "http://x/")],
            b"moved",
            "http_error",
            "HTTP 302 to http://x/: redirects are not followed",
        ),
        (304, [], b"", "http_error", "HTTP 304 to nowhere: redirects are not followed"),
        (404, [], b"", "http_error", "HTTP 404"),
        (422, [], b'{"error":"no"}', "rejected", 'HTTP 422: {"error":"no"}'),
        (500, [], b"\xff" * 9, "http_error", "HTTP 500: " + "\ufffd" * 9),
        (204, [], b"", "http_error", "HTTP 204"),
        (400, [], b"x" * 5000, "rejected", "HTTP 400: " + "x" * 297 + "..."),
        (500, [], b"\x1b[2Jno\0 \x9b", "http_error", r"HTTP 500: \x1b[2Jno\x00 " + "\ufffd"),
    ],
)
@pytest.mark.parametrize("abilities", [TGI, CHAT])
def test_status(
    abilities: Abilities,
    status: int,
    headers: list[tuple[str, str]],
    body: bytes,
    outcome: str,
    reason: str,
) -> None:
    reading = read(answer(body, status=status, headers=headers), abilities)
    assert told(reading) == (RequestOutcome(outcome), reason)
    assert (reading.output_tokens, reading.events) == (0, 0)


@pytest.mark.parametrize(
    ("kind", "stream", "reason"),
    [
        ("text/html", True, "text/html came where text/event-stream was asked for: hi"),
        (JSON, True, "application/json came where text/event-stream was asked for: hi"),
        (EVENT_STREAM, False, "text/event-stream came where application/json was asked for: hi"),
        ("text/html; charset=x", False, "the body (text/html) is not JSON: hi"),
    ],
)
@pytest.mark.parametrize("abilities", [TGI, COMPLETIONS])
def test_content_type(abilities: Abilities, kind: str, stream: bool, reason: str) -> None:
    reading = read(answer(b"hi", kind=kind), abilities, stream=stream)
    assert told(reading) == (RequestOutcome.PROTOCOL, reason)


@pytest.mark.parametrize("kind", [None, "Text/Event-Stream; charset=utf-8"])
def test_content_types_that_are_taken(kind: str | None) -> None:
    assert read(answer(sse(chat(finish="stop")), kind=kind)).outcome is RequestOutcome.OK


def test_a_failure_keeps_what_came() -> None:
    came = answer(
        sse(token()), sse(token())[:9], failure=RequestOutcome.CONNECTION_RESET, reason="reset"
    )
    reading = read(came, TGI)
    assert told(reading) == (RequestOutcome.CONNECTION_RESET, "reset")
    assert (reading.output_tokens, reading.finish_reason) == (1, None)


def test_a_failure_after_the_end_stays_a_failure() -> None:
    came = answer(sse(chat(finish="stop")), DONE, failure=RequestOutcome.TIMEOUT, reason="60 s")
    reading = read(came)
    assert told(reading) == (RequestOutcome.TIMEOUT, "60 s")
    assert (reading.output_tokens, reading.finish_reason) == (1, "stop")


def test_a_failure_says_what_the_server_said_before_it() -> None:
    failed = RequestOutcome.CONNECTION_RESET
    reading = read(answer(sse({"error": "no"}), failure=failed, reason="reset"), TGI)
    assert told(reading) == (failed, "reset; before it: no")
    reading = read(answer(b"busy", status=503, failure=failed, reason="reset"), TGI)
    assert told(reading) == (failed, "reset; before it: HTTP 503: busy")


@pytest.mark.parametrize("stream", [True, False])
def test_nothing_came(stream: bool) -> None:
    refused = RequestOutcome.CONNECTION_REFUSED
    came = answer(status=None, kind=None, failure=refused, reason="refused")
    assert told(read(came, TGI, stream)) == (refused, "refused")
    cut = answer(b'{"gen', kind=JSON, failure=RequestOutcome.TIMEOUT, reason="60 s")
    assert told(read(cut, TGI, stream=False)) == (RequestOutcome.TIMEOUT, "60 s")


def test_a_failure_without_a_status_or_a_reason_is_said() -> None:
    assert read(answer(status=None, kind=None)).outcome is RequestOutcome.PROTOCOL


STREAMS = {
    "tgi": (TGI, [sse(token())] * 3 + [sse(last(4))]),
    "chat": (
        CHAT,
        [
            sse(ROLE),
            sse(chat()),
            sse(chat("")),
            sse(chat()),
            sse(chat(None, "stop")),
            sse(usage(5)),
            DONE,
        ],
    ),
}


@given(st.sampled_from(sorted(STREAMS)), st.data())
def test_any_split_gives_the_same_counts(name: str, data: st.DataObject) -> None:
    abilities, chunks = STREAMS[name]
    body = b"".join(chunks)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(body)), max_size=20)))
    edges = [0, *cuts, len(body)]
    pieces = [body[a:b] for a, b in itertools.pairwise(edges)]
    whole, split = read(answer(body), abilities), read(answer(*pieces), abilities)
    assert split.event_tokens == whole.event_tokens
    assert (split.events, split.text, split.outcome) == (whole.events, whole.text, whole.outcome)
    assert split.finish_reason == whole.finish_reason
    assert list(split.event_ns) == sorted(split.event_ns)
    assert len(set(split.event_ns)) == len(split.event_ns) - split.shared_reads


@given(st.binary(max_size=200), st.sampled_from([TGI, CHAT, COMPLETIONS]), st.booleans())
def test_garbage_is_never_ok_and_never_raises(
    body: bytes, abilities: Abilities, stream: bool
) -> None:
    kind = EVENT_STREAM if stream else JSON
    reading = read(answer(b"data: " + body if stream else body, kind=kind), abilities, stream)
    assert reading.outcome in (RequestOutcome.PROTOCOL, RequestOutcome.INCOMPLETE)


@given(
    st.lists(st.integers(0, 5), max_size=12),
    st.integers(0, 200),
)
def test_placed_sums_to_the_total(counts: list[int], total: int) -> None:
    empty = [at for at, count in enumerate(counts) if not count]
    found = placed(counts, total, empty)
    assert sum(found) == (total if counts else 0)
    assert all(count >= 0 for count in found)
    assert placed(counts, sum(counts), empty) == counts


@pytest.mark.parametrize(
    ("counts", "total", "empty", "expected"),
    [
        ([1, 1, 1], 3, [], [1, 1, 1]),
        ([1, 1, 1], 4, [], [1, 1, 2]),
        ([1, 1, 1], 7, [], [1, 3, 3]),
        ([1, 0, 1], 3, [1], [1, 1, 1]),
        ([1, 0, 0], 2, [2, 1], [1, 0, 1]),
        ([1, 0, 1], 6, [1], [1, 1, 4]),
        ([2], 6, [], [6]),
        ([0, 0], 4, [], [0, 4]),
        ([0, 0, 0], 4, [1], [0, 4, 0]),
        ([1, 1, 1, 1], 2, [], [1, 1, 0, 0]),
        ([2, 3], 1, [], [1, 0]),
        ([], 4, [], []),
    ],
)
def test_placed_by_hand(
    counts: list[int], total: int, empty: list[int], expected: list[int]
) -> None:
    assert placed(counts, total, empty) == expected

"""What answers mean: a row for each quirk of a dialect, and all that is read of it in the golden.

A row's pieces arrive at 1, 2, ...; its body ends at 99. The golden names what is not as usual.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dialects.asks import ASK, CHAT, COMPLETIONS, EVENT_STREAM, JSON, TGI, able, answer
from tgi_bench.dialects.answer import Reading
from tgi_bench.dialects.dialect import Abilities
from tgi_bench.dialects.event_tokens import placed
from tgi_bench.dialects.reading import read_answer
from tgi_bench.load_observation import RequestOutcome

DONE = b"data: [DONE]\n\n"
RESET, TIMEOUT = RequestOutcome.CONNECTION_RESET, RequestOutcome.TIMEOUT


def words(text: str) -> int:
    return len(text.split())


def sse(*events: object) -> bytes:
    """Of one read. Bytes are taken as they are."""
    return b"".join(
        event if isinstance(event, bytes) else b"data: " + json.dumps(event).encode() + b"\n\n"
        for event in events
    )


def one_by_one(*events: object) -> tuple[bytes, ...]:
    return tuple(sse(event) for event in events)


def tgi(text: str = " t", special: bool = False, **rest: object) -> dict[str, object]:
    """A token of TGI's stream."""
    said = {"id": 1, "text": text, "logprob": -0.5, "special": special}
    return {"index": 1, "token": said, "generated_text": None, "details": None} | rest


def last(generated: int | None = 3, text: str = " t t t", **details: object) -> dict[str, object]:
    """TGI's last one."""
    told = {"finish_reason": "length", "generated_tokens": generated, "seed": None} | details
    return tgi(generated_text=text, details=None if generated is None else told)


def chat(content: str | None = " t", finish: str | None = None, **rest: Any) -> dict[str, Any]:
    delta = {} if content is None else {"content": content}
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "choices": [choice], "usage": None} | rest


def delta(**said: object) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": said, "finish_reason": None}]}


def of_choice(event: dict[str, Any], **said: object) -> dict[str, Any]:
    """The event, whose choice says more."""
    return event | {"choices": [event["choices"][0] | said]}


def usage(tokens: int, prompt: int = 7, **rest: object) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": tokens} | rest}


def so_far(tokens: int, **rest: int) -> dict[str, Any]:
    return {"usage": {"completion_tokens": tokens} | rest}


ROLE = delta(role="assistant", content="")
FILLER = chat("")
"""An event without text or role, as proxies send while they wait."""
END, LENGTH = chat(finish="stop"), chat(finish="length")
NO_TEXT_END, NO_TEXT_LENGTH = chat(None, "stop"), chat(None, "length")
VLLM = able("chat", "vllm", usage=True)
FOUR_OF_FOUR = (FILLER, chat(), FILLER, LENGTH, usage(4))
CALL = [{"index": 0, "function": {"name": "f", "arguments": ""}}]
SAID = {"model": "m", "system_fingerprint": "f"}
WHOLE = {
    "generated_text": " t t",
    "details": {"finish_reason": "eos_token", "generated_tokens": 2, "seed": None, "tokens": []},
}
CHOICE = {"text": "a b", "finish_reason": "stop"}
MESSAGE = {"message": {"content": "a b"}, "finish_reason": "stop"}


@dataclass(frozen=True)
class Row:
    """One answer. cut: a failure of its connection after it."""

    pieces: tuple[bytes, ...]
    able: Abilities = CHAT
    count: Callable[[str], int] | None = None
    stream: bool = True
    headers: tuple[tuple[str, str], ...] = ()
    cut: RequestOutcome | None = None

    def read(self) -> Reading:
        kind, why = EVENT_STREAM if self.stream else JSON, "" if self.cut is None else "why"
        came = answer(
            *self.pieces,
            kind=kind,
            headers=self.headers,
            failure=self.cut,
            reason=why,
        )
        return read_answer(came, self.able, self.stream, ASK, self.count)


def streamed(*events: object, able: Abilities = TGI, **rest: Any) -> Row:
    """Each event in a read of its own."""
    return Row(one_by_one(*events), able, **rest)


def told(*events: object, able: Abilities = CHAT, **rest: Any) -> Row:
    """The same of OpenAI's chat, then [DONE]."""
    return Row((*one_by_one(*events), DONE), able, **rest)


def whole(body: object, able: Abilities = TGI, **rest: Any) -> Row:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Row((text,), able, stream=False, **rest)


ODD_CHOICES: tuple[object, ...] = (
    *(None, 5, [], [5], [{}]),
    *([{"delta": 5}], [{"delta": {"content": 5}}]),
)

ROWS = {
    # TGI
    "tgi": Row((sse(tgi()), sse(tgi(), tgi()), sse(last(4, input_length=7))), TGI),
    "tgi, no details": streamed(tgi(), last(None)),
    "tgi, a special token between comments": streamed(
        b":\n\n",
        tgi(),
        b": \n\n",
        tgi("</s>", special=True, generated_text=" t", details={"finish_reason": "eos_token"}),
    ),
    **{f"tgi, {n} tokens by its own count": streamed(tgi(), tgi(), last(n)) for n in (3, 5, 6, 2)},
    "tgi, ends early": streamed(tgi(" a"), tgi(" b")),
    "tgi, cut off in an event": streamed(tgi(), sse(last())[:-30]),
    "tgi, no blank line at the end": streamed(tgi(), sse(last(2)).rstrip()),
    **{
        f"tgi, error {kind}": streamed(tgi(), {"error": said, "error_type": kind})
        for said, kind in (
            ("Model is overloaded", "overloaded"),
            ("Input", "validation"),
            ("x", "incomplete_generation_stream"),
        )
    },
    **{
        f"tgi, {bad!r}": streamed(tgi(), bad, tgi())
        for bad in (
            b'data: {"token": \n\n',
            b'data: {"token": "\xff"}\n\n',
            b"data: [1]\n\n",
            DONE,
            b"data: null\n\n",
        )
    },
    "tgi, text counted": streamed(tgi(" a b"), last(3, " a b c d"), count=words),
    "tgi, reset": streamed(tgi(), sse(tgi())[:9], cut=RESET),
    "tgi, an error, then reset": streamed({"error": "no"}, cut=RESET),
    "tgi, whole": whole(WHOLE, headers=(("x-prompt-tokens", "12"),)),
    "tgi, whole, a list": whole([WHOLE]),
    "tgi, whole, counted in a header": whole(
        {"generated_text": "a b c"}, headers=(("x-generated-tokens", "5"),)
    ),
    "tgi, whole, counted by a tokenizer": whole({"generated_text": "a b c"}, count=len),
    "tgi, whole, counted by nobody": whole({"generated_text": "a b c"}),
    "tgi, whole, text counted": whole(WHOLE | {"generated_text": "a b"}, count=words),
    **{
        f"tgi, whole, {body!r}": whole(body)
        for body in (
            b"",
            b"<html>",
            b"\xff",
            b"5",
            b"[]",
            b"{}",
            b'{"error":"no","error_type":"x"}',
        )
    },
    "tgi, whole, cut": whole(b'{"gen', cut=TIMEOUT),
    # OpenAI
    "chat": told(ROLE, chat(" a"), chat(" b"), chat(" c", "length"), usage(3)),
    "completions": told(
        {"choices": [{"index": 0, "text": " a", "finish_reason": ""}]},
        {"choices": [{"index": 0, "text": " b", "finish_reason": "length"}]},
        able=COMPLETIONS,
    ),
    "a role shares no read": Row((sse(ROLE, chat(), chat()), sse(NO_TEXT_END))),
    "a role with null": told(delta(role="assistant", content=None), chat(" a", "stop")),
    "a role in each": told(*[delta(role="assistant", content=" a")] * 2, chat(" b", "length")),
    "usage in each": told(
        ROLE | so_far(0, prompt_tokens=7),
        chat(" a b c") | so_far(3, prompt_tokens=7),
        chat("") | so_far(4, prompt_tokens=7),
        chat(" d", "length") | so_far(6, prompt_tokens=7),
        usage(6),
    ),
    "usage that falls": told(chat() | so_far(5), END | so_far(2)),
    "token_ids": told(
        of_choice(chat(" x"), token_ids=[0, 1, 2, 3]),
        of_choice(chat(" x", "length"), token_ids=[0, 1]),
    ),
    "token_ids and usage": told(
        of_choice(chat(" x"), token_ids=[0, 1, 2, 3]),
        of_choice(chat(" x", "length"), token_ids=[0, 1]),
        usage(6),
    ),
    "logprobs": told(of_choice(chat(" x", "length"), logprobs={"content": [{}, {}]})),
    # The first event is never given more: TPOT is of the tokens after it.
    "several tokens an event": told(ROLE, chat(), chat(), LENGTH, usage(8)),
    # The end of the sequence is a token without text.
    "an end without text": told(ROLE, chat(), chat(""), chat(), NO_TEXT_END, usage(3)),
    "an end and a filler": told(ROLE, chat(), chat(""), chat(), NO_TEXT_END, usage(4)),
    # A part of a character was held back; the empty last chunk says why it ended.
    "a length is no token": told(ROLE, chat(), chat(""), chat(), NO_TEXT_LENGTH, usage(3)),
    "no text, one token": told(ROLE, chat("", "stop"), usage(1)),
    "no text, no token": told(ROLE, NO_TEXT_END, usage(0)),
    # The last ones carry none: a first token stays where it came.
    "fewer tokens than events": told(chat(), chat(), END, usage(2)),
    # As many tokens as texts: the filler is none.
    "a filler first, 2 of 2": told(FILLER, chat(), LENGTH, usage(2)),
    # One more: nobody says whose it is, so it is not the first one's.
    "a filler first, 3 of 2": told(FILLER, chat(), LENGTH, usage(3)),
    "a filler first, 2 of 1": told(FILLER, chat(), NO_TEXT_END, usage(2)),
    "two fillers first": told(FILLER, FILLER, LENGTH, usage(3)),
    "a filler first, nobody counts": told(FILLER, chat(), LENGTH),
    "a role first": told(ROLE, chat(), NO_TEXT_END, usage(2)),
    "two roles first": told(ROLE, ROLE, chat(), LENGTH, usage(3)),
    "a filler that is one so far": told(FILLER | so_far(1), LENGTH | so_far(2)),
    "a filler that is none so far": told(FILLER | so_far(0), LENGTH | so_far(2)),
    # A character cut in the middle is an event without text there, the first one too.
    **{
        f"each event a token, {engine}": told(*FOUR_OF_FOUR, able=able("chat", engine, usage=True))
        for engine in ("tgi", "vllm", "sglang")
    },
    # Those without text go first, the last one before the others.
    "each event a token, one less": told(*FOUR_OF_FOUR[:4], usage(3), able=VLLM),
    # litellm's usage has a choice, without anything in it.
    "after the end": told(ROLE, chat(), NO_TEXT_LENGTH, delta() | so_far(3, prompt_tokens=7)),
    "text counted": told(chat(" a b"), chat(" c", "length"), usage(9), count=words),
    "who answers": told(chat() | SAID, END | SAID | {"model": "n"}, usage(2)),
    "an odd name": told(END | {"model": "m\x1b" + "n" * 900}),
    "usage of nothing": told(chat(), END, usage(0)),
    "counted by a tokenizer": told(chat(" a b"), chat(" c d", "length"), count=words),
    "reasoning and calls": told(
        ROLE,
        delta(reasoning_content="hm"),
        delta(reasoning="hm", reasoning_content="hm", content=None),
        delta(tool_calls=CALL),
        delta(tool_calls=[{"index": 0, "function": {"arguments": "{}"}}]),
        chat(" a", "tool_calls"),
        count=len,
    ),
    "cached": told(END, usage(1, prompt_tokens_details={"cached_tokens": 5})),
    "cached, nobody says": told(END, usage(1, prompt_tokens_details=None)),
    "cached, by llama.cpp": told(END, usage(1) | {"timings": {"cache_n": 4, "prompt_n": 3}}),
    "cached, by SGLang": told(END, usage(1) | {"meta_info": {"cached_tokens": 3}}),
    "cached, of the whole slot": told(END, usage(1) | {"tokens_cached": 9}),
    "cached, no number": told(END, usage(1, prompt_tokens_details={"cached_tokens": True})),
    "no DONE": Row(one_by_one(chat(), LENGTH)),
    "DONE and no finish_reason": told(chat()),
    "DONE, then cut": told(END, cut=TIMEOUT),
    **{
        f"ends early after {name}": Row(pieces)
        for name, pieces in (
            ("a text", (sse(chat()),)),
            ("a role", (sse(ROLE),)),
            ("DONE", (DONE,)),
            ("a comment", (b": x\n\n",)),
            ("nothing", ()),
        )
    },
    "an error of llama.cpp of old": Row(
        (sse(chat()), b'error: {"code":500,"message":"no","type":"e"}\n\n')
    ),
    "an error with odd characters": told({"error": {"message": "a\x1b[31m\n" + "b" * 400}}),
    "no JSON": Row((sse(chat()), b"data: {\n\n", sse(chat()))),
    "no object": Row((b"data: 7\n\n",)),
    **{
        f"odd choices {choices}": told(
            {"choices": choices}, {}, {"choices": [{"text": "a"}]}, usage(1)
        )
        for choices in ODD_CHOICES
    },
    "whole, a message": whole({"choices": [MESSAGE]}, CHAT),
    "whole, a message, counted": whole({"choices": [MESSAGE]}, CHAT, count=len),
    "whole, a text": whole({"choices": [CHOICE]}, CHAT),
    "whole, token_ids": whole({"choices": [CHOICE | {"token_ids": [1, 2]}]}, CHAT),
    "whole, usage": whole({"choices": [CHOICE]} | so_far(9, prompt_tokens=4), CHAT, count=len),
    "whole, no choice": whole(b"{}", CHAT),
}
ERRORS: tuple[dict[str, Any], ...] = (
    {"error": {"message": "Input", "http_status_code": 422}},
    {"error": {"message": "Model is overloaded", "http_status_code": 422}},
    {"error": "Model is overloaded", "error_type": "overloaded"},
    {"error": "boom"},
    {"error": {"message": "CUDA", "type": "InternalServerError", "code": 500}},
    {"error": {"message": "wait", "code": 503, "type": "unavailable_error"}},
    {"error": {"message": "wait", "code": "429"}},
    {"object": "error", "message": "bad", "type": "BadRequestError", "code": 400},
    chat() | {"error": {"message": "x"}},
    {"error": {"a": 1}},
)
"""Inside a 200."""


USUAL = {
    "shared_reads": 0,
    "prompt_tokens": None,
    "cached_tokens": None,
    "finish_reason": None,
    "reason": "",
    "models": (),
    "fingerprints": (),
    "tokens_told": True,
    "first_told": True,
    "text_tokens": None,
    "counted_each": False,
}


def shown(name: str, reading: Reading) -> str:
    """The tokens as arrival: count, and all else that is not as usual."""
    said = {field.name: getattr(reading, field.name) for field in fields(reading)}
    at = zip(said.pop("event_ns"), said.pop("event_tokens"), strict=True)
    tokens = ", ".join(f"{when}: {count}" for when, count in at)
    head = f"{said.pop('outcome')}, {{{tokens}}} by {said.pop('counted_by')}"
    rest = ", ".join(f"{key} {value!r}" for key, value in said.items() if USUAL.get(key) != value)
    return f"{name}\n  {head}\n  {rest}\n"


def test_readings_stay(golden: Callable[[str, str], None]) -> None:
    rows = {name: row.read() for name, row in ROWS.items()}
    for error in ERRORS:
        rows[f"error {error}"] = reading = told(ROLE, chat(), error).read()
        # llama.cpp and others answer 200 with the error alone, as JSON.
        alone = read_answer(answer(json.dumps(error).encode(), kind=JSON), CHAT, True, ASK, None)
        assert (alone.outcome, alone.reason) == (reading.outcome, reading.reason)
    for reading in rows.values():
        assert reading.output_tokens == sum(reading.event_tokens)
        assert all(tokens > 0 for tokens in reading.event_tokens)
    golden("readings.txt", "".join(shown(name, reading) for name, reading in rows.items()))


@given(st.lists(st.integers(0, 5), max_size=12), st.integers(0, 200))
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
)  # fmt: skip
def test_placed_by_hand(
    counts: list[int], total: int, empty: list[int], expected: list[int]
) -> None:
    assert placed(counts, total, empty) == expected

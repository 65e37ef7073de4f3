"""What each API of each engine is sent for the same ask, and what it has no place for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

import pytest

from tests.dialects.asks import ASK, CHAT, COMPLETIONS, GREEDY, TGI, able
from tgi_bench.dialects import first_asked, speaking
from tgi_bench.dialects.dialect import Abilities, Ask, AskOptions, request_bytes
from tgi_bench.errors import InputError

OPTIONS = AskOptions(host="h:80", stream=True, sampling=GREEDY, headers=())
SAMPLED = replace(GREEDY, do_sample=True)
SAMPLINGS = {
    "greedy": GREEDY,
    "greedy, top_k 5": replace(GREEDY, top_k=5),
    "sampled": SAMPLED,
    "temperature 0.5": replace(SAMPLED, temperature=0.5),
    "top_k 5": replace(SAMPLED, top_k=5),
    "top_k 0": replace(SAMPLED, top_k=0),
    "top_p 0.9": replace(SAMPLED, top_p=0.9),
    "top_p 1": replace(SAMPLED, top_p=1.0),
    "typical_p 0.8": replace(SAMPLED, typical_p=0.8),
    "typical_p 1": replace(SAMPLED, typical_p=1.0),
    "repetition_penalty 1.1": replace(SAMPLED, repetition_penalty=1.1),
    "repetition_penalty 1": replace(SAMPLED, repetition_penalty=1.0),
    "watermark": replace(SAMPLED, watermark=True),
}
SPOKEN = (
    ("tgi", "tgi"),
    *product(("completions", "chat"), ("tgi", "vllm", "sglang", "llamacpp", "")),
)
PLAIN = (able("tgi", "tgi"), able("completions"), able("chat"))
ABLE: dict[str, Callable[[Abilities], Abilities]] = {
    "no name of a model": lambda can: replace(can, model=""),
    "truncates": lambda can: replace(can, truncates=True),
    "usage": lambda can: replace(can, usage=True),
    "ignore_eos": lambda can: replace(can, ignores_eos="ignore_eos"),
    "min_tokens": lambda can: replace(can, ignores_eos="min_tokens"),
    "usage so far": lambda can: replace(can, usage=True, counts_each="continuous_usage_stats"),
    "timings so far": lambda can: replace(can, counts_each="timings_per_token"),
}
TALK = (("system", "Be brief"), ("user", "a"), ("assistant", "b"), ("user", 'é\n"\\'))
ASKS = {
    "a prompt of unknown length": replace(ASK, prompt_tokens=None),
    "a conversation": Ask("", TALK, None, 3),
    "half of a surrogate pair": replace(ASK, prompt="\ud800"),
}
HEADS = {
    "a key": replace(OPTIONS, headers=(("Authorization", "Bearer k"), ("X-Team", "\xe9"))),
    "a path before the API": replace(OPTIONS, base_path="/proxy/"),
    "a name that is none": replace(OPTIONS, headers=(("a b", "c"),)),
    "a header of the request's own": replace(OPTIONS, headers=(("Content-Length", "5"),)),
    "a value of two lines": replace(OPTIONS, headers=(("X", "a\r\nY: b"),)),
    "a host that is none": replace(OPTIONS, host="a b"),
    "a path that is none": replace(OPTIONS, base_path="proxy"),
}


def test_bodies_stay(golden: Callable[[str, str], None]) -> None:
    golden("request_bodies.txt", "".join(f"{name}\n  {sent}\n" for name, sent in bodies()))


def bodies() -> Iterator[tuple[str, str]]:
    """What is asked, and the path and the JSON, or the refusal."""
    for (spoken, engine), (name, sampling) in product(SPOKEN, SAMPLINGS.items()):
        whom = f"{spoken} of {engine or 'a server of no known engine'}"
        options = replace(OPTIONS, stream=False, sampling=sampling)
        yield f"{whom}, {name}", body(able(spoken, engine), options=options)
    for (name, with_it), plain, stream in product(ABLE.items(), PLAIN, (True, False)):
        how = "streamed" if stream else "whole"
        options = replace(OPTIONS, stream=stream)
        yield f"{plain.dialect.name}, {name}, {how}", body(with_it(plain), options=options)
    for (name, ask), can in product(ASKS.items(), (TGI, COMPLETIONS, CHAT)):
        yield f"{can.dialect.name}, {name}", body(can, ask)
    for name, options in HEADS.items():
        yield name, whole(TGI, options)


def body(can: Abilities, ask: Ask = ASK, options: AskOptions = OPTIONS) -> str:
    try:
        head, _, sent = request_bytes(ask, can, options).decode().partition("\r\n\r\n")
    except InputError as error:
        return f"refused: {error}"
    return f"{head.split()[1]} {sent}"


def whole(can: Abilities, options: AskOptions) -> str:
    """Head and body on one line."""
    try:
        return repr(request_bytes(ASK, can, options))
    except InputError as error:
        return f"refused: {error}"


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ((("x", "a\r\nHost: b"),), "the value of the header x"),
        ((("x", "a\nb"),), "the value of the header x"),
        ((("x", "a\0"),), "the value of the header x"),
        ((("x", "\u20ac"),), "the value of the header x"),
        ((("x y", "a"),), "no name of an HTTP header"),
        ((("x:", "a"),), "no name of an HTTP header"),
        ((("x\r\ny", "a"),), r"x\\r\\ny"),
        ((("", "a"),), "no name of an HTTP header"),
        ((("content-length", "1"),), "set by the request itself"),
        ((("Transfer-Encoding", "chunked"),), "set by the request itself"),
        ((("HOST", "a"),), "set by the request itself"),
    ],
)
def test_headers_that_are_refused(headers: tuple[tuple[str, str], ...], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        request_bytes(ASK, TGI, replace(OPTIONS, headers=headers))


@pytest.mark.parametrize(
    "options",
    [
        replace(OPTIONS, host="a\r\nx: b"),
        replace(OPTIONS, host=""),
        replace(OPTIONS, base_path="no-slash"),
        replace(OPTIONS, base_path="/a b"),
    ],
)
def test_hosts_and_paths_that_are_refused(options: AskOptions) -> None:
    with pytest.raises(InputError, match="of a URL"):
        request_bytes(ASK, TGI, options)


def test_a_value_that_is_refused_is_not_shown() -> None:
    with pytest.raises(InputError) as caught:
        request_bytes(ASK, TGI, replace(OPTIONS, headers=(("authorization", "secret\n"),)))
    assert "secret" not in str(caught.value)


def test_prompts_of_any_script() -> None:
    text = 'Gr\xfc\xdfe "\\" \u4e16\U0001f600\n'
    body = request_bytes(replace(ASK, prompt=text), TGI, OPTIONS).partition(b"\r\n\r\n")[2]
    assert json.loads(body)["inputs"] == text


def test_a_name_that_no_api_has() -> None:
    with pytest.raises(ValueError, match="'latin'"):
        speaking("latin")


def test_which_is_asked_for_a_first_token() -> None:
    asked = {engine: first_asked(engine).name for engine in ("tgi", "vllm", "sglang", "llamacpp")}
    assert asked == dict.fromkeys(asked, "completions") | {"tgi": "tgi"}

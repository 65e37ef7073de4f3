"""The bytes of requests."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.drive.asks import ASK, CHAT, COMPLETIONS, GREEDY, TGI, able
from tgi_bench.dialects import speaking
from tgi_bench.dialects.dialect import Abilities, Ask, AskOptions, request_bytes
from tgi_bench.errors import InputError
from tgi_bench.sections.section import Sampling

OPTIONS = AskOptions(host="h:80", stream=True, sampling=GREEDY, headers=())
WARM = Sampling(True, 0.5, 10, 0.9, 0.8, 1.1, True)
NEUTRAL = Sampling(True, None, 0, 1.0, 1.0, 1.0, False)


def parts(request: bytes) -> tuple[str, dict[str, str], Any]:
    """Request line, headers, JSON; Content-Length must be right."""
    head, _, body = request.partition(b"\r\n\r\n")
    line, *lines = head.decode("latin-1").split("\r\n")
    headers = dict(text.split(": ", 1) for text in lines)
    assert int(headers["Content-Length"]) == len(body)
    return line, headers, json.loads(body)


def body_of(abilities: Abilities, ask: Ask = ASK, options: AskOptions = OPTIONS) -> Any:
    return parts(request_bytes(ask, abilities, options))[2]


@pytest.mark.parametrize(
    ("spoken", "stream", "path"),
    [
        ("tgi", True, "/generate_stream"),
        ("tgi", False, "/generate"),
        ("completions", True, "/v1/completions"),
        ("completions", False, "/v1/completions"),
        ("chat", True, "/v1/chat/completions"),
        ("chat", False, "/v1/chat/completions"),
    ],
)
def test_request_line_and_headers(spoken: str, stream: bool, path: str) -> None:
    abilities = able(spoken)
    assert abilities.dialect.path(stream) == path
    options = replace(OPTIONS, stream=stream, headers=(("Authorization", "Bearer k"),))
    line, headers, _ = parts(request_bytes(ASK, abilities, options))
    assert line == f"POST {path} HTTP/1.1"
    del headers["Content-Length"]
    assert headers == {
        "Host": "h:80",
        "User-Agent": "tgi-bench",
        "Accept": "text/event-stream" if stream else "application/json",
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
        "Connection": "keep-alive",
        "Authorization": "Bearer k",
    }


def test_a_path_before_the_api() -> None:
    options = replace(OPTIONS, base_path="/proxy/")
    assert request_bytes(ASK, CHAT, options).startswith(b"POST /proxy/v1/chat/completions ")


def test_tgi() -> None:
    assert body_of(TGI) == {
        "inputs": "a b",
        "parameters": {"details": True, "do_sample": False, "max_new_tokens": 3, "truncate": 2},
    }
    assert "truncate" not in body_of(TGI, replace(ASK, prompt_tokens=None))["parameters"]


def test_tgi_sampling() -> None:
    warm = body_of(TGI, options=replace(OPTIONS, sampling=WARM))["parameters"]
    assert warm == {
        "details": True,
        "do_sample": True,
        "max_new_tokens": 3,
        "truncate": 2,
        "temperature": 0.5,
        "top_k": 10,
        "top_p": 0.9,
        "typical_p": 0.8,
        "repetition_penalty": 1.1,
        "watermark": True,
    }
    neutral = body_of(TGI, options=replace(OPTIONS, sampling=NEUTRAL))["parameters"]
    assert neutral.keys() == {"details", "do_sample", "max_new_tokens", "truncate"}


@pytest.mark.parametrize(
    ("abilities", "beside"),
    [
        (able("completions"), {}),
        (able("completions", usage=True), {"stream_options": {"include_usage": True}}),
        (able("completions", ignores_eos="ignore_eos"), {"ignore_eos": True}),
        (able("completions", ignores_eos="min_tokens"), {"min_tokens": 3}),
        (able("completions", "vllm", truncates=True), {"truncate_prompt_tokens": 2}),
    ],
)
def test_completions(abilities: Abilities, beside: dict[str, object]) -> None:
    common = {"model": "m", "max_tokens": 3, "stream": True, "temperature": 0.0}
    assert body_of(abilities) == {"prompt": "a b"} | common | beside
    chat = replace(abilities, dialect=speaking("chat")[0])
    messages = [{"role": "user", "content": "a b"}]
    assert body_of(chat) == {"messages": messages} | common | beside


@pytest.mark.parametrize("spoken", ["completions", "chat"])
def test_no_model_is_named_where_none_is_known(spoken: str) -> None:
    assert "model" not in body_of(replace(able(spoken), model=""))


def test_usage_is_asked_for_in_streams_alone() -> None:
    assert "stream_options" not in body_of(CHAT, options=replace(OPTIONS, stream=False))


def test_a_conversation() -> None:
    messages = (("user", "a"), ("assistant", "b"), ("user", "c"))
    ask = Ask(prompt="", messages=messages, prompt_tokens=None, output_tokens=1)
    assert [m["content"] for m in body_of(CHAT, ask)["messages"]] == ["a", "b", "c"]
    text = "user: a\nassistant: b\nuser: c\nassistant:"
    assert body_of(COMPLETIONS, ask)["prompt"] == text
    assert body_of(TGI, ask)["inputs"] == text


@pytest.mark.parametrize(
    ("engine", "sampling", "expected"),
    [
        ("", Sampling(True, None, None, None, None, None, False), (1.0, {"top_p": 1.0})),
        ("tgi", Sampling(True, None, None, None, None, None, False), (1.0, {})),
        ("tgi", Sampling(True, 0.5, None, 0.9, None, 1.1, False), (0.5, {"top_p": 0.9})),
        ("vllm", Sampling(True, 0.5, 7, 0.9, None, None, False), (0.5, {"top_p": 0.9, "top_k": 7})),
        (
            "llamacpp",
            Sampling(True, 0.5, None, None, 0.8, 1.1, False),
            (0.5, {"top_p": 1.0, "typical_p": 0.8, "repeat_penalty": 1.1}),
        ),
        ("sglang", Sampling(False, 0.5, None, None, None, None, False), (0.0, {})),
    ],
)
def test_openai_sampling(
    engine: str, sampling: Sampling, expected: tuple[float, dict[str, float]]
) -> None:
    body = body_of(able("completions", engine), options=replace(OPTIONS, sampling=sampling))
    temperature, rest = expected
    if engine == "tgi" and sampling.repetition_penalty:
        rest = rest | {"repetition_penalty": 1.1}
    known = {"model", "prompt", "max_tokens", "stream"}
    assert {k: v for k, v in body.items() if k not in known} == {"temperature": temperature} | rest


@pytest.mark.parametrize(
    ("abilities", "sampling", "key"),
    [
        (able("chat", "tgi"), Sampling(True, None, 5, None, None, None, False), "top_k"),
        (able("chat"), Sampling(True, None, None, None, 0.5, None, False), "typical_p"),
        (
            able("chat", "tgi"),
            Sampling(True, None, None, None, None, 1.5, False),
            "repetition_penalty",
        ),
        (
            able("completions", "vllm"),
            Sampling(True, None, None, None, None, None, True),
            "watermark",
        ),
    ],
)
def test_a_sampling_key_without_a_place(abilities: Abilities, sampling: Sampling, key: str) -> None:
    with pytest.raises(InputError, match=rf"sampling\.{key} has no place in the"):
        request_bytes(ASK, abilities, replace(OPTIONS, sampling=sampling))


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


def test_a_prompt_that_is_no_text() -> None:
    with pytest.raises(InputError, match="cannot be sent as JSON"):
        request_bytes(replace(ASK, prompt="\ud800"), TGI, OPTIONS)


def test_prompts_of_any_script() -> None:
    text = 'Grüße "\\" \u4e16\U0001f600\n'
    assert body_of(TGI, replace(ASK, prompt=text))["inputs"] == text


def test_a_name_that_no_api_has() -> None:
    with pytest.raises(ValueError, match="'latin'"):
        speaking("latin")

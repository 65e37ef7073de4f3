"""The OpenAI dialect over httpx."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.server.router.scripted_shard import Script
from tests.server.router.serving import Served, serve
from tgi_bench.server.config import Version
from tgi_bench.wire.messages import FinishReason

MESSAGES = [{"role": "user", "content": "a b"}]
# The simulated template: "user: a b\nassistant:" is 6 tokens of the simulated tokenizer.
CHAT_TOKENS = 6


def events(
    served: Served, path: str, body: dict[str, object], version: Version = (3, 3, 7)
) -> list[Any]:
    """A stream's events; [DONE] must be the last where this version has it, and is left out."""
    response = served.post(path, body | {"stream": True})
    assert response.status_code == 200
    found = [line.removeprefix("data:").strip() for line in response.text.split("\n\n") if line]
    if version >= (2, 2, 0):
        assert found.pop() == "[DONE]"
    return [json.loads(event) for event in found]


def test_chat() -> None:
    with serve() as served:
        response = served.post("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 2})
    told = response.json()
    assert told.pop("created") > 1_600_000_000
    assert told == {
        "object": "chat.completion",
        "id": "",
        "model": "bigscience/bloomz-1b1",
        "system_fingerprint": "3.3.7-simulated",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": " t0 t1"},
                "logprobs": None,
                "finish_reason": "length",
            }
        ],
        "usage": {
            "prompt_tokens": CHAT_TOKENS,
            "completion_tokens": 2,
            "total_tokens": CHAT_TOKENS + 2,
        },
    }
    assert response.headers["x-compute-type"] == "simulated"
    assert response.headers["x-prompt-tokens"] == str(CHAT_TOKENS)


@pytest.mark.parametrize("usage", [False, True])
def test_chat_stream(usage: bool) -> None:
    body = {"messages": MESSAGES, "max_tokens": 2, "stream_options": {"include_usage": usage}}
    with serve() as served:
        found = events(served, "/v1/chat/completions", body)
    last = found.pop() if usage else None
    assert [event["choices"][0]["delta"] for event in found] == [
        {"role": "assistant", "content": " t0"},
        {"role": "assistant", "content": " t1"},
    ]
    assert [event["choices"][0]["finish_reason"] for event in found] == [None, "length"]
    assert {event["object"] for event in found} == {"chat.completion.chunk"}
    assert [event["usage"] for event in found] == [None, None]
    if last is not None:
        assert last["choices"] == []
        assert last["usage"]["total_tokens"] == CHAT_TOKENS + 2


def test_chat_logprobs() -> None:
    body = {"messages": MESSAGES, "max_tokens": 1, "logprobs": True, "top_logprobs": 1}
    expected = {
        "content": [
            {
                "token": " t0",
                "logprob": -0.5,
                "top_logprobs": [{"token": " o0", "logprob": -1.0}],
            }
        ]
    }
    with serve() as served:
        whole = served.post("/v1/chat/completions", body).json()
        assert whole["choices"][0]["logprobs"] == expected
        (event,) = events(served, "/v1/chat/completions", body)
    expected["content"][0]["logprob"] = -1.5  # the scripted rank's second request
    assert event["choices"][0]["logprobs"] == expected


def test_what_the_shard_is_told() -> None:
    script = Script()
    body = {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        "max_completion_tokens": 3,
        "temperature": 0,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.25,
        "seed": 7,
        "stop": "x",
    }
    with serve(script=script) as served:
        assert served.post("/v1/chat/completions", body).status_code == 200
        warmer = {"prompt": "a", "max_tokens": 1, "temperature": 0.5, "top_p": 0.25}
        assert served.post("/v1/completions", warmer).status_code == 200
    request, second = (batch.requests[0] for batch in script.batches)
    assert request.text == "user: hi\nassistant:"
    assert request.stopping.max_new_tokens == 3
    assert request.stopping.stop_sequences == ("x",)
    assert not request.choice.do_sample
    assert (request.choice.temperature, request.choice.seed) == (1.0, 7)
    assert request.choice.repetition_penalty == 2.5
    assert request.choice.frequency_penalty == 0.25
    assert second.choice.do_sample
    assert (second.choice.temperature, second.choice.top_p) == (0.5, 0.25)


def test_completions_of_several_prompts() -> None:
    body = {"prompt": ["a", "b c"], "max_tokens": 2}
    with serve() as served:
        told = served.post("/v1/completions", body).json()
        assert [(c["index"], c["text"]) for c in told["choices"]] == [
            (0, " t0 t1"),
            (1, " t0 t1"),
        ]
        assert told["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
        assert told["object"] == "text_completion"
        found = events(served, "/v1/completions", body)
    for index in (0, 1):
        choices = [e["choices"][0] for e in found if e["choices"][0]["index"] == index]
        assert [choice["text"] for choice in choices] == [" t0", " t1"]
        assert [choice["finish_reason"] for choice in choices] == ["", "length"]


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("version", [(2, 0, 4), (2, 2, 0), (2, 3, 0)])
def test_completions_usage(version: Version, asked: bool) -> None:
    """From 2.3.0 the last event of each prompt says why it ended and has usage, asked or not."""
    body: dict[str, object] = {"prompt": "a", "max_tokens": 2}
    body["stream_options"] = {"include_usage": asked}
    with serve(version, Script(finish=FinishReason.EOS_TOKEN)) as served:
        first, last = events(served, "/v1/completions", body, version)
    assert "usage" not in first
    assert first["choices"][0]["finish_reason"] == ""
    if version < (2, 3, 0):
        assert "usage" not in last
        assert last["choices"][0]["finish_reason"] == ""
    else:
        assert last["usage"] == {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
        assert last["choices"][0]["finish_reason"] == "eos_token"


@pytest.mark.parametrize(
    ("version", "whole", "chunk"),
    [
        ((2, 0, 4), "text_completion", "text_completion"),
        ((2, 1, 0), "chat.completion", "chat.completion.chunk"),
    ],
)
def test_what_a_chat_calls_itself(version: Version, whole: str, chunk: str) -> None:
    body: dict[str, object] = {"messages": MESSAGES, "max_tokens": 1}
    with serve(version) as served:
        assert served.post("/v1/chat/completions", body).json()["object"] == whole
        (event,) = events(served, "/v1/chat/completions", body, version)
    assert event["object"] == chunk
    assert "usage" not in event


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("/v1/completions", {"prompt": "a", "suffix": "b"}, "Suffix is not supported"),
        ("/v1/completions", {"prompt": ["a"] * 5}, "maximum allowed batch size of 4"),
        ("/v1/completions", {"prompt": []}, "`inputs` cannot be empty"),
        ("/v1/completions", {}, "missing field `prompt`"),
        ("/v1/completions", {"prompt": "a", "top_p": 1.0}, "`top_p` must be > 0.0 and < 1.0"),
        ("/v1/chat/completions", {}, "missing field `messages`"),
        ("/v1/chat/completions", {"messages": [{}]}, "missing field `role`"),
        (
            "/v1/chat/completions",
            {"messages": MESSAGES, "max_tokens": 1, "tools": [{"type": "function"}]},
            "grammar is not supported",
        ),
        (
            "/v1/chat/completions",
            {"messages": MESSAGES, "top_logprobs": 2},
            "`logprobs` must be true",
        ),
    ],
)
def test_refusals(path: str, body: dict[str, object], reason: str) -> None:
    with serve() as served:
        response = served.post(path, body)
    assert response.status_code == 422
    assert reason in response.text


@pytest.mark.parametrize(("version", "an_object"), [((2, 0, 4), False), ((3, 3, 7), True)])
def test_errors_in_a_stream(version: Version, an_object: bool) -> None:
    body: dict[str, object] = {"messages": MESSAGES, "max_tokens": 0}
    sentence = "Input validation error: `max_new_tokens` must be strictly positive"
    plain = {"error": sentence, "error_type": "validation"}
    with serve(version) as served:
        said = {"error": {"message": sentence, "http_status_code": 422}} if an_object else plain
        assert events(served, "/v1/chat/completions", body, version) == [said]
        prompt: dict[str, object] = {"prompt": "a", "max_tokens": 0}
        assert events(served, "/v1/completions", prompt, version) == [said]


@pytest.mark.parametrize(
    ("version", "finish", "said"),
    [
        ((3, 3, 7), FinishReason.EOS_TOKEN, "stop"),
        ((2, 2, 0), FinishReason.EOS_TOKEN, "eos_token"),
        ((2, 3, 0), FinishReason.EOS_TOKEN, "stop"),
        ((3, 3, 7), FinishReason.STOP_SEQUENCE, "stop_sequence"),
    ],
)
def test_finish_reasons(version: Version, finish: FinishReason, said: str) -> None:
    with serve(version, Script(finish=finish)) as served:
        told = served.post("/v1/completions", {"prompt": "a", "max_tokens": 1}).json()
    assert told["choices"][0]["finish_reason"] == said


def test_models() -> None:
    with serve() as served:
        told = served.get("/v1/models").json()
    assert [model["id"] for model in told["data"]] == ["bigscience/bloomz-1b1"]

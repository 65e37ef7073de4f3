"""What is read of the embedded server's answers is what text-generation and openai read."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest
from openai import OpenAI
from openai.types import CompletionUsage
from text_generation import Client  # type: ignore[import-untyped]

from tests.dialects.asks import GREEDY
from tests.server.router import serving
from tests.server.router.real_ranks import FLASH, PADDED, real
from tests.server.router.scripted_shard import Script
from tgi_bench.ask import Asking
from tgi_bench.dialects import speaking
from tgi_bench.dialects.abilities import find_out
from tgi_bench.dialects.answer import Answer, Reading
from tgi_bench.dialects.dialect import Abilities, Ask, AskOptions, request_bytes
from tgi_bench.dialects.reading import read_answer
from tgi_bench.load_observation import RequestOutcome
from tgi_bench.server.config import Version
from tgi_bench.wire.messages import FinishReason

PROMPT = "one two three"
NEW_TOKENS = 9

# The package calls pydantic's `dict`, which pydantic 2 deprecates in favour of `model_dump`.
pytestmark = pytest.mark.filterwarnings(
    "ignore:The `dict` method is deprecated:pydantic.warnings.PydanticDeprecatedSince20"
)


@dataclass(frozen=True)
class View:
    """One answer as somebody reads it. prompt_tokens: None where it is not said."""

    tokens: int
    text: str
    finish_reason: str | None
    prompt_tokens: int | None = None


def ours(url: str, spoken: str, stream: bool, output_tokens: int = NEW_TOKENS) -> Reading:
    """Through request_bytes, a plain socket and read_answer."""
    able = find_out(url, "", speaking(spoken), None, Asking()).abilities
    return asked(url, able, stream, output_tokens)


def asked(url: str, able: Abilities, stream: bool, output_tokens: int) -> Reading:
    """One request to a server whose abilities are known."""
    address = urlsplit(url)
    ask = Ask(PROMPT, (), None, output_tokens)
    request = request_bytes(ask, able, AskOptions(address.netloc, stream, GREEDY, ()))
    with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
        connection.sendall(request)
        response = http.client.HTTPResponse(connection, method="POST")
        response.begin()
        pieces = []
        while piece := response.read1():
            pieces.append((time.monotonic_ns(), piece))
        headers = tuple((n.lower().encode(), v.encode()) for n, v in response.getheaders())
        ended_ns = time.monotonic_ns()
        response.close()
    answer = Answer(response.status, headers, tuple(pieces), 0, ended_ns, None, "")
    return read_answer(answer, able, stream, ask, None)


def view(reading: Reading) -> View:
    assert (reading.outcome, reading.reason) == (RequestOutcome.OK, "")
    assert len(reading.event_ns) == len(reading.event_tokens)
    return View(reading.output_tokens, reading.text, reading.finish_reason, reading.prompt_tokens)


def of_text_generation(url: str, stream: bool) -> View:
    client = Client(url)
    if not stream:
        whole = client.generate(PROMPT, max_new_tokens=NEW_TOKENS)
        details = whole.details
        text, tokens = whole.generated_text, details.generated_tokens
        assert tokens == len(details.tokens)
    else:
        events = list(client.generate_stream(PROMPT, max_new_tokens=NEW_TOKENS))
        details = events[-1].details
        text, tokens = events[-1].generated_text, len(events)
        assert tokens == details.generated_tokens
    return View(tokens, text, details.finish_reason.value)


@contextmanager
def openai_client(url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


def of_completions(url: str, stream: bool) -> View:
    with openai_client(url) as client:
        if not stream:
            whole = client.completions.create(
                model="tgi", prompt=PROMPT, max_tokens=NEW_TOKENS, temperature=0
            )
            assert whole.usage is not None
            choice = whole.choices[0]
            return View(
                whole.usage.completion_tokens,
                choice.text,
                choice.finish_reason,
                whole.usage.prompt_tokens,
            )
        chunks = list(
            client.completions.create(
                model="tgi",
                prompt=PROMPT,
                max_tokens=NEW_TOKENS,
                temperature=0,
                stream=True,
                stream_options={"include_usage": True},
            )
        )
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    text = "".join(choice.text for choice in choices)
    return streamed(chunks[-1].usage, len(choices), text, choices[-1].finish_reason)


def of_chat(url: str, stream: bool) -> View:
    with openai_client(url) as client:
        if not stream:
            whole = client.chat.completions.create(
                model="tgi",
                messages=[{"role": "user", "content": PROMPT}],
                max_tokens=NEW_TOKENS,
                temperature=0,
            )
            assert whole.usage is not None
            choice = whole.choices[0]
            return View(
                whole.usage.completion_tokens,
                choice.message.content or "",
                choice.finish_reason,
                whole.usage.prompt_tokens,
            )
        chunks = list(
            client.chat.completions.create(
                model="tgi",
                messages=[{"role": "user", "content": PROMPT}],
                max_tokens=NEW_TOKENS,
                temperature=0,
                stream=True,
                stream_options={"include_usage": True},
            )
        )
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    text = "".join(choice.delta.content or "" for choice in choices)
    return streamed(chunks[-1].usage, len(choices), text, choices[-1].finish_reason)


def streamed(
    usage: CompletionUsage | None, events: int, text: str, finish_reason: str | None
) -> View:
    """Without usage, as before 2.3.0, each event is a token."""
    if usage is None:
        return View(events, text, finish_reason or None)
    return View(usage.completion_tokens, text, finish_reason, usage.prompt_tokens)


def without_prompt(seen: View) -> View:
    """text-generation does not read the prompt's tokens."""
    return View(seen.tokens, seen.text, seen.finish_reason)


def check_all(url: str, version: Version, finish_reason: str | None = None) -> None:
    """Each API of that version, streamed and not."""
    for stream in (True, False):
        mine = view(ours(url, "tgi", stream))
        assert without_prompt(mine) == of_text_generation(url, stream)
        assert mine.tokens == NEW_TOKENS
        assert finish_reason is None or mine.finish_reason == finish_reason
        known = version >= (2, 3, 0) if stream else version >= (1, 4, 0)
        assert mine.prompt_tokens == (3 if known else None)
        if version >= (1, 4, 5):
            assert view(ours(url, "completions", stream)) == of_completions(url, stream)
            assert view(ours(url, "chat", stream)) == of_chat(url, stream)


@pytest.mark.parametrize(
    ("version", "model"), [((0, 9, 4), PADDED), ((2, 0, 4), FLASH), ((3, 3, 7), FLASH)]
)
def test_the_embedded_server(version: Version, model: str) -> None:
    with real(version, model) as running:
        check_all(running.url, version, "length")


@pytest.mark.parametrize("version", [(0, 9, 4), (2, 0, 4), (3, 3, 7)])
@pytest.mark.parametrize("finish", list(FinishReason))
def test_finish_reasons(version: Version, finish: FinishReason) -> None:
    with serving.serve(version, Script(finish=finish)) as served:
        check_all(served.url, version)


@pytest.mark.parametrize("version", [(0, 9, 4), (2, 0, 4), (3, 3, 7)])
def test_comments_of_a_slow_server(version: Version) -> None:
    body = {"inputs": PROMPT, "parameters": {"max_new_tokens": 3, "details": True}}
    with serving.serve(version, Script(step_s=0.05), keep_alive_s=0.01) as served:
        assert "\n:" in served.post("/generate_stream", body).text
        reading = ours(served.url, "tgi", stream=True, output_tokens=3)
    assert view(reading).tokens == 3
    assert reading.events == 3
    assert list(reading.event_ns) == sorted(reading.event_ns)


@pytest.mark.parametrize(
    ("version", "spoken"),
    [
        ((0, 9, 4), "tgi"),
        *(
            (version, spoken)
            for version in ((2, 0, 4), (3, 3, 7))
            for spoken in ("tgi", "completions", "chat")
        ),
    ],
)
def test_refusals(version: Version, spoken: str) -> None:
    with serving.serve(version) as served:
        streamed = ours(served.url, spoken, stream=True, output_tokens=100)
        whole = ours(served.url, spoken, stream=False, output_tokens=100)
    assert streamed.outcome is RequestOutcome.REJECTED
    assert whole.outcome is RequestOutcome.REJECTED
    for reading in (streamed, whole):
        assert "`inputs` tokens + `max_new_tokens` must be <= 40" in reading.reason
        assert reading.output_tokens == 0
    assert whole.reason.startswith("HTTP 422: ")


@pytest.mark.parametrize("spoken", ["tgi", "completions", "chat"])
def test_overloaded(spoken: str) -> None:
    script = Script()
    body = {"inputs": "a", "parameters": {"max_new_tokens": 1}}
    with serving.serve(script=script, max_concurrent_requests=1) as served:
        able = find_out(served.url, "", speaking(spoken), None, Asking()).abilities
        before, script.held = len(script.batches), True
        with serving.in_thread(lambda: served.post("/generate", body)):
            serving.until(lambda: len(script.batches) == before + 1)
            readings = [asked(served.url, able, stream, 1) for stream in (True, False)]
            script.held = False
    for reading in readings:
        assert reading.outcome is RequestOutcome.OVERLOADED
        assert "Model is overloaded" in reading.reason

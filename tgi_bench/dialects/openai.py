"""A request as the bytes that a server is sent, in the words of its API.

Sources: router/src/lib.rs and validation.rs of huggingface/text-generation-inference; the
OpenAI-compatible servers of vllm-project/vllm and sgl-project/sglang; tools/server/README.md of
ggml-org/llama.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from tgi_bench.dialects.dialect import Abilities, Ask
from tgi_bench.dialects.sampling import Sampling
from tgi_bench.errors import InputError
from tgi_bench.http_rules import USER_AGENT, checked_host, checked_path, header_lines
from tgi_bench.plan.load_trial import Spoken

_JsonValue = str | int | float | bool | dict[str, "_JsonValue"] | list[dict[str, str]]
_Body = dict[str, _JsonValue]


@dataclass(frozen=True, slots=True)
class AskOptions:
    """What all requests of a stage share.

    host: of the Host header, with the port where it is not the scheme's own. headers: beside the
    request's own. base_path: of the server's URL, "" or "/something".
    """

    host: str
    stream: bool
    sampling: Sampling
    headers: tuple[tuple[str, str], ...]
    base_path: str = ""


def target(abilities: Abilities, stream: bool) -> str:
    """The path that a request goes to."""
    match abilities.spoken:
        case Spoken.TGI:
            return "/generate_stream" if stream else "/generate"
        case Spoken.COMPLETIONS:
            return "/v1/completions"
        case Spoken.CHAT:
            return "/v1/chat/completions"
        case Spoken.AUTO:
            raise ValueError("the API must be found before it is spoken")


def request_bytes(ask: Ask, abilities: Abilities, options: AskOptions) -> bytes:
    """The whole HTTP/1.1 request.

    Raises InputError where a header, the prompt or a sampling key cannot be sent.
    """
    body = body_bytes(ask, abilities, options)
    accept = "text/event-stream" if options.stream else "application/json"
    head = (
        f"POST {checked_path(options.base_path)}{target(abilities, options.stream)} HTTP/1.1\r\n"
        f"Host: {checked_host(options.host)}\r\n"
        f"User-Agent: {USER_AGENT}\r\n"
        f"Accept: {accept}\r\n"
        "Accept-Encoding: identity\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Connection: keep-alive\r\n"
        f"{header_lines(options.headers)}\r\n"
    )
    return head.encode("latin-1") + body


def body_bytes(ask: Ask, abilities: Abilities, options: AskOptions) -> bytes:
    """The request's JSON. Raises InputError as request_bytes does."""
    match abilities.spoken:
        case Spoken.TGI:
            body = _tgi(ask, abilities, options.sampling)
        case Spoken.COMPLETIONS:
            body = _named(abilities) | {"prompt": prompt_text(ask)}
            body |= _openai(ask, abilities, options)
        case Spoken.CHAT:
            body = _named(abilities) | {"messages": _messages(ask)}
            body |= _openai(ask, abilities, options)
        case Spoken.AUTO:
            raise ValueError("the API must be found before it is spoken")
    try:
        return orjson.dumps(body)
    except orjson.JSONEncodeError as error:
        raise InputError(f"a prompt cannot be sent as JSON: {error}") from error


def _named(abilities: Abilities) -> _Body:
    """Nothing where no name is known: a server of one model needs none, and refuses ""."""
    return {"model": abilities.model} if abilities.model else {}


def prompt_text(ask: Ask) -> str:
    """The text of an API without messages.

    Of a conversation: a line "role: content" for each message, then "assistant:"; it is no
    model's template.
    """
    if not ask.messages:
        return ask.prompt
    return "".join(f"{role}: {content}\n" for role, content in ask.messages) + "assistant:"


def _messages(ask: Ask) -> list[dict[str, str]]:
    messages = ask.messages or (("user", ask.prompt),)
    return [{"role": role, "content": content} for role, content in messages]


def _tgi(ask: Ask, abilities: Abilities, sampling: Sampling) -> _Body:
    """Always with "parameters": without it TGI samples."""
    parameters: _Body = {
        "details": True,
        "do_sample": sampling.do_sample,
        "max_new_tokens": ask.output_tokens,
    }
    if abilities.truncates and ask.prompt_tokens is not None:
        parameters["truncate"] = ask.prompt_tokens
    parameters |= _given(sampling)
    if sampling.watermark:
        parameters["watermark"] = True
    return {"inputs": prompt_text(ask), "parameters": parameters}


def _openai(ask: Ask, abilities: Abilities, options: AskOptions) -> _Body:
    body: _Body = {"max_tokens": ask.output_tokens, "stream": options.stream}
    if options.stream and abilities.usage:
        wanted: dict[str, _JsonValue] = {"include_usage": True}
        if abilities.counts_each == "continuous_usage_stats":
            wanted[abilities.counts_each] = True
        body["stream_options"] = wanted
    if options.stream and abilities.counts_each == "timings_per_token":
        body[abilities.counts_each] = True
    if abilities.ignores_eos == "min_tokens":
        body["min_tokens"] = ask.output_tokens
    elif abilities.ignores_eos is not None:
        body[abilities.ignores_eos] = True
    if abilities.truncates and ask.prompt_tokens is not None:
        body["truncate_prompt_tokens"] = ask.prompt_tokens
    return body | _openai_sampling(abilities, options.sampling)


_OPENAI_NAMES: dict[str, dict[str, str]] = {
    "vllm": {"top_k": "top_k", "repetition_penalty": "repetition_penalty"},
    "sglang": {"top_k": "top_k", "repetition_penalty": "repetition_penalty"},
    "llamacpp": {
        "top_k": "top_k",
        "typical_p": "typical_p",
        "repetition_penalty": "repeat_penalty",
    },
}
"""Sampling keys beyond OpenAI's own, by engine, as its body calls them."""


def _openai_sampling(abilities: Abilities, sampling: Sampling) -> _Body:
    """temperature 0 is greedy. Sampling names temperature and top_p even where they are not
    given: a server's own defaults may be those of the model's generation config."""
    if not sampling.do_sample:
        body: _Body = {"temperature": 0.0}
    else:
        body = {"temperature": 1.0 if sampling.temperature is None else sampling.temperature}
        if abilities.engine != "tgi":  # refuses 1.0
            body["top_p"] = 1.0
    names = {"top_p": "top_p"} | _OPENAI_NAMES.get(abilities.engine, {})
    if abilities.engine == "tgi" and abilities.spoken is Spoken.COMPLETIONS:
        names["repetition_penalty"] = "repetition_penalty"
    given = _given(sampling)
    given.pop("temperature", None)
    for key, value in given.items():
        if key not in names:
            raise _no_place(key, abilities)
        body[names[key]] = value
    if sampling.watermark:
        raise _no_place("watermark", abilities)
    return body


def _given(sampling: Sampling) -> _Body:
    """The keys that are given and do something. TGI refuses a top_p or typical_p of 1."""
    given: _Body = {}
    if sampling.temperature is not None:
        given["temperature"] = sampling.temperature
    if sampling.top_k:
        given["top_k"] = sampling.top_k
    if sampling.top_p is not None and sampling.top_p != 1.0:
        given["top_p"] = sampling.top_p
    if sampling.typical_p is not None and sampling.typical_p != 1.0:
        given["typical_p"] = sampling.typical_p
    if sampling.repetition_penalty is not None and sampling.repetition_penalty != 1.0:
        given["repetition_penalty"] = sampling.repetition_penalty
    return given


def _no_place(key: str, abilities: Abilities) -> InputError:
    whose = abilities.engine or "a server of no known engine"
    return InputError(
        f"sampling.{key} has no place in the {abilities.spoken} API of {whose}: leave it out"
    )

"""An HTTP API that a load is sent in: what is asked in it, and what each has to say of itself.

A new one is a file beside this one with a DIALECT, and its name in the tuple NAMES of the package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import orjson

from tgi_bench.dialects.answer import Answer, Reading, Said
from tgi_bench.dialects.engine_ways import ways_of
from tgi_bench.errors import InputError
from tgi_bench.http_rules import USER_AGENT, Headers, checked_host, checked_path, header_lines
from tgi_bench.load_observation import TokenSource
from tgi_bench.sections.section import Sampling

if TYPE_CHECKING:
    from tgi_bench.dialects.identity import LoadIdentity

JsonValue = str | int | float | bool | dict[str, "JsonValue"] | list[dict[str, str]]
Body = dict[str, JsonValue]
Count = Callable[[str], int]
"""The tokens of a generated text."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request before it is bytes.

    prompt: the text; "" where messages are given. messages: (role, text) of a conversation so
        far, the new question last; () where there is none.
    prompt_tokens: how many the server is to see; None: as many as the text has.
    output_tokens: how many are to come.
    """

    prompt: str
    messages: tuple[tuple[str, str], ...]
    prompt_tokens: int | None
    output_tokens: int

    @property
    def text(self) -> str:
        """For an API without messages.

        Of a conversation: a line "role: content" for each message, then "assistant:"; it is no
        model's template.
        """
        if not self.messages:
            return self.prompt
        return "".join(f"{role}: {content}\n" for role, content in self.messages) + "assistant:"


@dataclass(frozen=True, slots=True)
class AskOptions:
    """What all requests of a stage share.

    host: of the Host header, with the port where it is not the scheme's own. headers: beside the
    request's own. base_path: of the server's URL, "" or "/something".
    """

    host: str
    stream: bool
    sampling: Sampling
    headers: Headers
    base_path: str = ""


class Dialect(Protocol):
    """One HTTP API; what has a default here need not be said again.

    name: as `load.api` and a run's JSON have it.
    engines: whose own API it is, that speak it without a proof, and that alone are asked in it
        where no API was named; none: it may be any server's.
    takes_model: its requests name a model. takes_messages: it is sent a conversation's messages,
        of which the server makes a text by its model's template.
    asked_streamed: whether the request that proves it is to be streamed.
    counted_by: who counts tokens where an answer says nothing of them. end_mark: what the last
        event of a whole answer has, for a sentence.
    """

    name: str
    engines: frozenset[str] = frozenset()
    takes_model: bool = True
    takes_messages: bool = False
    asked_streamed: bool = True
    counted_by: TokenSource = TokenSource.EVENTS
    end_mark: str

    def path(self, stream: bool) -> str:
        """Where a request goes."""
        ...

    def body(self, ask: Ask, able: Abilities, options: AskOptions) -> Body:
        """What it says. Raises InputError where a sampling key has no place in it."""
        ...

    def read_stream(self, answer: Answer, able: Abilities, count: Count | None) -> Said:
        """What the events of a 200 said. count: None: there is no tokenizer."""
        ...

    def read_whole(self, answer: Answer, said_json: object, said: Said) -> str:
        """What an answer that is not streamed said, as one event at its end; the text that it
        generated, reasoning and calls included. Where it says no count, none is made."""
        ...

    def best(self, server: LoadIdentity, model: str | None) -> Abilities:
        """What such a server may be able to do: the most that is worth asking for.

        Raises InputError where no model can be named.
        """
        return Abilities(self, server.model_to_ask(model), server.engine)

    def less(self, able: Abilities, refusal: str) -> Abilities | None:
        """What is left to ask for once that was refused; None: nothing."""
        del able, refusal
        return None

    def shown(self, able: Abilities, reading: Reading, ask: Ask) -> Abilities:
        """What of it the answer to that question shows to be in effect."""
        del reading, ask
        return able

    def ask(
        self, messages: Sequence[tuple[str, str]], prompt_tokens: int | None, output_tokens: int
    ) -> Ask:
        """A request that sends these messages, the last of them the new one."""
        if self.takes_messages:
            return Ask("", tuple(messages), prompt_tokens, output_tokens)
        prompt = "\n".join(text for _, text in messages)
        return Ask(prompt, (), prompt_tokens, output_tokens)


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a server was found to be able to do, so that lengths can be exact.

    model: the name to send; "" where none is.
    engine: "tgi", "vllm", "sglang", "llamacpp", "litellm" or "" (unknown).
    truncates: it cuts a prompt to an asked number of tokens.
    tokenize_path: the path that counts a text's tokens; None where it has none.
    ignores_eos: the body's key that makes it go on to the asked length: "ignore_eos",
        "min_tokens"; None where it has none.
    usage: its streams end with a usage chunk when asked (`stream_options`).
    max_input_tokens: None where it does not say. counts_each: as Ways has it.
    """

    dialect: Dialect
    model: str = ""
    engine: str = ""
    truncates: bool = False
    tokenize_path: str | None = None
    ignores_eos: str | None = None
    usage: bool = False
    max_input_tokens: int | None = None
    counts_each: str | None = None

    @property
    def counted_by(self) -> TokenSource:
        """Who counts tokens where an answer says nothing of them."""
        server = ways_of(self.engine).counted_by_events
        return TokenSource.SERVER if server else self.dialect.counted_by


def request_bytes(ask: Ask, able: Abilities, options: AskOptions) -> bytes:
    """The whole HTTP/1.1 request.

    Raises InputError where a header, the prompt or a sampling key cannot be sent.
    """
    body = body_bytes(ask, able, options)
    accept = "text/event-stream" if options.stream else "application/json"
    path = f"{checked_path(options.base_path)}{able.dialect.path(options.stream)}"
    head = (
        f"POST {path} HTTP/1.1\r\n"
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


def body_bytes(ask: Ask, able: Abilities, options: AskOptions) -> bytes:
    """The request's JSON. Raises InputError as request_bytes does."""
    try:
        return orjson.dumps(able.dialect.body(ask, able, options))
    except orjson.JSONEncodeError as error:
        raise InputError(f"a prompt cannot be sent as JSON: {error}") from error


def sampling_given(sampling: Sampling) -> Body:
    """The keys that are given and do something. TGI refuses a top_p or typical_p of 1."""
    given: Body = {}
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

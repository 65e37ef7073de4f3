"""TGI's own API: /generate_stream, or /generate where nothing is streamed.

Facts: router/src/server.rs, validation.rs and lib.rs of huggingface/text-generation-inference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from tgi_bench.dialects.answer import (
    Answer,
    Said,
    count_of,
    told_error,
    unreadable,
    word_of,
)
from tgi_bench.dialects.dialect import (
    Abilities,
    Ask,
    AskOptions,
    Body,
    Count,
    Dialect,
    sampling_given,
)
from tgi_bench.dialects.event_tokens import placed
from tgi_bench.dialects.sse import events
from tgi_bench.load_observation import RequestOutcome, TokenSource

if TYPE_CHECKING:
    from tgi_bench.dialects.identity import LoadIdentity


class Tgi(Dialect):
    """POST /generate_stream and /generate."""

    name = "tgi"
    engines = frozenset({"tgi"})
    takes_model = False
    asked_streamed = False
    counted_by = TokenSource.SERVER
    end_mark = "generated_text"

    def path(self, stream: bool) -> str:
        return "/generate_stream" if stream else "/generate"

    def best(self, server: LoadIdentity, model: str | None) -> Abilities:
        del model
        limit = server.max_input_tokens
        return Abilities(self, engine="tgi", truncates=True, max_input_tokens=limit)

    def body(self, ask: Ask, able: Abilities, options: AskOptions) -> Body:
        """Always with "parameters": without it TGI samples."""
        parameters: Body = {
            "details": True,
            "do_sample": options.sampling.do_sample,
            "max_new_tokens": ask.output_tokens,
        }
        if able.truncates and ask.prompt_tokens is not None:
            parameters["truncate"] = ask.prompt_tokens
        parameters |= sampling_given(options.sampling)
        if options.sampling.watermark:
            parameters["watermark"] = True
        return {"inputs": ask.text, "parameters": parameters}

    def read_stream(self, answer: Answer, able: Abilities, count: Count | None) -> Said:
        """The events of /generate_stream.

        An event with a token is one token, a special one too. The last event, the one with
        generated_text, says generated_tokens: where that differs from the events counted, it is
        what is recorded, and the counts are `placed` so that they sum to it. It stops at what it
        cannot read. Nothing says that the stream is over but that last event. count: of a text,
        where its tokens are to stand beside the server's own.
        """
        said = Said(counted_by=TokenSource.SERVER)
        texts: list[str] = []
        whole: str | None = None
        generated: int | None = None
        arrivals, reads, loads = said.arrivals, said.reads, orjson.loads
        number = read = 0
        data = b""
        try:
            for arrival_ns, data, first_in_read in events(answer.pieces):
                number += 1
                if first_in_read:
                    read += 1
                event: object = loads(data) if data else {}
                if not isinstance(event, dict):
                    said.fail(RequestOutcome.PROTOCOL, f"event {number} is no JSON object")
                    break
                token = event.get("token")
                if token is not None:
                    arrivals.append(arrival_ns)
                    reads.append(read)
                    texts.append(_text(token))
                    if event.get("generated_text") is None:
                        continue
                elif (error := told_error(event)) is not None:
                    said.fail(*error)
                    continue
                if isinstance(text := event.get("generated_text"), str):
                    said.ended, whole = True, text
                    generated = _details(event.get("details"), said)
        except orjson.JSONDecodeError:
            said.fail(RequestOutcome.PROTOCOL, unreadable(data, f"event {number}"))
        said.events = number
        said.text = "".join(texts) if whole is None else whole
        said.counts = [1] * len(arrivals)
        if generated is not None and generated != len(arrivals):
            said.counts = placed(said.counts, generated, [])
            said.tokens_told = False
        if count is not None:
            said.text_tokens = count(said.text)
        return said

    def read_whole(self, answer: Answer, said_json: object, said: Said) -> str:
        """The answer of /generate, or of / which is a list of one; one event at its end.

        Tokens: generated_tokens of its details, else the header x-generated-tokens (1.4.0 and
        newer); where neither is there, counts stay empty for the caller to fill.
        """
        if isinstance(said_json, list) and said_json:
            said_json = said_json[0]
        if not isinstance(said_json, dict):
            said.fail(RequestOutcome.PROTOCOL, "the body is no JSON object")
            return ""
        if (error := told_error(said_json)) is not None:
            said.fail(*error)
            return ""
        text = said_json.get("generated_text")
        if not isinstance(text, str):
            said.fail(RequestOutcome.PROTOCOL, "the body has no generated_text")
            return ""
        said.text, said.ended, said.events = text, True, 1
        generated = _details(said_json.get("details"), said)
        if generated is None:
            generated = _header(answer, b"x-generated-tokens")
        if said.prompt_tokens is None:
            said.prompt_tokens = _header(answer, b"x-prompt-tokens")
        if generated is not None:
            said.counted_by = TokenSource.SERVER
            said.all_at_once(generated, answer.ended_ns)
        return text


def _text(token: object) -> str:
    if isinstance(token, dict) and not token.get("special"):
        text = token.get("text")
        return text if isinstance(text, str) else ""
    return ""


def _details(details: object, said: Said) -> int | None:
    """generated_tokens; None where there are no details."""
    if not isinstance(details, dict):
        return None
    said.finish_reason = word_of(details.get("finish_reason"))
    said.prompt_tokens = count_of(details.get("input_length"))
    return count_of(details.get("generated_tokens"))


def _header(answer: Answer, name: bytes) -> int | None:
    value = answer.header(name)
    return int(value) if value is not None and value.isdigit() and len(value) < 10 else None


DIALECT = Tgi()

"""What OpenAI's APIs have in common, as TGI, vLLM, SGLang, llama.cpp, transformers serve and
LiteLLM speak them; what is each engine's own is in `engine_ways`.

Sources: router/src/lib.rs of huggingface/text-generation-inference; the OpenAI-compatible servers
of vllm-project/vllm and sgl-project/sglang; tools/server/README.md of ggml-org/llama.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tgi_bench.dialects.answer import Answer, Reading, Said
from tgi_bench.dialects.dialect import (
    Abilities,
    Ask,
    AskOptions,
    Body,
    Count,
    Dialect,
    JsonValue,
    sampling_given,
)
from tgi_bench.dialects.engine_ways import ways_of
from tgi_bench.dialects.openai_answers import read_stream, read_whole
from tgi_bench.errors import InputError
from tgi_bench.load_observation import TokenSource
from tgi_bench.sections.section import Sampling

if TYPE_CHECKING:
    from tgi_bench.dialects.identity import LoadIdentity


_SO_FAR = "continuous_usage_stats"


class OpenAi(Dialect):
    """One of them, but for its path and its body's own keys, which stand `around` the others."""

    end_mark = "a finish_reason"

    def read_stream(self, answer: Answer, able: Abilities, count: Count | None) -> Said:
        return read_stream(answer, ways_of(able.engine), count)

    def read_whole(self, answer: Answer, said_json: object, said: Said) -> str:
        return read_whole(answer, said_json, said)

    def best(self, server: LoadIdentity, model: str | None) -> Abilities:
        ways = ways_of(server.engine)
        return Abilities(
            self,
            ways.model or server.model_to_ask(model),
            server.engine,
            truncates=ways.truncates,
            ignores_eos="ignore_eos" if ways.takes_ignore_eos else None,
            usage=True,
            max_input_tokens=server.max_input_tokens,
            counts_each=ways.counts_each,
        )

    def less(self, able: Abilities, refusal: str) -> Abilities | None:
        """Without the keys that the refusal names, or the least needed one where it names none;
        min_tokens takes the place of ignore_eos."""
        # What stands in stream_options is named with it.
        keys = list(_optional_keys(able))
        named = [key for key in keys if re.search(rf"\b{key}\b", refusal)]
        if named and named[0] == _SO_FAR:
            named = named[:1]
        for key in named or keys[:1]:
            able = _without(able, key)
        return able if keys else None

    def shown(self, able: Abilities, reading: Reading, ask: Ask) -> Abilities:
        return replace(
            able,
            usage=able.usage and reading.counted_by is TokenSource.USAGE,
            truncates=able.truncates and reading.prompt_tokens == ask.prompt_tokens,
            counts_each=able.counts_each if reading.counted_each else None,
        )

    def around(self, said: Body, ask: Ask, able: Abilities, options: AskOptions) -> Body:
        """No model where no name is known: a server of one model needs none, and refuses ""."""
        body: Body = {"model": able.model} if able.model else {}
        body |= said | {"max_tokens": ask.output_tokens, "stream": options.stream}
        if options.stream and able.usage:
            wanted: dict[str, JsonValue] = {"include_usage": True}
            if able.counts_each == _SO_FAR:
                wanted[_SO_FAR] = True
            body["stream_options"] = wanted
        if options.stream and able.counts_each == "timings_per_token":
            body[able.counts_each] = True
        if able.ignores_eos == "min_tokens":
            body["min_tokens"] = ask.output_tokens
        elif able.ignores_eos is not None:
            body[able.ignores_eos] = True
        if able.truncates and ask.prompt_tokens is not None:
            body["truncate_prompt_tokens"] = ask.prompt_tokens
        return body | _sampling(able, options.sampling)


def _optional_keys(able: Abilities) -> Iterator[str]:
    """Of a body, those that a server may refuse to know; the least needed first."""
    if able.counts_each is not None:
        yield able.counts_each
    if able.truncates:
        yield "truncate_prompt_tokens"
    if able.ignores_eos is not None:
        yield able.ignores_eos
    if able.usage:
        yield "stream_options"


def _without(able: Abilities, key: str) -> Abilities:
    match key:
        case "truncate_prompt_tokens":
            return replace(able, truncates=False)
        case "ignore_eos":
            return replace(able, ignores_eos="min_tokens")
        case "min_tokens":
            return replace(able, ignores_eos=None)
        case "stream_options" if able.counts_each == _SO_FAR:
            return replace(able, usage=False, counts_each=None)
        case "stream_options":
            return replace(able, usage=False)
        case _:
            return replace(able, counts_each=None)


def _sampling(able: Abilities, sampling: Sampling) -> Body:
    """temperature 0 is greedy. Sampling names temperature and top_p even where they are not
    given: a server's own defaults may be those of the model's generation config."""
    ways = ways_of(able.engine)
    if not sampling.do_sample:
        body: Body = {"temperature": 0.0}
    else:
        body = {"temperature": 1.0 if sampling.temperature is None else sampling.temperature}
        if not ways.refuses_top_p_1:
            body["top_p"] = 1.0
    names = {"top_p": "top_p", **ways.sampling, **ways.sampling_of.get(able.dialect.name, {})}
    given = sampling_given(sampling)
    given.pop("temperature", None)
    for key, value in given.items():
        if key not in names:
            raise _no_place(key, able)
        body[names[key]] = value
    if sampling.watermark:
        raise _no_place("watermark", able)
    return body


def _no_place(key: str, able: Abilities) -> InputError:
    whose = able.engine or "a server of no known engine"
    return InputError(
        f"sampling.{key} has no place in the {able.dialect.name} API of {whose}: leave it out"
    )

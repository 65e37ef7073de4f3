"""What the answers of /v1/completions and /v1/chat/completions say, as TGI, vLLM, SGLang and
llama.cpp send them."""

from __future__ import annotations

from dataclasses import dataclass, field

import orjson

from tgi_bench.dialects.answer import (
    Answer,
    Said,
    count_of,
    told_error,
    unreadable,
    word_of,
)
from tgi_bench.dialects.dialect import Count
from tgi_bench.dialects.engine_ways import Ways
from tgi_bench.dialects.event_tokens import Events, counted
from tgi_bench.dialects.sse import DONE, events
from tgi_bench.load_observation import RequestOutcome, TokenSource


@dataclass(slots=True)
class _Heard:
    """What the events of one stream said beside their tokens. generated: reasoning and the like.

    total: completion_tokens of the last usage. timed: the same by llama.cpp's timings.
    """

    texts: list[str] = field(default_factory=list)
    generated: list[str] = field(default_factory=list)
    total: int | None = None
    timed: int | None = None


def read_stream(answer: Answer, ways: Ways, count: Count | None) -> Said:
    """The events of a streamed answer.

    Events with a role and no text before the first text carry no token, but TGI's, which name
    the role in each; neither does what comes after the end. Who counts the tokens, the first of
    these that is there:
    1. the last usage, and each event's own where every event has one; llama.cpp's timings
       likewise, where there is no usage;
    2. token_ids or logprobs of each event;
    3. the engine, where it is known to send one event a token;
    4. count of the text; 5. nobody: an event with text is one.
    It ends with a finish_reason or [DONE]; TGI's completions to 2.x have neither.
    """
    said, heard, chunks = Said(), _Heard(), Events()
    number = read = 0
    done = unnamed = False
    data = b""
    try:
        for arrival_ns, data, first_in_read in events(answer.pieces):
            number += 1
            if first_in_read:
                read += 1
            if data == DONE:
                done = True
                continue
            event: object = orjson.loads(data) if data else {}
            if not isinstance(event, dict):
                said.fail(RequestOutcome.PROTOCOL, f"event {number} is no JSON object")
                break
            if (error := told_error(event)) is not None:
                said.fail(*error)
                continue
            so_far = _told_so_far(event, said, heard)
            said.name(event.get("model"), event.get("system_fingerprint"))
            choice = _choice(event)
            if choice is not None:
                reason = choice.get("finish_reason")
                _take(choice, (chunks, heard), (arrival_ns, read, so_far), ways.role_in_each)
                unnamed = reason == ""
                if isinstance(reason, str) and reason:
                    said.finish_reason = reason
                    if chunks.finish_at < 0:
                        chunks.finish_at = len(chunks.texts) - 1
    except orjson.JSONDecodeError:
        said.fail(RequestOutcome.PROTOCOL, unreadable(data, f"event {number}"))
    said.events = number
    said.ended = said.finish_reason is not None or (done and bool(chunks.texts))
    said.ended = said.ended or (unnamed and ways.ends_unnamed)
    said.text = "".join(heard.texts)
    _settle(said, chunks, heard, (ways, count))
    return said


def _take(
    choice: dict[object, object],
    into: tuple[Events, _Heard],
    at: tuple[int, int, int | None],
    each_has_role: bool,
) -> None:
    """One event's choice. at: arrival_ns, read, tokens so far as it says."""
    chunks, heard = into
    delta = choice.get("delta")
    part = delta if isinstance(delta, dict) else choice
    content, beside = _texts(part)
    own = _own_count(choice)
    text = bool(content or beside)
    if not text and not own:
        reason = choice.get("finish_reason")
        role_only = "role" in part and not reason and not each_has_role
        if chunks.finish_at >= 0 or (role_only and True not in chunks.texts):
            return
    if content:
        heard.texts.append(content)
    if beside:
        heard.generated.append(beside)
    arrival_ns, read, so_far = at
    chunks.arrivals.append(arrival_ns)
    chunks.reads.append(read)
    chunks.texts.append(text)
    chunks.own.append(own)
    chunks.so_far.append(so_far)


def _settle(said: Said, chunks: Events, heard: _Heard, by: tuple[Ways, Count | None]) -> None:
    """The tokens of the events, and who counted. by: the engine's ways, and count of a text."""
    ways, count = by
    said.arrivals, said.reads = chunks.arrivals, chunks.reads
    text = said.text + "".join(heard.generated)
    if count is not None:
        said.text_tokens = count(text) if text else 0
    total = heard.total
    if total == 0 and text:
        total = None  # a usage that nobody filled in
    if total is not None:
        said.counted_by = TokenSource.USAGE
    elif heard.timed is not None:
        said.counted_by, total = TokenSource.SERVER, heard.timed
    elif _all_list_their_own(chunks) or ways.counted_by_events:
        said.counted_by = TokenSource.SERVER
    elif text and said.text_tokens is not None:
        said.counted_by, total = TokenSource.TOKENIZER, max(1, said.text_tokens)
    found = counted(chunks, ways, total, said.finish_reason)
    said.counts, said.counted_each = found.tokens, found.each
    said.tokens_told, said.first_told = found.told, found.first_told


def _all_list_their_own(chunks: Events) -> bool:
    known = [own for own, text in zip(chunks.own, chunks.texts, strict=True) if text or own]
    return bool(known) and None not in known


def read_whole(answer: Answer, said_json: object, said: Said) -> str:
    """An answer that is not streamed, as one event at its end; all that was generated in it,
    reasoning and calls included.

    Tokens: its usage, else llama.cpp's timings, else token_ids or logprobs; where none is there,
    counts stay empty for the caller to fill.
    """
    if not isinstance(said_json, dict):
        said.fail(RequestOutcome.PROTOCOL, "the body is no JSON object")
        return ""
    if (error := told_error(said_json)) is not None:
        said.fail(*error)
        return ""
    choice = _choice(said_json)
    if choice is None:
        said.fail(RequestOutcome.PROTOCOL, "the body has no choice")
        return ""
    message = choice.get("message")
    content, beside = _texts(message if isinstance(message, dict) else choice)
    said.text, said.ended, said.events = content, True, 1
    said.finish_reason = word_of(choice.get("finish_reason"))
    said.name(said_json.get("model"), said_json.get("system_fingerprint"))
    total, said.counted_by = _usage(said_json, said), TokenSource.USAGE
    timed = _timings(said_json, said)
    if total is None or (total == 0 and (content or beside)):
        total = timed if timed is not None else _own_count(choice)
        said.counted_by = TokenSource.SERVER
    if total is not None:
        said.all_at_once(total, answer.ended_ns)
    else:
        said.counted_by = TokenSource.EVENTS
    return content + beside


def _choice(event: dict[object, object]) -> dict[object, object] | None:
    """The first choice: one is asked for."""
    choices = event.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        return choices[0]
    return None


def _texts(part: dict[object, object]) -> tuple[str, str]:
    """The answer's text of a delta, a message or a choice, and what else was generated: reasoning
    (reasoning_content; reasoning in newer vLLM), a refusal, calls of tools."""
    content = part.get("content")
    if content is None:
        content = part.get("text")
    beside = [
        text
        for name in ("reasoning_content", "reasoning", "refusal")
        if isinstance(text := part.get(name), str)
    ]
    if beside and part.get("reasoning") == part.get("reasoning_content"):
        del beside[1:2]  # the same text under both names
    calls = part.get("tool_calls") or part.get("function_call")
    if calls:
        beside.append(_call_text(calls))
    return content if isinstance(content, str) else "", "".join(beside)


def _call_text(calls: object) -> str:
    """Names and arguments of calls; "{}" where there are none, for the event is a token still."""
    texts = []
    for call in calls if isinstance(calls, list) else [calls]:
        function = call.get("function", call) if isinstance(call, dict) else None
        if isinstance(function, dict):
            texts += [t for k in ("name", "arguments") if isinstance(t := function.get(k), str)]
    return "".join(texts) or "{}"


def _own_count(choice: dict[object, object]) -> int | None:
    """Tokens that the choice itself lists: vLLM's token_ids, or the logprobs of either API."""
    ids = choice.get("token_ids")
    if isinstance(ids, list) and ids:
        return len(ids)
    logprobs = choice.get("logprobs")
    if isinstance(logprobs, dict):
        for name in ("content", "tokens"):
            listed = logprobs.get(name)
            if isinstance(listed, list) and listed:
                return len(listed)
    return None


def _told_so_far(event: dict[object, object], said: Said, heard: _Heard) -> int | None:
    """Tokens of the answer until this event, as it says; keeps what is said of the prompt."""
    usage = _usage(event, said)
    timed = _timings(event, said) if "timings" in event else None
    if usage is not None:
        heard.total = usage
        return usage
    if timed is not None:
        heard.timed = timed
    return timed


def _usage(event: dict[object, object], said: Said) -> int | None:
    """completion_tokens; keeps what is said of the prompt.

    Cached: prompt_tokens_details.cached_tokens, else SGLang's meta_info.cached_tokens.
    """
    usage = event.get("usage")
    total = None
    if isinstance(usage, dict):
        total = count_of(usage.get("completion_tokens"))
        _keep(said, usage.get("prompt_tokens"), _inner(usage, "prompt_tokens_details"))
    if "meta_info" in event:
        _keep(said, None, _inner(event, "meta_info"))
    return total


def _timings(event: dict[object, object], said: Said) -> int | None:
    """predicted_n of llama.cpp's timings; keeps what they say of the prompt.

    Its tokens_cached is not read: it counts the whole slot.
    """
    cached, rest = _inner(event, "timings", "cache_n"), _inner(event, "timings", "prompt_n")
    if cached is not None and rest is not None and said.prompt_tokens is None:
        _keep(said, cached + rest, None)
    _keep(said, None, cached)
    return _inner(event, "timings", "predicted_n")


def _inner(said: dict[object, object], name: str, key: str = "cached_tokens") -> int | None:
    inner = said.get(name)
    return count_of(inner.get(key)) if isinstance(inner, dict) else None


def _keep(said: Said, prompt_tokens: object, cached_tokens: int | None) -> None:
    prompt = count_of(prompt_tokens)
    if prompt:  # a prompt of 0 tokens is a usage that nobody filled in
        said.prompt_tokens = prompt
    if cached_tokens is not None:
        said.cached_tokens = cached_tokens

"""What the answers of /v1/completions and /v1/chat/completions say, as TGI, vLLM, SGLang and
llama.cpp send them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import orjson

from tgi_bench.drive.answer import Answer
from tgi_bench.drive.said import Said, count_of, spread, told_error, unreadable, word_of
from tgi_bench.drive.sse import DONE, events
from tgi_bench.load_observation import RequestOutcome, TokenSource

Count = Callable[[str], int]
"""The tokens of a generated text."""


@dataclass(slots=True)
class _Chunks:
    """The events with a choice that carried a token, or may have.

    counts: tokens as far as the event itself tells, 1 for a text alone, 0 for none.
    totals: completion_tokens of its usage, or None. told: whether every count is the event's own.
    """

    arrivals: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    totals: list[int | None] = field(default_factory=list)
    told: bool = True
    finish_at: int = -1
    generated: str = ""
    last_total: int | None = None


def read_stream(answer: Answer, count: Count | None) -> Said:
    """The events of a streamed answer.

    The first event, where it has a role and no text, carries no token. Who counts the tokens of
    the others, the first of these that is there:
    1. a usage in every event with text: its differences;
    2. token_ids or logprobs of each event, corrected by the last usage;
    3. 1 an event with text, corrected by the last usage;
    4. the same, corrected by count of the text; 5. the same.
    Corrected: `spread`, where events without text come first, for they may hold a token whose
    text is nothing, as the end of the sequence or a part of a character.
    It ends with a finish_reason or [DONE].
    """
    said, chunks = Said(), _Chunks()
    texts: list[str] = []
    number = read = 0
    done = False
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
            total = _usage(event, said)
            if total is not None:
                chunks.last_total = total
            choice = _choice(event)
            if choice is not None:
                _take(choice, chunks, (arrival_ns, read, total), texts)
                said.finish_reason = word_of(choice.get("finish_reason")) or said.finish_reason
                if said.finish_reason and chunks.finish_at < 0:
                    chunks.finish_at = len(chunks.counts) - 1
    except orjson.JSONDecodeError:
        said.fail(RequestOutcome.PROTOCOL, unreadable(data, f"event {number}"))
    said.events = number
    said.ended = said.finish_reason is not None or (done and bool(chunks.counts))
    said.text = "".join(texts)
    _settle(said, chunks, count)
    return said


def _take(
    choice: dict[object, object],
    chunks: _Chunks,
    at: tuple[int, int, int | None],
    texts: list[str],
) -> None:
    """One event's choice. at: arrival_ns, read, completion_tokens of its usage."""
    delta = choice.get("delta")
    part = delta if isinstance(delta, dict) else choice
    content, beside = _texts(part)
    own = _own_count(choice)
    counted = bool(content or beside)
    if not counted and not chunks.counts and "role" in part and not own:
        return
    if content:
        texts.append(content)
    chunks.generated += beside
    if counted and own is None:
        chunks.told = False
    arrival_ns, read, total = at
    chunks.arrivals.append(arrival_ns)
    chunks.reads.append(read)
    chunks.counts.append(int(counted) if own is None else own)
    chunks.totals.append(total)


def _settle(said: Said, chunks: _Chunks, count: Count | None) -> None:
    """The counts of the events, and who counted."""
    said.arrivals, said.reads = chunks.arrivals, chunks.reads
    text = said.text + chunks.generated
    total = chunks.last_total
    if total == 0 and text:
        total = None  # a usage that nobody filled in
    counts = chunks.counts
    if total is not None:
        said.counted_by = TokenSource.USAGE
        counts = _differences(chunks) or counts
    elif chunks.told and any(counts):
        said.counted_by = TokenSource.SERVER
        total = sum(counts)
    elif count is not None and text:
        said.counted_by = TokenSource.TOKENIZER
        total = max(1, count(text))
    if total is not None and total != sum(counts):
        counts = spread(counts, total, _empty(counts, said.finish_reason, chunks.finish_at))
    said.counts = counts


def _differences(chunks: _Chunks) -> list[int] | None:
    """Tokens of each event by its own usage; None where an event with text has none, or where
    they fall."""
    before = 0
    found: list[int] = []
    for counted, total in zip(chunks.counts, chunks.totals, strict=True):
        if total is None:
            if counted:
                return None
            found.append(0)
            continue
        if total < before:
            return None
        found.append(total - before)
        before = total
    return found


def _empty(counts: list[int], finish_reason: str | None, finish_at: int) -> list[int]:
    """Events without a token, the likeliest to hold one first: the end of the sequence comes
    with the finish_reason, unless that is the length."""
    empty = [index for index, count in enumerate(counts) if not count]
    if finish_at in empty:
        empty.remove(finish_at)
        empty.insert(len(empty) if finish_reason == "length" else 0, finish_at)
    return empty


def read_whole(answer: Answer, said_json: object, said: Said) -> None:
    """An answer that is not streamed; one event at its end.

    Tokens: its usage, else token_ids or logprobs; where none is there, counts stay empty for the
    caller to fill.
    """
    if not isinstance(said_json, dict):
        said.fail(RequestOutcome.PROTOCOL, "the body is no JSON object")
        return
    if (error := told_error(said_json)) is not None:
        said.fail(*error)
        return
    choice = _choice(said_json)
    if choice is None:
        said.fail(RequestOutcome.PROTOCOL, "the body has no choice")
        return
    message = choice.get("message")
    content, beside = _texts(message if isinstance(message, dict) else choice)
    said.text, said.ended, said.events = content, True, 1
    said.finish_reason = word_of(choice.get("finish_reason"))
    total, said.counted_by = _usage(said_json, said), TokenSource.USAGE
    if total is None or (total == 0 and (content or beside)):
        total, said.counted_by = _own_count(choice), TokenSource.SERVER
    if total is not None:
        said.all_at_once(total, answer.ended_ns)
    else:
        said.counted_by = TokenSource.EVENTS


def whole_text(said_json: object) -> str:
    """All that was generated in an answer that is not streamed, reasoning and calls included."""
    choice = _choice(said_json) if isinstance(said_json, dict) else None
    if choice is None:
        return ""
    message = choice.get("message")
    return "".join(_texts(message if isinstance(message, dict) else choice))


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


def _usage(event: dict[object, object], said: Said) -> int | None:
    """completion_tokens; keeps what is said of the prompt.

    Cached: prompt_tokens_details.cached_tokens, else llama.cpp's timings.cache_n, else SGLang's
    meta_info.cached_tokens. llama.cpp's tokens_cached is not read: it counts the whole slot.
    """
    usage = event.get("usage")
    total = None
    if isinstance(usage, dict):
        total = count_of(usage.get("completion_tokens"))
        _keep(said, usage.get("prompt_tokens"), _inner(usage, "prompt_tokens_details"))
    timings = _inner(event, "timings", "cache_n")
    meta = _inner(event, "meta_info")
    if timings is not None or meta is not None:
        _keep(said, None, timings if timings is not None else meta)
    return total


def _inner(said: dict[object, object], name: str, key: str = "cached_tokens") -> int | None:
    inner = said.get(name)
    return count_of(inner.get(key)) if isinstance(inner, dict) else None


def _keep(said: Said, prompt_tokens: object, cached_tokens: int | None) -> None:
    prompt = count_of(prompt_tokens)
    if prompt is not None:
        said.prompt_tokens = prompt
    if cached_tokens is not None:
        said.cached_tokens = cached_tokens

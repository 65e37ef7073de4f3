"""What an answer means: its status, its content type, its events, in its dialect's words."""

from __future__ import annotations

import orjson

from tgi_bench.ask import Reply
from tgi_bench.dialects.answer import (
    MOST_OF_AN_ERROR,
    Answer,
    Reading,
    Said,
    told_error,
    unreadable,
)
from tgi_bench.dialects.dialect import Abilities, Ask, Count
from tgi_bench.inert import shortened
from tgi_bench.load_observation import RequestOutcome, TokenSource

_EVENT_STREAM = b"text/event-stream"
_MOST_ERROR_BYTES = 4096
_REJECTED = (400, 413, 422)


def read_answer(
    answer: Answer,
    able: Abilities,
    stream: bool,
    ask: Ask,
    count: Count | None,
) -> Reading:
    """The answer as its dialect means it. Never raises on what a server sent.

    count: tokens of a generated text, for servers that do not say, and to stand beside what others
    say; None: there is no tokenizer.
    A failure of the connection is the outcome whatever came before it; then an error that the
    server told; then what could not be read; then a last event that is missing. What came before
    any of them is kept.
    """
    if answer.status is None or answer.status != 200:
        said = Said(counted_by=able.counted_by)
        failed = _status(answer)
    else:
        said = _said(answer, able, stream, count)
        failed = said.failed
        if failed is None and not said.ended:
            failed = (RequestOutcome.INCOMPLETE, _no_end(said, able, ask))
    if answer.failure is not None:
        beside = f"; before it: {failed[1]}" if failed is not None and _told(failed[0]) else ""
        return said.reading(answer.failure, answer.reason + beside)
    if failed is not None:
        return said.reading(*failed)
    return said.reading(RequestOutcome.OK, "")


def answer_of(reply: Reply) -> Answer:
    """A reply to a single question as a load's answer, without times."""
    return Answer(reply.status, reply.headers, ((0, reply.body),), 0, 0, None, "")


def _said(answer: Answer, able: Abilities, stream: bool, count: Count | None) -> Said:
    """Of a 200."""
    kind = (answer.header(b"content-type") or b"").partition(b";")[0].strip().lower()
    if stream and (not kind or kind == _EVENT_STREAM):
        return able.dialect.read_stream(answer, able, count)
    said = Said(counted_by=able.counted_by)
    body = b"".join(piece for _, piece in answer.pieces)
    if stream or kind == _EVENT_STREAM:
        said.fail(*_wrong_type(kind, stream, body))
        return said
    try:
        said_json: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        if answer.failure is None:
            said.fail(RequestOutcome.PROTOCOL, unreadable(body, f"the body{_of_type(kind)}"))
        return said
    text = able.dialect.read_whole(answer, said_json, said)
    if said.ended and count is not None:
        said.text_tokens = count(text) if text else 0
    if said.ended and said.counted_by is not TokenSource.USAGE and not said.counts and text:
        tokens = said.text_tokens
        said.counted_by = TokenSource.EVENTS if tokens is None else TokenSource.TOKENIZER
        said.all_at_once(max(1, tokens or 0), answer.ended_ns)
    return said


def _wrong_type(kind: bytes, stream: bool, body: bytes) -> tuple[RequestOutcome, str]:
    """An error that came instead of the events, else that the content type is another."""
    try:
        said: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        said = None
    if isinstance(said, dict) and (error := told_error(said)) is not None:
        return error
    asked = "text/event-stream" if stream else "application/json"
    begun = shortened(body[:200].decode(errors="replace"))
    came = kind.decode("latin-1")
    return RequestOutcome.PROTOCOL, f"{came} came where {asked} was asked for: {begun}"


def _of_type(kind: bytes) -> str:
    return f" ({kind.decode('latin-1')})" if kind and kind != b"application/json" else ""


def _status(answer: Answer) -> tuple[RequestOutcome, str] | None:
    """What another status than 200 means; None where none came."""
    status = answer.status
    if status is None:
        if answer.failure is not None:
            return None
        return RequestOutcome.PROTOCOL, "no status came"
    text = f"HTTP {status}"
    body = shortened(_head_of(answer).decode(errors="replace"), MOST_OF_AN_ERROR)
    if status in (429, 503):
        wait = answer.header(b"retry-after")
        if wait is not None:
            text += f", Retry-After: {shortened(wait.decode('latin-1'))}"
        return RequestOutcome.OVERLOADED, f"{text}: {body}" if body else text
    if 300 <= status < 400:
        where = answer.header(b"location")
        to = shortened(where.decode("latin-1")) if where is not None else "nowhere"
        return RequestOutcome.HTTP_ERROR, f"{text} to {to}: redirects are not followed"
    outcome = RequestOutcome.REJECTED if status in _REJECTED else RequestOutcome.HTTP_ERROR
    return outcome, f"{text}: {body}" if body else text


def _head_of(answer: Answer) -> bytes:
    """The first bytes of the body."""
    parts, length = [], 0
    for _, piece in answer.pieces:
        parts.append(piece[:_MOST_ERROR_BYTES])
        length += len(piece)
        if length >= _MOST_ERROR_BYTES:
            break
    return b"".join(parts)


def _no_end(said: Said, able: Abilities, ask: Ask) -> str:
    events = f"{said.events:,} event" + ("" if said.events == 1 else "s")
    return (
        f"the answer ended after {events}, {sum(said.counts):,} of {ask.output_tokens:,} tokens, "
        f"without {able.dialect.end_mark}"
    )


def _told(outcome: RequestOutcome) -> bool:
    """Whether the server itself said what went wrong, so that it is worth saying beside."""
    return outcome not in (RequestOutcome.INCOMPLETE, RequestOutcome.PROTOCOL)

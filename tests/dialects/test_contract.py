"""What holds for every dialect: what each must refuse, and that every recorded answer of a real
server is read right by its own: whole, as it was cut, and cut anywhere."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dialects.asks import EVENT_STREAM, JSON, answer
from tests.dialects.recorded_http import ENGINES, Exchange, Meant, connection, meant, names
from tgi_bench.dialects import NAMES, speaking
from tgi_bench.dialects.answer import Answer, Reading
from tgi_bench.dialects.dialect import Abilities, Ask, Dialect
from tgi_bench.dialects.reading import read_answer
from tgi_bench.dialects.sse import events
from tgi_bench.drive.http_framing import FramingError, ResponseFraming
from tgi_bench.load_observation import RequestOutcome

DIALECTS = speaking("auto")
EVERY_DIALECT = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
ASK = Ask(prompt="a", messages=(), prompt_tokens=None, output_tokens=20)
NOT_OF_ONE_TEXT = {
    "vllm-0.32.0/chat-stream-n-2-001": "n is 2; this client asks for one choice",
    "tgi-3.3.7/completions-stream-two-prompts": "two prompts; this client sends one",
    "tgi-2.0.4/completions-stream-two-prompts": "two prompts; this client sends one",
}
GENERATE = ("/generate", "/generate_stream", "/", "/v1/completions", "/v1/chat/completions")
SMALL_BYTES = 2600


def test_a_file_is_called_as_its_api() -> None:
    assert tuple(dialect.name for dialect in DIALECTS) == NAMES


def meaning(answer: Answer, dialect: Dialect, stream: bool = True) -> tuple[str, str, int]:
    """Outcome, reason and tokens."""
    reading = read_answer(answer, Abilities(dialect, "m"), stream, ASK, None)
    return reading.outcome.value, reading.reason, reading.output_tokens


@pytest.mark.parametrize(
    ("status", "headers", "body", "outcome", "reason"),
    [
        (429, [("retry-after", "7")], b"", "overloaded", "HTTP 429, Retry-After: 7"),
        (503, [], b"busy\nnow", "overloaded", "HTTP 503: busy now"),
        (302, [("location", "http://x/")], b"moved", "http_error",
         "HTTP 302 to http://x/: redirects are not followed"),
        (304, [], b"", "http_error", "HTTP 304 to nowhere: redirects are not followed"),
        (404, [], b"", "http_error", "HTTP 404"),
        (422, [], b'{"error":"no"}', "rejected", 'HTTP 422: {"error":"no"}'),
        (500, [], b"\xff" * 9, "http_error", "HTTP 500: " + "\ufffd" * 9),
        (204, [], b"", "http_error", "HTTP 204"),
        (400, [], b"x" * 5000, "rejected", "HTTP 400: " + "x" * 297 + "..."),
        (500, [], b"\x1b[2Jno\0 \x9b", "http_error", r"HTTP 500: \x1b[2Jno\x00 " + "\ufffd"),
    ],
)  # fmt: skip
@EVERY_DIALECT
def test_status(
    dialect: Dialect,
    status: int,
    headers: list[tuple[str, str]],
    body: bytes,
    outcome: str,
    reason: str,
) -> None:
    said = answer(body, status=status, headers=headers)
    assert meaning(said, dialect) == (outcome, reason, 0)
    reset = answer(
        body,
        status=status,
        headers=headers,
        failure=RequestOutcome.CONNECTION_RESET,
        reason="reset",
    )
    assert meaning(reset, dialect) == ("connection_reset", f"reset; before it: {reason}", 0)


@pytest.mark.parametrize(
    ("kind", "stream", "reason"),
    [
        ("text/html", True, "text/html came where text/event-stream was asked for: hi"),
        (JSON, True, "application/json came where text/event-stream was asked for: hi"),
        (EVENT_STREAM, False, "text/event-stream came where application/json was asked for: hi"),
        ("text/html; charset=x", False, "the body (text/html) is not JSON: hi"),
    ],
)
@EVERY_DIALECT
def test_content_type(dialect: Dialect, kind: str, stream: bool, reason: str) -> None:
    assert meaning(answer(b"hi", kind=kind), dialect, stream) == ("protocol", reason, 0)


@pytest.mark.parametrize("kind", [None, "Text/Event-Stream; charset=utf-8"])
@EVERY_DIALECT
def test_an_answer_without_its_end(dialect: Dialect, kind: str | None) -> None:
    reason = f"the answer ended after 0 events, 0 of 20 tokens, without {dialect.end_mark}"
    assert meaning(answer(kind=kind), dialect) == ("incomplete", reason, 0)


@pytest.mark.parametrize("stream", [True, False])
@EVERY_DIALECT
def test_nothing_came(dialect: Dialect, stream: bool) -> None:
    refused = RequestOutcome.CONNECTION_REFUSED
    nothing = answer(status=None, kind=None, failure=refused, reason="refused")
    assert meaning(nothing, dialect, stream) == ("connection_refused", "refused", 0)
    assert meaning(answer(status=None, kind=None), dialect, stream)[0] == "protocol"


@given(st.binary(max_size=200), st.sampled_from(DIALECTS), st.booleans())
def test_garbage_is_never_ok_and_never_raises(body: bytes, dialect: Dialect, stream: bool) -> None:
    came = answer(b"data: " + body if stream else body, kind=EVENT_STREAM if stream else JSON)
    assert meaning(came, dialect, stream)[0] in ("protocol", "incomplete")


def came(pieces: Sequence[bytes]) -> Answer:
    """What the receiver makes of these reads, which came at 1, 2, ...; then the end."""
    framing = ResponseFraming()
    bodies: list[tuple[int, bytes]] = []
    failure, reason, at = None, "", 0
    try:
        for at, piece in enumerate(pieces, start=1):
            body = framing.feed(piece)
            if body:
                bodies.append((at, body))
        framing.eof()
    except FramingError as error:
        failure, reason = RequestOutcome.INCOMPLETE, str(error)
        bodies += [(at, error.body)] if error.body else []
    return Answer(framing.status, framing.headers, tuple(bodies), 0, at, failure, reason)


def read(one: Meant, pieces: Sequence[bytes]) -> tuple[Reading, Answer]:
    said = came(pieces)
    able = Abilities(speaking(one.spoken)[0], "m", ENGINES[one.server], usage=True)
    return read_answer(said, able, one.stream, ASK, None), said


def check(one: Meant, pieces: Sequence[bytes]) -> None:
    reading, said = read(one, pieces)
    assert reading.outcome is one.outcome, reading.reason
    assert reading.output_tokens == one.tokens == sum(reading.event_tokens)
    assert len(reading.event_ns) == one.events
    assert all(tokens > 0 for tokens in reading.event_tokens)
    assert reading.counted_by is one.counted_by
    assert reading.finish_reason == one.finish_reason
    assert (reading.prompt_tokens, reading.cached_tokens) == (one.prompt, one.cached)
    assert reading.models == ((one.model,) if one.model else ())
    assert (reading.tokens_told, reading.first_told) == (one.tokens_told, one.first_told)
    if one.stream and one.first is not None:
        arrivals = [at for at, _, _ in events(said.pieces)]
        assert reading.event_ns[0] == arrivals[one.first - 1]
    assert list(reading.event_ns) == sorted(reading.event_ns)
    assert (reading.reason == "") is (reading.outcome is RequestOutcome.OK)


def cut(reply: bytes, places: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(places), len(reply)]
    return [reply[a:b] for a, b in itertools.pairwise(edges) if a < b]


EVERY = pytest.mark.parametrize("one", meant(), ids=lambda one: one.id)


@EVERY
def test_as_it_was_cut(one: Meant) -> None:
    check(one, one.recorded.reads)


@EVERY
def test_in_one_read(one: Meant) -> None:
    check(one, [one.recorded.reply])


@EVERY
def test_in_reads_of_a_few_bytes(one: Meant) -> None:
    reply = one.recorded.reply
    size = max(1, len(reply) // 3000)
    check(one, [reply[at : at + size] for at in range(0, len(reply), size)])


def small(one: Meant) -> bool:
    """One of each server and kind of end is enough: each of its bytes is a place to cut."""
    return one.stream and len(one.recorded.reply) <= SMALL_BYTES


@pytest.mark.parametrize("one", [one for one in meant() if small(one)], ids=lambda one: one.id)
def test_cut_in_two_at_every_byte(one: Meant) -> None:
    reply = one.recorded.reply
    for place in range(1, len(reply)):
        check(one, [reply[:place], reply[place:]])


@given(st.sampled_from([one for one in meant() if one.stream]), st.data())
def test_cut_anywhere(one: Meant, data: st.DataObject) -> None:
    reply = one.recorded.reply
    check(one, cut(reply, data.draw(st.lists(st.integers(1, len(reply)), max_size=30))))


def test_every_answer_is_in_the_table() -> None:
    """A recorded request for a text is in http_answers.csv, or says why not."""

    def generates(exchange: Exchange) -> bool:
        return exchange.method == "POST" and exchange.path in GENERATE

    known = {(one.server, one.name, one.exchange) for one in meant()}
    missing = [
        f"{server}/{name}"
        for server in ENGINES
        for name in names(server)
        for number, exchange in enumerate(connection(server, name))
        if generates(exchange) and (server, name, number) not in known
    ]
    assert sorted(missing) == sorted(NOT_OF_ONE_TEXT)
    assert len(known) == 377

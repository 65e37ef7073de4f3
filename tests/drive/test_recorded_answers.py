"""Every recorded answer of a real server is read right: whole, as it was cut, and cut anywhere."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.drive.recorded_http import ENGINES, Exchange, Meant, connection, meant, names
from tgi_bench.dialects import speaking
from tgi_bench.dialects.answer import Answer, Reading
from tgi_bench.dialects.dialect import Abilities, Ask
from tgi_bench.dialects.reading import read_answer
from tgi_bench.dialects.sse import events
from tgi_bench.drive.http_framing import FramingError, ResponseFraming
from tgi_bench.load_observation import RequestOutcome

ASK = Ask(prompt="a", messages=(), prompt_tokens=None, output_tokens=20)
NOT_OF_ONE_TEXT = {
    "vllm-0.32.0/chat-stream-n-2-001": "n is 2; this client asks for one choice",
    "tgi-3.3.7/completions-stream-two-prompts": "two prompts; this client sends one",
    "tgi-2.0.4/completions-stream-two-prompts": "two prompts; this client sends one",
}
GENERATE = ("/generate", "/generate_stream", "/", "/v1/completions", "/v1/chat/completions")
SMALL_BYTES = 2600


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
    answer = came(pieces)
    able = Abilities(
        speaking(one.spoken)[0], "m", ENGINES[one.server], False, None, None, True, None
    )
    return read_answer(answer, able, one.stream, ASK, None), answer


def check(one: Meant, pieces: Sequence[bytes]) -> None:
    reading, answer = read(one, pieces)
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
        arrivals = [at for at, _, _ in events(answer.pieces)]
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

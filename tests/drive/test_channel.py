"""Messages between processes: whole, in order, however the socket cuts them."""

from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tgi_bench.drive.channel import Channel, Message


def pair() -> tuple[Channel, Channel]:
    ours, theirs = socket.socketpair()
    return Channel(ours), Channel(theirs)


simple = st.one_of(st.integers(), st.binary(max_size=50), st.text(max_size=20), st.booleans())
messages = st.lists(
    st.tuples(st.text(max_size=8), st.lists(simple, max_size=5), simple), max_size=20
)


@given(sent=messages)
def test_what_is_sent_is_received(sent: list[Message]) -> None:
    near, far = pair()
    for message in sent:
        near.send(message)
    received: list[Message] = []
    while len(received) < len(sent):
        received += far.receive()
    assert received == sent
    assert not near.pending
    near.close()
    assert far.receive() == []
    assert far.closed
    far.close()


def test_nothing_is_there_yet() -> None:
    near, far = pair()
    assert far.receive() == []
    assert not far.closed
    near.close()
    far.close()


def test_a_message_that_does_not_fit_is_kept_and_sent_later() -> None:
    near, far = pair()
    big: Message = ("big", b"x" * 5_000_000)
    near.send(big)
    near.send(("after", 1))
    assert near.pending
    received: list[Message] = []
    while len(received) < 2:
        near.flush()
        received += far.receive()
    assert received == [big, ("after", 1)]
    assert near.flush()
    assert not near.pending
    near.close()
    far.close()


def test_what_was_said_before_the_end_is_heard() -> None:
    near, far = pair()
    near.send(("last words", 1))
    near.close()
    assert far.receive() == [("last words", 1)]
    assert far.receive() == []
    assert far.closed
    far.close()


def test_sending_to_one_who_is_gone_is_no_error() -> None:
    near, far = pair()
    far.close()
    near.send(("hello",))
    assert near.closed
    assert not near.pending
    near.close()


def test_a_message_cut_into_bytes() -> None:
    ours, theirs = socket.socketpair()
    near = Channel(theirs)
    source, relay = pair()
    source.send(("kind", [1, 2, 3], b"bytes"))
    data = relay._sock.recv(1000)
    received: list[Message] = []
    for byte in data:
        ours.send(bytes((byte,)))
        received += near.receive()
    assert received == [("kind", [1, 2, 3], b"bytes")]
    for channel in (near, source, relay):
        channel.close()
    ours.close()


@pytest.mark.parametrize("kind", [object(), (object(),)])
def test_what_cannot_be_sent_is_refused(kind: object) -> None:
    near, far = pair()
    with pytest.raises(ValueError, match="unmarshallable"):
        near.send((kind,))
    near.close()
    far.close()

"""Server-sent events: a table by hand, and a plain reader that any split must agree with."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tgi_bench.dialects.sse import events

BOM = b"\xef\xbb\xbf"


def data_of(*pieces: bytes) -> list[bytes]:
    return [data for _, data, _ in events(enumerate(pieces))]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"data: {}\n\n", [b"{}"]),
        (b"data:{}\n\n", [b"{}"]),
        (b"data:  {}\n\n", [b" {}"]),
        (b"data: 1\n\ndata: 2\n\n", [b"1", b"2"]),
        (b"data:1\n\ndata:2\n\n", [b"1", b"2"]),
        (b"data: 1\n\ndata:2\n\n", [b"1", b"2"]),
        (b"data:1\n\ndata: 2\n\n", [b"1", b"2"]),
        (b"data: 1\r\n\r\ndata: 2\r\n\r\n", [b"1", b"2"]),
        (b"data: 1\r\rdata: 2\r\r", [b"1", b"2"]),
        (b"data: 1\n\r\n", [b"1"]),
        (b"data: 1\ndata: 2\n\n", [b"1\n2"]),
        (b"data: 1\ndata\ndata: 2\n\n", [b"1\n\n2"]),
        (b": keep-alive\n\ndata: 1\n\n", [b"1"]),
        (b":\n\n:\n\n", []),
        (b"data: 1\n\n: \n\ndata: 2\n\n", [b"1", b"2"]),
        (b"event: message\nid: 7\nretry: 10\ndata: 1\n\n", [b"1"]),
        (b"event: ping\n\n", []),
        (b"dat: 1\n\n", []),
        (b"\n\n\n\ndata: 1\n\n\n\n", [b"1"]),
        (b"data:\n\n", [b""]),
        (BOM + b"data: 1\n\n", [b"1"]),
        (b"data: 0\n\n" + BOM + b"data: 1\n\n", [b"0"]),
        (b"data: [DONE]", [b"[DONE]"]),
        (b"data: [DONE]\n", [b"[DONE]"]),
        (b'data: {"a":1}', [b'{"a":1}']),
        (b'data: {"a":1}\n', [b'{"a":1}']),
        (b'data: {"a"', []),
        (b'data: {"a":1}\n\ndata: {"b', [b'{"a":1}']),
        (b'error: {"message": "no"}\n\n', [b'{"error":{"message": "no"}}']),
        (b"", []),
    ],
)
def test_by_hand(body: bytes, expected: list[bytes]) -> None:
    assert data_of(body) == expected
    assert data_of(*[body[i : i + 1] for i in range(len(body))]) == expected


def test_arrival_is_that_of_the_data_lines_end() -> None:
    pieces = [
        (10, b"data: 1"),
        (20, b"\n"),
        (30, b"\ndata: 2\n"),
        (40, b"\n"),
        (50, b"data: 3\n\n"),
    ]
    assert list(events(pieces)) == [(20, b"1", True), (30, b"2", True), (50, b"3", True)]


def test_a_cr_ends_its_line_before_the_lf_comes() -> None:
    pieces = [(10, b"data: 1\r"), (20, b"\n\r"), (30, b"\ndata: 2\r\n\r\n")]
    assert list(events(pieces)) == [(10, b"1", True), (30, b"2", True)]


def test_events_of_one_read_say_so() -> None:
    pieces = [
        (10, b"data: 1\n\ndata: 2\n\ndata: 3"),
        (20, b"\n\ndata: 4\n\n"),
        (30, b"data: 5\n\n"),
    ]
    assert list(events(pieces)) == [
        (10, b"1", True),
        (10, b"2", False),
        (20, b"3", True),
        (20, b"4", False),
        (30, b"5", True),
    ]


def test_two_reads_with_one_stamp_are_two_reads() -> None:
    assert [first for _, _, first in events([(10, b"data: 1\n\n"), (10, b"data: 2\n\n")])] == [
        True,
        True,
    ]


def plain(body: bytes) -> list[tuple[int, bytes]]:
    """(offset of the byte that ends the last data line, data), by the standard, byte by byte."""
    found, data, ended = [], [], 0
    at = 0
    first = True
    while at < len(body):
        end = at
        while end < len(body) and body[end] not in b"\r\n":
            end += 1
        line = body[at:end]
        whole = end < len(body)
        following = end + (2 if body[end : end + 2] == b"\r\n" else 1)
        if first:
            line = line.removeprefix(BOM)
            first = False
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
            ended = min(end, len(body) - 1)
        if not line and whole and data:
            found.append((ended, b"\n".join(data)))
            data = []
        at = following
    # Of LINE's data: whole JSON is 1, with or without white space.
    if data and b"\n".join(data).strip(b"\n") in (b"[DONE]", b"1") and data != [b"[DONE]", b""]:
        found.append((ended, b"\n".join(data)))
    return found


LINE = st.sampled_from(
    [
        *(b"data: 1", b"data:1", b"data: x y", b"data", b"data: [DONE]", b"data:", b"", b"", b""),
        *(b":", b": hm", b"event: a", b"id:1", b"retry: 5", b"dat", BOM + b"data: 1"),
    ]
)
LINE_END = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"\r"])


@st.composite
def split_bodies(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    one_end = draw(st.sampled_from([None, b"\n", b"\n"]))
    lines = draw(st.lists(st.tuples(LINE, LINE_END), max_size=30))
    body = b"".join(line + (one_end or end) for line, end in lines)
    if draw(st.booleans()):
        body = body.rstrip(b"\r\n")
    cuts = sorted(draw(st.sets(st.integers(0, len(body)), max_size=12)))
    edges = [0, *cuts, len(body)]
    return body, [body[a:b] for a, b in itertools.pairwise(edges)]


@given(split_bodies())
def test_any_split_gives_the_same_events(case: tuple[bytes, list[bytes]]) -> None:
    body, pieces = case
    read_of = [read for read, piece in enumerate(pieces) for _ in piece]
    expected = [(read_of[ended], data) for ended, data in plain(body)]
    found = list(events(enumerate(pieces)))
    assert [(read, data) for read, data, _ in found] == expected
    reads = [read for read, _, _ in found]
    firsts = [first for _, _, first in found]
    assert firsts == [at == 0 or reads[at - 1] != read for at, read in enumerate(reads)]


def test_an_event_of_ten_megabytes() -> None:
    body = b"data: " + b"x" * 10_000_000 + b"\n\n"
    pieces = [body[at : at + 65_536] for at in range(0, len(body), 65_536)]
    (data,) = data_of(*pieces, b"data: 1\n\n")[:1]
    assert len(data) == 10_000_000


def test_a_piece_of_many_lines_is_walked_once() -> None:
    body = b"data: 1\r\n\r\n" * 50_000 + b": \n\n" * 50_000 + b"data: 2\n\n"
    assert len(data_of(body)) == 50_001

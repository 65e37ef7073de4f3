"""HTTP framing: hand-made answers, every split of one, the limits, and 30,000 cases of llhttp's."""

from __future__ import annotations

import re

import pytest

from tests.drive import framing_fuzz
from tgi_bench.drive import http_framing
from tgi_bench.drive.http_framing import (
    CHUNK_LINE_LIMIT_BYTES,
    HEAD_LIMIT_BYTES,
    TRAILER_LIMIT_BYTES,
    FramingError,
    ResponseFraming,
)

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
COUNTED = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
UNTIL_CLOSE = b"HTTP/1.0 200 OK\r\n\r\n"
STREAM = (
    b"HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"9\r\ndata: a\n\n\r\n0A;x=y\r\ndata: \r\nb\n\r\n0\r\nx-time: 5\r\n\r\n"
)


def refused(data: bytes) -> str:
    with pytest.raises(FramingError) as caught:
        ResponseFraming().feed(data)
    return str(caught.value)


def feed_all(framing: ResponseFraming, reads: list[bytes]) -> None:
    for data in reads:
        framing.feed(data)


def test_a_stream_whole() -> None:
    framing = ResponseFraming()
    assert framing.feed(STREAM) == b"data: a\n\ndata: \r\nb\n"
    assert framing.done
    assert framing.keep_alive
    assert framing.status == 200
    assert framing.headers == (
        (b"content-type", b"text/event-stream"),
        (b"transfer-encoding", b"chunked"),
    )
    assert framing.rest == b""


@pytest.mark.parametrize("step", range(1, len(STREAM)))
def test_a_stream_in_reads_of_any_length(step: int) -> None:
    framing = ResponseFraming()
    reads = [STREAM[at : at + step] for at in range(0, len(STREAM), step)]
    body = b"".join(map(framing.feed, reads))
    assert body == b"data: a\n\ndata: \r\nb\n"
    assert framing.done


def test_each_read_gives_what_it_brought() -> None:
    framing = ResponseFraming()
    assert framing.feed(CHUNKED) == b""
    assert framing.head_done
    assert framing.feed(b"1\r\na\r\n") == b"a"
    assert framing.feed(b"2\r\nbc\r\n1\r\nd\r\n") == b"bcd"
    assert framing.feed(b"") == b""
    assert framing.feed(b"4\r\nef") == b"ef"
    assert framing.feed(b"gh") == b"gh"
    assert not framing.done
    assert framing.feed(b"\r\n0\r\n\r\n") == b""
    assert framing.done


def test_the_quick_ways_take_only_what_the_slow_way_takes() -> None:
    """The size is known by now, so that only what follows is looked at again."""
    for data, sentence in (
        (b"3\r\nabc\rX", "a chunk's data is followed by 'X'"),
        (b"3\r\nabcd\r\n", "a chunk's data is followed by 'd'"),
        (b"3\r\nab\r\n\r", "a chunk's data is followed by '\\n'"),
        (b"3\r\nabc\r\n3\r\nabc\n\n", "a chunk's data is followed by '\\n'"),
        (b"3X", "a chunk's size line begins '3X'"),
        (b"3\r\nabc\r\n3X", "a chunk's size line begins '3X'"),
        (b"\r\n", "a chunk's size line is ''"),
        (b"3\n\r\nabc\r\n", "a chunk's size line is '3\\n'"),
    ):
        framing = ResponseFraming()
        framing.feed(CHUNKED)
        assert framing.feed(b"3\r\nabc\r\n") == b"abc"
        with pytest.raises(FramingError, match=f"^{re.escape(sentence)}$"):
            framing.feed(data)


def test_what_came_before_the_fault_is_kept() -> None:
    framing = ResponseFraming()
    with pytest.raises(FramingError) as caught:
        framing.feed(CHUNKED + b"5\r\nhello\r\n2\r\nabX")
    assert caught.value.body == b"helloab"
    assert framing.status == 200
    assert not framing.done
    assert not framing.keep_alive
    with pytest.raises(FramingError, match="refused already"):
        framing.feed(b"5\r\nhello\r\n")
    with pytest.raises(FramingError, match="after an error"):
        framing.eof()


def test_reset_forgets_an_answer_wherever_it_was_left() -> None:
    framing = ResponseFraming()
    for left in (b"HTT", CHUNKED, CHUNKED + b"5", CHUNKED + b"5\r\nhe", COUNTED + b"h", STREAM):
        framing.feed(left)
        framing.reset()
        assert (framing.status, framing.headers, framing.head_done) == (None, (), False)
        assert (framing.done, framing.keep_alive, framing.rest) == (False, False, b"")
        assert framing.feed(COUNTED + b"hello") == b"hello"
        assert framing.done
        framing.reset()


def test_an_answer_has_begun_with_its_first_byte() -> None:
    framing = ResponseFraming()
    for first in (b"H", b"HTTP/1.1 103 Early Hints\r\n\r\n", COUNTED):
        assert not framing.begun
        framing.feed(first)
        assert framing.begun
        framing.reset()
    with pytest.raises(FramingError, match="before an answer"):
        framing.eof()
    assert not framing.begun


def test_what_comes_after_the_end_is_kept_apart() -> None:
    framing = ResponseFraming()
    assert framing.feed(COUNTED + b"helloHTTP/1.1") == b"hello"
    assert framing.done
    assert framing.rest == b"HTTP/1.1"
    assert framing.feed(b" 200 OK") == b""
    assert framing.rest == b"HTTP/1.1"


@pytest.mark.parametrize(
    ("head", "kept"),
    [
        (b"HTTP/1.1 200 OK\r\n", True),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n", False),
        (b"HTTP/1.1 200 OK\r\nConnection: x, Close\t\r\n", False),
        (b"HTTP/1.1 200 OK\r\nConnection: closed\r\n", True),
        (b"HTTP/1.0 200 OK\r\n", False),
        (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n", True),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive, close\r\n", False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nConnection: close\r\n", False),
    ],
)
def test_keep_alive(head: bytes, kept: bool) -> None:
    framing = ResponseFraming()
    framing.feed(head + b"Content-Length: 0\r\n\r\n")
    assert framing.done
    assert framing.keep_alive is kept


@pytest.mark.parametrize("status", [b"204", b"304"])
def test_an_answer_without_a_body(status: bytes) -> None:
    framing = ResponseFraming()
    assert framing.feed(b"HTTP/1.1 " + status + b"\r\nContent-Length: 5\r\n\r\nhello") == b""
    assert framing.done
    assert framing.rest == b"hello"


def test_a_body_that_ends_with_the_connection() -> None:
    framing = ResponseFraming()
    assert framing.feed(UNTIL_CLOSE + b"ab") == b"ab"
    assert framing.feed(b"\r\n\r\n") == b"\r\n\r\n"
    assert not framing.done
    framing.eof()
    assert framing.done
    assert not framing.keep_alive
    framing.eof()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "the connection ended before an answer"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "the connection ended before an answer"),
        (b"HTTP/1.1 200 OK\r\n", "the connection ended within the head"),
        (COUNTED, "the connection ended with 5 bytes of the body missing"),
        (COUNTED + b"hell", "the connection ended with 1 bytes of the body missing"),
        (CHUNKED, "the connection ended within a chunked body"),
        (CHUNKED + b"5\r\nhello\r\n", "the connection ended within a chunked body"),
        (CHUNKED + b"0\r\n", "the connection ended within a chunked body"),
    ],
)
def test_a_connection_that_ends_too_early(data: bytes, sentence: str) -> None:
    framing = ResponseFraming()
    framing.feed(data)
    with pytest.raises(FramingError, match=f"^{sentence}$"):
        framing.eof()
    assert not framing.done


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "the status line begins 'SSH-2.0-OpenSSH_9.6\\r\\n'"),
        (b"\x15\x03\x01", "the status line begins '\\x15\\x03\\x01'"),
        (b"HTTP/2.0 200 OK\r\n\r\n", "the status line is 'HTTP/2.0 200 OK'"),
        (b"HTTP/1.1 20 OK\r\n\r\n", "the status line is 'HTTP/1.1 20 OK'"),
        (b"HTTP/1.1 200 OK\nServer: a\r\n\r\n", "the status line is 'HTTP/1.1 200 OK\\nServer: a'"),
        (b"HTTP/1.1 099 OK\r\n\r\n", "the status is 099"),
        (
            b"HTTP/1.1 101 Switching\r\n\r\n",
            "the server switches to a protocol that was not asked for (101)",
        ),
        (
            b"HTTP/1.1 103 a\r\nContent-Length: 0\r\n\r\n",
            "an interim answer (103) announces a body",
        ),
        (b"HTTP/1.0 100 a\r\n\r\n", "an interim answer (100) closes the connection"),
        (b"HTTP/1.1 200 OK\r\na b: c\r\n\r\n", "a header line is 'a b: c'"),
        (b"HTTP/1.1 200 OK\r\na: b\r\n c\r\n\r\n", "a header line is ' c'"),
        (b"HTTP/1.1 200 OK\r\na: b\nc: d\r\n\r\n", "a header line is 'a: b\\nc: d'"),
        (COUNTED[:-2] + b"Content-Length: 5\r\n\r\n", "the head has two Content-Length"),
        (
            COUNTED[:-2] + b"Transfer-Encoding: chunked\r\n\r\n",
            "the head has both Content-Length and Transfer-Encoding",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "Transfer-Encoding is 'gzip, chunked'",
        ),
        (
            CHUNKED[:-2] + b"Transfer-Encoding: chunked\r\n\r\n",
            "the head has two Transfer-Encoding",
        ),
        (CHUNKED + b"0\r\nContent-Length: 5\r\n", "a trailer says how the body is framed: "),
        (CHUNKED + b"0\r\nConnection: close\r\n", "a trailer says what becomes of the connection"),
        (CHUNKED + b"0\r\nbroken\r\n", "a header line is 'broken'"),
    ],
)
def test_what_is_not_http_is_refused(data: bytes, sentence: str) -> None:
    assert refused(data).startswith(sentence)


@pytest.mark.parametrize(
    "value",
    ["", "+5", "-5", "5,5", "5 5", "0x5", "5_0", "5.0", "18446744073709551616", "9" * 5000],
)
def test_a_content_length_that_is_none(value: str) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {value}\r\n\r\n".encode()
    assert refused(head).startswith("Content-Length is ")


def test_a_content_length_of_many_digits() -> None:
    framing = ResponseFraming()
    head = b"HTTP/1.1 200 OK\r\nContent-Length: " + b"0" * 5000 + b"5\r\n\r\n"
    assert framing.feed(head + b"hello") == b"hello"
    assert framing.done


@pytest.mark.parametrize(
    "line",
    ["", "+5", "-5", "5 ", " 5", "0x5", "5_0", "5;", "5; a", "g", "10000000000000000", "5;a=\x00"],
)
def test_a_chunk_size_that_is_none(line: str) -> None:
    assert refused(CHUNKED + line.encode() + b"\r\nhello\r\n").startswith("a chunk's size line ")


def test_a_fault_is_told_before_its_line_ends() -> None:
    """A server that then says nothing more is not waited for until the timeout."""
    assert refused(b"ICY") == "the status line begins 'ICY'"
    assert refused(CHUNKED + b"zz") == "a chunk's size line begins 'zz'"
    assert refused(CHUNKED + b"5\n") == "a chunk's size line begins '5\\n'"
    assert refused(CHUNKED + b"5\r\nhello\n") == "a chunk's data is followed by '\\n'"


def head_of(length: int) -> bytes:
    begin, end = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nx: ", b"\r\n\r\n"
    return begin + b"a" * (length - len(begin) - len(end)) + end


def trailers_of(length: int) -> bytes:
    lines = b"x: y\r\n" * 100
    return lines + b"z: " + b"a" * (length - len(lines) - 7) + b"\r\n\r\n"


@pytest.mark.parametrize("step", [1 << 20, 4093, 997])
@pytest.mark.parametrize(
    ("begin", "fits", "too_long", "sentence"),
    [
        (b"", head_of(HEAD_LIMIT_BYTES), head_of(HEAD_LIMIT_BYTES + 1), "the head is over 65536"),
        (
            b"HTTP/1.1 100 a\r\n\r\n" * 2,
            head_of(HEAD_LIMIT_BYTES - 36),
            head_of(HEAD_LIMIT_BYTES - 35),
            "the head is over 65536",
        ),
        (
            CHUNKED,
            b"0;" + b"a" * (CHUNK_LINE_LIMIT_BYTES - 2) + b"\r\n\r\n",
            b"0;" + b"a" * (CHUNK_LINE_LIMIT_BYTES - 1) + b"\r\n\r\n",
            "a chunk's size line is over 1024",
        ),
        (
            CHUNKED + b"0\r\n",
            trailers_of(TRAILER_LIMIT_BYTES),
            trailers_of(TRAILER_LIMIT_BYTES + 1),
            "the trailers are over 16384",
        ),
    ],
    ids=["head", "interim heads", "chunk line", "trailers"],
)
def test_limits(step: int, begin: bytes, fits: bytes, too_long: bytes, sentence: str) -> None:
    for data, ends in ((begin + fits, True), (begin + too_long, False)):
        seen = framing_fuzz.ours(
            [data[at : at + step] for at in range(0, len(data), step)], ResponseFraming()
        )
        assert (seen.refused is None) is ends
        assert ends or (seen.refused or "").startswith(sentence)


@pytest.mark.parametrize(
    ("begin", "again"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"x: " + b"a" * 997),
        (b"", b"HTTP/1.1 100 a\r\n\r\n" * 60),
        (CHUNKED + b"5;", b"a" * 1000),
        (CHUNKED + b"0\r\n", b"x: y\r\n" * 100),
        (CHUNKED, b"0" * 1000),
    ],
    ids=["head", "interim answers", "chunk line", "trailers", "digits"],
)
def test_what_has_no_end_is_refused_in_time(begin: bytes, again: bytes) -> None:
    framing = ResponseFraming()
    framing.feed(begin)
    with pytest.raises(FramingError, match=" over "):
        feed_all(framing, [again] * (2 * HEAD_LIMIT_BYTES // len(again)))


def test_known_sizes_do_not_fill_the_memory() -> None:
    http_framing._sizes.clear()
    framing = ResponseFraming()
    framing.feed(CHUNKED)
    for size in range(1, 6000):
        assert len(framing.feed(b"%x\r\n%s\r\n" % (size, b"a" * size))) == size
    framing.feed(b"1;" + b"a" * 1000 + b"\r\na\r\n")
    assert len(http_framing._sizes) == 4096
    assert max(map(len, http_framing._sizes)) <= 16


def test_llhttp_agrees() -> None:
    """And every difference that is allowed is there: a row that nothing needs would hide one."""
    tally = framing_fuzz.run(seed=0, indexes=range(30_000))
    assert tally.wrong == {}
    assert set(tally.allowed) == set(framing_fuzz.DIFFERENCES)
    assert tally.accepted > 10_000
    assert tally.refused > 5_000


def test_the_same_seed_gives_the_same_cases() -> None:
    assert framing_fuzz.case_of(7, 11) == framing_fuzz.case_of(7, 11)
    assert framing_fuzz.case_of(7, 11) != framing_fuzz.case_of(8, 11)


@pytest.mark.parametrize(
    ("name", "lax"),
    [
        ("_STATUS_LINE", rb"HTTP/1\.([01]) ([0-9]{3})(?: [^\r]*)?"),
        ("_STATUS_LINE", rb"HTTP/1\.([01]) ([0-9]{3})(?: [^\r\n\x80-\xff]*)?"),
        ("_FIELD", rb"([^:\r\n]+):([^\r]*)"),
        ("_FIELD", rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):([\t -~]*)"),
        ("_CHUNK_SIZE", rb"0*([0-9A-Fa-f]{0,16})(?:;[^\r\n]*)?"),
        ("_CHUNK_SIZE", rb"[+]?0*([0-9A-Fa-f]{0,16}) ?"),
    ],
)
def test_the_comparison_sees_a_parser_that_is_wrong(
    monkeypatch: pytest.MonkeyPatch, name: str, lax: bytes
) -> None:
    monkeypatch.setattr(http_framing, "_sizes", {})
    monkeypatch.setattr(http_framing, "_size_of", {}.get)
    monkeypatch.setattr(http_framing, name, re.compile(lax))
    assert framing_fuzz.run(seed=0, indexes=range(20_000)).wrong

"""Takes the HTTP/1.1 framing off an answer, read by read, and refuses what is not HTTP.

Of RFC 9112 what the answer to a POST needs: interim answers are skipped, a body is chunked,
counted or ends with the connection. Where the RFC lets a client guess, this one refuses: a
figure taken from a guess is worth less than an error. `tests/drive/framing_fuzz.py` compares
it with llhttp and lists where the two differ and why.
"""

from __future__ import annotations

import re
from typing import Final

from tgi_bench.errors import TgiBenchError

HEAD_LIMIT_BYTES: Final = 64 * 1024
"""Of an answer's head, those of the interim answers before it included."""
CHUNK_LINE_LIMIT_BYTES: Final = 1024
TRAILER_LIMIT_BYTES: Final = 16 * 1024

# Where the reader stands. Plain numbers: comparing them is on the path of every read.
_BOUNDARY: Final = 0  # before a chunk's size, with nothing of it held
_CHUNK_LINE: Final = 1  # in a chunk's size, its beginning held
_CHUNK_DATA: Final = 2
_CHUNK_END: Final = 3  # before the CRLF after a chunk's data
_CHUNK_END_LF: Final = 4  # between that CR and its LF
_TRAILERS: Final = 5
_COUNTED: Final = 6
_UNTIL_CLOSE: Final = 7
_HEAD: Final = 8
_DONE: Final = 9
_BROKEN: Final = 10

_CRLF: Final = b"\r\n"
_END_OF_HEAD: Final = b"\r\n\r\n"
_START: Final = b"HTTP/1."
_LARGEST: Final = 2**64 - 1

_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([0-9]{3})(?: [^\r\n]*)?")
# Without the blanks around the value, which would make a hostile line cost its length squared.
_FIELD: Final = re.compile(rb"(" + _TOKEN + rb"+):([\t\x20-\x7e\x80-\xff]*)")
_QUOTED: Final = (
    rb'"(?:[\t\x20\x21\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t\x20-\x7e\x80-\xff])*"'  # RFC 9110, 5.6.4
)
_CHUNK_SIZE: Final = re.compile(
    rb"0*([0-9A-Fa-f]{0,16})"
    rb"(?:;(?![\x20]|\Z)" + _TOKEN + rb"*(?:=" + _TOKEN + rb"*(?:" + _QUOTED + rb")?)?)*"
)
_CHUNK_SIZE_SO_FAR: Final = re.compile(rb"[0-9A-Fa-f]+(?:\r|;[^\r\n]*\r?)?")

_sizes: dict[bytes, int] = {}
"""Chunk-size lines that were found right, and what they say; servers repeat a few hundred."""
_SIZES_LIMIT: Final = 4096
_SIZE_LENGTH_LIMIT: Final = 16
_size_of = _sizes.get

Headers = tuple[tuple[bytes, bytes], ...]


class FramingError(TgiBenchError):
    """An answer is not HTTP, or ended before its end. `str()` says what was found.

    body: what the read that raised brought of the body before the fault.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.body = b""


class ResponseFraming:
    """One answer at a time; `reset()` makes it ready for the next of a kept connection.

    head_done: the whole head came. status: None until then. headers: in order, names in lower
    case, values without the blanks around them.
    done: the answer ended as its framing says. keep_alive: the connection can be used again
    once it is done; False before the head came and after an error.
    rest: what came after the end, at least its first bytes. A client that sends one request at
    a time has no use for it: the server is at fault.
    """

    __slots__ = (
        "_held",
        "_left",
        "_mode",
        "_seen",
        "done",
        "head_done",
        "headers",
        "keep_alive",
        "rest",
        "status",
    )

    def __init__(self) -> None:
        self._held = bytearray()  # the beginning of a head, of a chunk's size, or of trailers
        self.reset()

    def reset(self) -> None:
        """Forget the answer, and `rest` too."""
        self._held.clear()
        self._left = 0  # bytes that the counted body or the chunk still has
        self._seen = 0  # bytes of interim heads, and then of trailers
        self._mode = _HEAD
        self.done = False
        self.head_done = False
        self.headers: Headers = ()
        self.keep_alive = False
        self.rest = b""
        self.status: int | None = None

    @property
    def begun(self) -> bool:
        """Whether a byte of an answer came, be it of an interim one."""
        return self.head_done or bool(self._held) or self._seen > 0

    @property
    def chunked(self) -> bool:
        """Whether the answer is in the middle of a chunked body."""
        return self._mode <= _TRAILERS

    def feed(self, data: bytes) -> bytes:
        """What one read brought of the body. Raises FramingError, also for all that follows."""
        if self._mode == _BOUNDARY:
            # Nearly every read is one whole chunk. Where no CRLF is found the slice is a wrong
            # one, but then the data does not end in CRLF either.
            line_end = data.find(_CRLF)
            size = _size_of(data[:line_end])
            if size and len(data) == line_end + size + 4 and data.endswith(_CRLF):
                return data[line_end + 2 : -2]
        elif self._mode == _UNTIL_CLOSE:
            return data
        return self._walk(data)

    def eof(self) -> None:
        """The connection ended. Raises FramingError where the answer had not."""
        mode = self._mode
        if mode == _DONE:
            return
        if mode == _UNTIL_CLOSE:
            self._end()
            return
        self._mode = _BROKEN
        self.keep_alive = False
        if mode == _HEAD:
            where = "within the head" if self._held else "before an answer"
        elif mode == _COUNTED:
            where = f"with {self._left} bytes of the body missing"
        elif mode == _BROKEN:
            where = "after an error"
        else:
            where = "within a chunked body"
        raise FramingError(f"the connection ended {where}")

    def _walk(self, data: bytes) -> bytes:
        pieces: list[bytes] = []
        try:
            at = 0
            while at < len(data):
                at = self._step(data, at, pieces)
        except FramingError as error:
            self._mode = _BROKEN
            self.keep_alive = False
            error.body = b"".join(pieces)
            raise
        return b"".join(pieces)

    def _step(self, data: bytes, at: int, pieces: list[bytes]) -> int:
        """Read on from `at` as the mode says; where to go on from."""
        mode = self._mode
        if mode == _BOUNDARY:
            return self._whole_chunks(data, at, pieces)
        if mode in (_CHUNK_DATA, _COUNTED):
            return self._take(data, at, pieces)
        if mode in (_CHUNK_END, _CHUNK_END_LF):
            return self._chunk_end(data, at)
        if mode == _CHUNK_LINE:
            return self._chunk_line(data, at)
        if mode == _HEAD:
            return self._read_head(data, at)
        if mode == _TRAILERS:
            return self._read_trailers(data, at)
        if mode == _UNTIL_CLOSE:
            pieces.append(data[at:])
        elif mode == _DONE:
            # The first bytes tell what came; a server that goes on must not fill the memory.
            self.rest = self.rest or data[at:]
        else:
            raise FramingError("the answer was refused already")
        return len(data)

    def _whole_chunks(self, data: bytes, at: int, pieces: list[bytes]) -> int:
        find = data.find
        while True:
            line_end = find(_CRLF, at)
            if line_end < 0:
                break
            size = _size_of(data[at:line_end])
            if not size:
                break
            end = line_end + 2 + size
            if data[end : end + 2] != _CRLF:  # most often cut off by the end of the read
                self._mode = _CHUNK_DATA
                self._left = size
                return line_end + 2
            pieces.append(data[line_end + 2 : end])
            at = end + 2
        if at < len(data):
            self._mode = _CHUNK_LINE
        return at

    def _chunk_line(self, data: bytes, at: int) -> int:
        held = self._held
        searched = max(len(held) - 1, 0)  # the CR may be held
        before = len(held)
        held += data[at : at + CHUNK_LINE_LIMIT_BYTES + 2]
        end = held.find(_CRLF, searched)
        if end > CHUNK_LINE_LIMIT_BYTES or (end < 0 and len(held) > CHUNK_LINE_LIMIT_BYTES + 1):
            raise FramingError(f"a chunk's size line is over {CHUNK_LINE_LIMIT_BYTES} bytes long")
        if end < 0:
            if not _CHUNK_SIZE_SO_FAR.fullmatch(held):
                raise FramingError(f"a chunk's size line begins {_shown(held)}")
            return at + len(held) - before
        size = _chunk_size(bytes(held[:end]))
        held.clear()
        self._left = size
        self._mode = _CHUNK_DATA if size else _TRAILERS
        self._seen = 0
        return at + end + 2 - before

    def _take(self, data: bytes, at: int, pieces: list[bytes]) -> int:
        end = at + self._left
        if end > len(data):
            self._left = end - len(data)
            pieces.append(data[at:])
            return len(data)
        pieces.append(data[at:end])
        self._left = 0
        if self._mode == _COUNTED:
            self._end()
        else:
            self._mode = _CHUNK_END
        return end

    def _chunk_end(self, data: bytes, at: int) -> int:
        wanted = 13 if self._mode == _CHUNK_END else 10
        if data[at] != wanted:
            raise FramingError(f"a chunk's data is followed by {_shown(data[at : at + 1])}")
        self._mode = _CHUNK_END_LF if self._mode == _CHUNK_END else _BOUNDARY
        return at + 1

    def _read_head(self, data: bytes, at: int) -> int:
        held = self._held
        before = len(held)
        room = HEAD_LIMIT_BYTES - self._seen
        held += data[at : at + room + 1]
        end = held.find(_END_OF_HEAD, max(before - 3, 0))
        if end + 4 > room or (end < 0 and len(held) > room):
            raise FramingError(f"the head is over {HEAD_LIMIT_BYTES} bytes long")
        if end < 0:
            if held[: len(_START)] != _START[: len(held)]:
                raise FramingError(f"the status line begins {_shown(held)}")
            return at + len(held) - before
        head = bytes(held[:end])
        held.clear()
        self._use_head(head)
        return at + end + 4 - before

    def _use_head(self, head: bytes) -> None:
        line, *fields = head.split(_CRLF)
        found = _STATUS_LINE.fullmatch(line)
        if found is None:
            raise FramingError(f"the status line is {_shown(line)}")
        status = int(found[2])
        headers = tuple(_field(field) for field in fields)
        mode, left, keep_alive = _framing_of(status, found[1] == b"1", headers)
        if status < 200:
            self._seen += len(head) + 4
            return
        self.status = status
        self.headers = headers
        self.head_done = True
        self.keep_alive = keep_alive
        self._mode = mode
        self._left = left
        if mode == _DONE:
            self._end()

    def _read_trailers(self, data: bytes, at: int) -> int:
        """Line by line: the trailers end with an empty one, which may be the first."""
        held = self._held
        before = len(held)
        held += data[at : at + TRAILER_LIMIT_BYTES + 1]
        end = held.find(_CRLF, max(before - 1, 0))
        self._seen += (end + 2 if end >= 0 else len(held)) - before
        if self._seen > TRAILER_LIMIT_BYTES:
            raise FramingError(f"the trailers are over {TRAILER_LIMIT_BYTES} bytes long")
        if end < 0:
            return at + len(held) - before
        line = bytes(held[:end])
        held.clear()
        if line:
            _check_trailer(line)
        else:
            self._end()
        return at + end + 2 - before

    def _end(self) -> None:
        self._mode = _DONE
        self.done = True


def _field(line: bytes) -> tuple[bytes, bytes]:
    found = _FIELD.fullmatch(line)
    if found is None:
        raise FramingError(f"a header line is {_shown(line)}")
    return found[1].lower(), found[2].strip(b" \t")


def _check_trailer(line: bytes) -> None:
    name, _ = _field(line)
    if name in (b"content-length", b"transfer-encoding"):
        raise FramingError(f"a trailer says how the body is framed: {_shown(line)}")
    if name in (b"connection", b"proxy-connection"):
        raise FramingError(f"a trailer says what becomes of the connection: {_shown(line)}")


def _framing_of(status: int, minor: bool, headers: Headers) -> tuple[int, int, bool]:
    """What follows a head: the mode, the bytes of a counted body, and keep_alive.

    minor: HTTP/1.1, where a connection is kept unless it is said to close.
    """
    length = coding = None
    options: list[bytes] = []
    for name, value in headers:
        if name == b"content-length":
            if length is not None:
                raise FramingError("the head has two Content-Length")
            length = _content_length(value)
        elif name == b"transfer-encoding":
            if coding is not None:
                raise FramingError("the head has two Transfer-Encoding")
            if value.lower() != b"chunked":
                raise FramingError(f"Transfer-Encoding is {_shown(value)}")
            coding = value
        elif name == b"connection" or name == b"proxy-connection":
            options += [option.strip(b" \t") for option in value.lower().split(b",")]
    if length is not None and coding is not None:
        raise FramingError("the head has both Content-Length and Transfer-Encoding")
    keep_alive = b"close" not in options and (minor or b"keep-alive" in options)
    if status < 200:
        _check_interim(status, keep_alive, length is not None or coding is not None)
    if status == 204 or status == 304 or length == 0:
        return _DONE, 0, keep_alive
    if coding is not None:
        return _BOUNDARY, 0, keep_alive
    if length is not None:
        return _COUNTED, length, keep_alive
    return _UNTIL_CLOSE, 0, False


def _check_interim(status: int, keep_alive: bool, framed: bool) -> None:
    if status < 100:
        raise FramingError(f"the status is {status:03d}")
    if status == 101:
        raise FramingError("the server switches to a protocol that was not asked for (101)")
    if framed:
        raise FramingError(f"an interim answer ({status}) announces a body")
    if not keep_alive:
        raise FramingError(f"an interim answer ({status}) closes the connection")


def _content_length(value: bytes) -> int:
    digits = value.lstrip(b"0")
    if not value.isdigit() or len(digits) > 20 or (length := int(digits or b"0")) > _LARGEST:
        raise FramingError(f"Content-Length is {_shown(value)}")
    return length


def _chunk_size(line: bytes) -> int:
    known = _size_of(line)
    if known is not None:
        return known
    found = _CHUNK_SIZE.fullmatch(line)
    # A line that begins with ";" has no digit at all.
    if found is None or line[:1] in (b"", b";"):
        raise FramingError(f"a chunk's size line is {_shown(line)}")
    size = int(found[1] or b"0", 16)
    if len(line) <= _SIZE_LENGTH_LIMIT and len(_sizes) < _SIZES_LIMIT:
        _sizes[line] = size
    return size


def _shown(data: bytes | bytearray) -> str:
    """The first bytes, as a person can read them."""
    text = repr(bytes(data[:60]))[1:]
    return f"{text}..." if len(data) > 60 else text

"""Server-sent events out of the reads of one answer, each with the time of its read.

The rules are those of the HTML Standard, "Interpreting an event stream", with two exceptions:
an event that the stream's end cuts off is delivered where it is whole JSON or [DONE], because
servers end so; and a line `error: X` counts as `data: {"error":X}`, because llama.cpp's server
reported its errors so (tools/server, function server_sent_event).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import orjson

DONE = b"[DONE]"
"""The data of the last event of the OpenAI dialects."""

_BOM = b"\xef\xbb\xbf"
_BLANK = b"\n\n"
_LINE_END = re.compile(rb"\r\n|\n|\r")
_CR, _LF, _SPACE = 13, 10, 32


def events(pieces: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes, bool]]:
    """(arrival_ns, data, first_in_read) of each event, in order.

    pieces: (arrival_ns, bytes) of each read, split anywhere. An event arrives with the piece that
    brought the end of its last data line; one that the stream's end cuts off, with the last
    piece. first_in_read: no event before it arrived with the same piece. Data lines are joined by
    LF. Comments, other fields and events without a data line give nothing.
    """
    lines = _Lines()
    last_read = -1
    for read, (arrival_ns, piece) in enumerate(pieces):
        # The usual read: one event of one data line.
        if (
            lines.clean
            and piece.startswith(b"data:")
            and piece.find(b"\n") == len(piece) - 2
            and piece[-1] == _LF
            and b"\r" not in piece
        ):
            lines.begun = True
            last_read = read
            yield arrival_ns, piece[6:-2] if piece[5] == _SPACE else piece[5:-2], True
            continue
        for came_ns, came_read, data in _cut(lines, arrival_ns, read, piece):
            yield came_ns, data, came_read != last_read
            last_read = came_read
    for came_ns, came_read, data in lines.unended():
        yield came_ns, data, came_read != last_read
        last_read = came_read


def _cut(
    lines: _Lines, arrival_ns: int, read: int, piece: bytes
) -> Iterator[tuple[int, int, bytes]]:
    """(arrival_ns, read, data) of the events that a piece ends.

    Only what lies before its first and after its last blank line is looked at line by line, as
    long as the rest has plain data lines alone.
    """
    if b"\r" in piece:
        yield from lines.feed(arrival_ns, read, piece)
        return
    begin = 0
    if not lines.clean:
        begin = piece.find(_BLANK) + 2
        if begin < 2:
            begin = len(piece)
        yield from lines.feed(arrival_ns, read, piece[:begin])
    end = piece.rfind(_BLANK) + 2
    plain = _plain(piece[begin:end]) if lines.clean and begin < end else None
    if plain is None:
        yield from lines.feed(arrival_ns, read, piece[begin:])
        return
    lines.begun = True
    for data in plain:
        yield arrival_ns, read, data
    yield from lines.feed(arrival_ns, read, piece[end:])


def _plain(block: bytes) -> list[bytes] | None:
    """The data of a block that ends with a blank line and has no CR; None where it has other
    lines than one data line an event."""
    if not block.startswith(b"data:"):
        return None
    if block.startswith(b"data: "):
        found = block[6:-2].split(b"\n\ndata: ")
        # As many line ends as that many events need: so nothing else is between them.
        if block.count(b"\n") == 2 * len(found):
            return found
    found = block[5:-2].split(b"\n\ndata:")
    if block.count(b"\n") != 2 * len(found):
        return None
    return [data[1:] if data.startswith(b" ") else data for data in found]


class _Lines:
    """The line by line way. clean: nothing is held; begun: a first line has come."""

    __slots__ = ("_arrival_ns", "_data", "_part", "_part_at", "_read", "_skip_lf", "begun", "clean")

    def __init__(self) -> None:
        self.clean = True
        self.begun = False
        self._part: list[bytes] = []
        self._part_at = (0, 0)
        self._data: list[bytes] = []
        self._arrival_ns = 0
        self._read = 0
        self._skip_lf = False

    def feed(self, arrival_ns: int, read: int, piece: bytes) -> Iterator[tuple[int, int, bytes]]:
        """(arrival_ns, read, data) of the events that these bytes end."""
        if not piece:
            return
        at = 1 if self._skip_lf and piece[0] == _LF else 0
        self._skip_lf = piece[-1] == _CR
        for match in _LINE_END.finditer(piece, at):
            line = piece[at : match.start()]
            at = match.end()
            if self._part:
                self._part.append(line)
                line = b"".join(self._part)
                self._part.clear()
            if line:
                self._take(line, arrival_ns, read)
            elif self._data:
                yield self._arrival_ns, self._read, b"\n".join(self._data)
                self._data.clear()
            self.begun = True
        if at < len(piece):
            self._part.append(piece[at:])
            self._part_at = (arrival_ns, read)
        self.clean = not (self._part or self._data or self._skip_lf)

    def unended(self) -> Iterator[tuple[int, int, bytes]]:
        """The event that the stream's end cut off, where it is whole all the same."""
        if self._part:
            self._take(b"".join(self._part), *self._part_at)
        if not self._data:
            return
        data = b"\n".join(self._data)
        if data != DONE:
            try:
                orjson.loads(data)
            except orjson.JSONDecodeError:
                return  # cut off: the standard drops it too, and its reader sees no end
        yield self._arrival_ns, self._read, data

    def _take(self, line: bytes, arrival_ns: int, read: int) -> None:
        if not self.begun:
            line = line.removeprefix(_BOM)
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"error":
            self._data.append(b'{"error":' + value + b"}")
        else:
            return
        self._arrival_ns, self._read = arrival_ns, read

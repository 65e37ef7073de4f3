"""Messages between the process that makes requests and its workers: marshalled tuples.

Both ends are of one Python, so marshal's format is the same; it is the quickest there is for
tuples of numbers and bytes.
"""

from __future__ import annotations

import marshal
import socket
import struct
from collections import deque

Message = tuple[object, ...]
"""The message's kind, then what belongs to it; messages.py knows the kinds."""

_LENGTH = struct.Struct("<I")
_READ_BYTES = 1 << 18


class Channel:
    """One end of a stream socket. Sending never blocks: what does not fit is kept for later."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._received = bytearray()
        self._unsent: deque[memoryview] = deque()
        self.closed = False

    def fileno(self) -> int:
        """Of the socket, for epoll and select."""
        return self._sock.fileno()

    @property
    def pending(self) -> bool:
        """Whether something was kept that did not fit."""
        return bool(self._unsent)

    @property
    def pending_bytes(self) -> int:
        """How much that is."""
        return sum(map(len, self._unsent))

    def send(self, message: Message) -> None:
        """Hand a message over, as far as the socket takes it now."""
        payload = marshal.dumps(message)  # type: ignore[arg-type]  # its kinds are simple ones
        self._unsent.append(memoryview(_LENGTH.pack(len(payload)) + payload))
        self.flush()

    def flush(self) -> bool:
        """Send what was kept; whether all of it is gone."""
        while self._unsent:
            view = self._unsent[0]
            try:
                sent = self._sock.send(view)
            except BlockingIOError:
                return False
            except OSError:
                # The other end is gone: whoever reads next will see it.
                self.closed = True
                self._unsent.clear()
                return True
            if sent < len(view):
                self._unsent[0] = view[sent:]
                return False
            self._unsent.popleft()
        return True

    def receive(self) -> list[Message]:
        """Every message that is there whole; `closed` is set at the other end's end."""
        while True:
            try:
                data = self._sock.recv(_READ_BYTES)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.closed = True
                break
            self._received += data
            if len(data) < _READ_BYTES:
                break
        return self._taken()

    def _taken(self) -> list[Message]:
        received, messages, position = self._received, [], 0
        while len(received) - position >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(received, position)
            end = position + _LENGTH.size + length
            if end > len(received):
                break
            with memoryview(received) as view:
                messages.append(marshal.loads(view[position + _LENGTH.size : end]))
            position = end
        del received[:position]
        return messages

    def close(self) -> None:
        """Close this end."""
        self.closed = True
        self._sock.close()

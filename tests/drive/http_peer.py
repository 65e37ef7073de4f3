"""A server on 127.0.0.1 whose every byte is ours: it accepts and reads; what it answers is for
those who are made of it."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

CERTIFICATE = Path(__file__).parent / "self_signed.pem"
"""For 127.0.0.1, signed by itself, with its key; valid for 100 years, and for tests alone."""
RESET = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s: close() sends RST
_READ_BYTES = 1 << 16
_END_S = 10.0


class ConnectionEnds(Exception):  # noqa: N818  # the way out of an exchange, and no error
    """This connection is not to be used again."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came. connection: 0-based. headers: names in lower case."""

    method: str
    path: str
    body: dict[str, Any]
    connection: int
    headers: dict[str, str]

    @property
    def request_id(self) -> str:
        """x-request-id, or ""."""
        return self.headers.get("x-request-id", "")

    @property
    def authorization(self) -> str:
        """Or ""."""
        return self.headers.get("authorization", "")

    @property
    def tokens(self) -> int:
        """That it asks for."""
        if "parameters" in self.body:
            return int(self.body["parameters"]["max_new_tokens"])
        return int(self.body["max_tokens"])


def _has(length: int, data: bytes) -> bool:
    return len(data) >= length


class HttpPeer:
    """A thread for each connection. A context manager; all of them are gone at its end.

    asked: in the order in which requests came. connections: how many were accepted. idle_s: a
    connection that has no request for so long is closed. nagle: small pieces are held back until
    the one before is acknowledged, as TGI's router has it (no TCP_NODELAY).
    """

    def __init__(self, tls: bool = False, idle_s: float = 1e9, nagle: bool = False) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self.listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.asked: list[Asked] = []
        self.connections = 0
        self.stopping = threading.Event()
        self._idle_s = idle_s
        self._nagle = nagle
        self._context: ssl.SSLContext | None = None
        if tls:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(CERTIFICATE)
        self._threads = [threading.Thread(target=self._accept)]

    def answer(self, sock: socket.socket, asked: Asked, served: int) -> None:
        """One request; served: those on its connection before it. ConnectionEnds ends that."""
        raise NotImplementedError  # each server of the tests answers in its own way

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        # A close alone does not wake a thread that waits in accept().
        with contextlib.suppress(OSError):  # one that went away was shut down before
            self.listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(_END_S)
        self.listener.close()
        left = sum(thread.is_alive() for thread in self._threads)
        if left:
            raise RuntimeError(f"{left} threads of the server did not end")

    def _accept(self) -> None:
        while not self.stopping.is_set():
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return  # closed by __exit__
            thread = threading.Thread(target=self._serve, args=(sock, self.connections))
            self.connections += 1
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket, connection: int) -> None:
        # A client that goes away, or refuses the certificate, is what is tested.
        with contextlib.suppress(ConnectionEnds, OSError), sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0 if self._nagle else 1)
            sock.settimeout(_END_S)
            if self._context is None:
                self._converse(sock, connection)
            else:
                with self._context.wrap_socket(sock, server_side=True) as wrapped:
                    self._converse(wrapped, connection)

    def _converse(self, sock: socket.socket, connection: int) -> None:
        served = itertools.count()
        for asked in self._requests(sock, connection):
            self.answer(sock, asked, next(served))

    def _requests(self, sock: socket.socket, connection: int) -> Iterator[Asked]:
        """One after the other; ends with ConnectionEnds."""
        data = b""
        while True:
            data = self._read(sock, data, lambda data: b"\r\n\r\n" in data or data[:1] == b"\x16")
            if data[:1] == b"\x16":  # TLS where none is spoken; servers answer in plain text
                sock.sendall(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")
                raise ConnectionEnds
            head, _, body = data.partition(b"\r\n\r\n")
            lines = (line.partition(b":") for line in head.split(b"\r\n")[1:])
            headers = {n.decode().lower(): v.strip().decode("latin-1") for n, _, v in lines}
            length = int(headers.get("content-length", "0"))
            body = self._read(sock, body, partial(_has, length))
            data = body[length:]
            method, path, _ = head.decode("latin-1").split(" ", 2)
            yield Asked(
                method, path, json.loads(body[:length]) if length else {}, connection, headers
            )

    def _read(self, sock: socket.socket, data: bytes, enough: Callable[[bytes], bool]) -> bytes:
        """Until there is enough; ends the connection where the server stops or the client ends."""
        sock.settimeout(0.02)
        began = time.monotonic()
        while not enough(data):
            try:
                more = sock.recv(_READ_BYTES)
            except TimeoutError:
                if self.stopping.is_set() or time.monotonic() - began > self._idle_s:
                    raise ConnectionEnds from None
                continue
            if not more:
                raise ConnectionEnds
            data += more
        sock.settimeout(_END_S)
        return data

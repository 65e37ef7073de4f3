"""The null server in a thread of the test, and requests to it."""

from __future__ import annotations

import http.client
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tgi_bench.server.null.loop import HOST, NullServer
from tgi_bench.server.null.timing import ServedLog, StreamPace

INSTANT = StreamPace(0, 0, 0)
QUICK = StreamPace(1_000_000, 1_000_000, 1_000_000)


@dataclass(slots=True)
class Served:
    """port: where it listens. log: after the context was left."""

    port: int
    log: ServedLog | None = None


@contextmanager
def serving(pace: StreamPace) -> Iterator[Served]:
    """A null server until the context is left."""
    server = NullServer(0, pace)
    reader, writer = os.pipe()
    server.stop_when_readable(reader)
    served = Served(server.port)

    def serve() -> None:
        served.log = server.serve()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield served
    finally:
        os.close(writer)
        thread.join(30)
        os.close(reader)
    assert not thread.is_alive()
    assert served.log is not None, "the server has raised"


def body(new_tokens: int, **parameters: object) -> bytes:
    """A body of /generate_stream."""
    return json.dumps(
        {
            "inputs": "one two three",
            "parameters": {"max_new_tokens": new_tokens, "details": True, **parameters},
        }
    ).encode()


def request_bytes(payload: bytes, request_id: str = "0-0", more: str = "") -> bytes:
    """A request for a stream, as a client writes it."""
    head = (
        f"POST /generate_stream HTTP/1.1\r\nhost: null\r\nx-request-id: {request_id}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(payload)}\r\n{more}\r\n"
    )
    return head.encode() + payload


def asked(
    connection: http.client.HTTPConnection, payload: bytes, request_id: str = ""
) -> tuple[http.client.HTTPResponse, list[dict[str, object]]]:
    """The response and its events."""
    headers = {"x-request-id": request_id} if request_id else {}
    connection.request("POST", "/generate_stream", payload, headers)
    response = connection.getresponse()
    return response, events_of(response.read())


def events_of(data: bytes) -> list[dict[str, object]]:
    """The JSON of each event of a body without its HTTP framing."""
    parts = data.split(b"\n\n")
    assert parts.pop() == b""
    assert all(part.startswith(b"data: ") for part in parts)
    return [json.loads(part.removeprefix(b"data: ")) for part in parts]


def connect(port: int) -> http.client.HTTPConnection:
    """A connection that gives up after a while."""
    return http.client.HTTPConnection(HOST, port, timeout=30)

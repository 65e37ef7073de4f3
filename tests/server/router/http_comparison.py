"""What two servers answered to one request, and where the answers differ."""

from __future__ import annotations

import io
import json
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPResponse, IncompleteRead
from typing import Any

_MEASURED = (
    "content-length",
    "date",
    "x-compute-time",
    "x-inference-time",
    "x-prompt-tokens",
    "x-queue-time",
    "x-time-per-token",
    "x-total-time",
    "x-validation-time",
)
"""Headers of which only the presence is compared."""
_SAID = (
    "completion_tokens",
    "error",
    "error_type",
    "finish_reason",
    "generated_tokens",
    "http_status_code",
    "message",
    "object",
    "role",
    "special",
)
"""Keys whose value is compared; of others, what kind of value it is."""
_COUNTED_OTHERWISE = re.compile(r"(?<=Given: )\d+(?= `inputs` tokens)")


@dataclass(frozen=True, slots=True)
class Reply:
    """As far as it is comparable.

    headers: without values that are times or lengths. events: of a stream, each distinct one in
    order; of any other answer its body alone. whole: whether it ended as it said it would.
    """

    status: int
    headers: dict[str, str]
    events: tuple[Any, ...]
    whole: bool


class _Recorded:
    """Bytes in the place of a socket."""

    def __init__(self, reply: bytes) -> None:
        self._reply = reply

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._reply)


def recorded(reply: bytes) -> Reply:
    """A recorded answer."""
    return _read(HTTPResponse(_Recorded(reply)))  # type: ignore[arg-type]


def asked(connection: socket.socket, request: bytes, meanwhile: Callable[[], None]) -> Reply:
    """Send the bytes; meanwhile: called once, when the first byte of its body is there."""
    connection.sendall(request)
    return _read(HTTPResponse(connection), meanwhile)


def _read(response: HTTPResponse, meanwhile: Callable[[], None] = lambda: None) -> Reply:
    response.begin()
    body = response.read1(1)
    meanwhile()
    try:
        body, whole = body + response.read(), True
    except IncompleteRead as cut:
        body, whole = body + cut.partial, False
    headers: dict[str, str] = {}
    for name, value in response.getheaders():
        said = headers.get(name.lower())
        headers[name.lower()] = value if said is None else f"{said}, {value}"
    for name in _MEASURED:
        if name in headers:
            headers[name] = "..."
    kind = headers.get("content-type", "")
    return Reply(response.status, headers, tuple(_events(body, kind)), whole)


def _events(body: bytes, kind: str) -> Iterator[Any]:
    if kind.startswith("text/event-stream"):
        before = None
        for event in body.decode().split("\n\n")[:-1]:
            field, _, text = event.partition(":")
            said = text.strip() if text.strip() == "[DONE]" else comparable(json.loads(text))
            found = {field: said, "space": text.startswith(" ")}
            if found != before:
                yield found
            before = found
    elif kind.startswith("application/json"):
        yield comparable(json.loads(body))
    else:
        yield body.decode() if len(body) < 300 else "..."


def comparable(value: Any, key: str = "") -> Any:
    """Nested values without what is a server's own."""
    match value:
        case dict():
            return {name: comparable(one, name) for name, one in value.items()}
        case list():
            items = [comparable(one, key) for one in value]
            return [one for at, one in enumerate(items) if not at or one != items[at - 1]]
        case str() if key in _SAID:
            return _COUNTED_OTHERWISE.sub("N", value)
        case bool() | None:
            return value
        case int() | float() if key in _SAID:
            return value
        case str():
            return "a text"
        case _:
            return "a number"


def differences(recorded: Any, answered: Any, at: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Each place where two nested values differ; a key that is missing is "absent"."""
    match recorded, answered:
        case dict(), dict():
            for name in sorted(recorded.keys() | answered.keys()):
                place = f"{at}.{name}" if at else name
                one, other = recorded.get(name, "absent"), answered.get(name, "absent")
                yield from differences(one, other, place)
        case ((list() | tuple()), (list() | tuple())) if len(recorded) == len(answered):
            for one, other in zip(recorded, answered, strict=True):
                yield from differences(one, other, f"{at}[]")
        case _ if recorded != answered:
            yield at, recorded, answered

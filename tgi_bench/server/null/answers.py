"""The bytes of the null server's answers, made before anybody waits for them.

A stream is HTTP/1.1 with chunked coding, one chunk an event, framed as TGI >= 2.1.0 frames them
("data: {...}" and an empty line). Every token is the same made-up word.
"""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass
from itertools import accumulate

VERSION = "3.3.7"
"""TGI's, whose stream this is."""

MAX_INPUT_TOKENS = 1 << 20
MAX_NEW_TOKENS = 1 << 16
_WORD = " a"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    411: "Length Required",
    413: "Content Too Large",
    422: "Unprocessable Content",
    431: "Request Header Fields Too Large",
    505: "HTTP Version Not Supported",
}

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\n"
    b"content-type: text/event-stream\r\n"
    b"cache-control: no-cache\r\n"
    b"x-compute-type: simulated\r\n"
    b"x-accel-buffering: no\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
_LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class WholeStream:
    """A stream in one piece, head included.

    ends: where each event's last byte stands, counted from the stream's first byte, from 1.
    """

    data: bytes
    ends: array[int]


def answer(status: int, body: bytes, content_type: str, keep_alive: bool = True) -> bytes:
    """An answer in one piece."""
    connection = "" if keep_alive else "connection: close\r\n"
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\n"
        f"content-type: {content_type}\r\n"
        f"content-length: {len(body)}\r\n{connection}\r\n"
    )
    return head.encode() + body


def failure(status: int, message: str, keep_alive: bool = True) -> bytes:
    """An error as TGI words it; 422 is a failed validation."""
    kind = "validation" if status == 422 else "null_server"
    body = json.dumps({"error": message, "error_type": kind}).encode()
    return answer(status, body, "application/json", keep_alive)


def _json_answer(told: object) -> bytes:
    return answer(200, json.dumps(told).encode(), "application/json")


HEALTH = answer(200, b"", "text/plain")
INFO = _json_answer(
    {
        "model_id": "null",
        "model_sha": None,
        "model_pipeline_tag": None,
        "max_concurrent_requests": 1 << 20,
        "max_best_of": 1,
        "max_stop_sequences": 0,
        "max_input_tokens": MAX_INPUT_TOKENS,
        "max_total_tokens": MAX_INPUT_TOKENS + MAX_NEW_TOKENS,
        "validation_workers": 0,
        "max_client_batch_size": 1,
        "router": "null",
        "version": VERSION,
        "sha": None,
        "docker_label": "simulated",
        "simulated": True,
        "null_server": True,
    }
)
MODELS = _json_answer(
    {
        "object": "list",
        "data": [{"id": "null", "object": "model", "created": 0, "owned_by": "null"}],
    }
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What decides the bytes of a stream. input_length: as its details are to say."""

    new_tokens: int
    input_length: int
    details: bool


class Streams:
    """Makes each event once. Not bounded by itself: MAX_NEW_TOKENS events, few last ones."""

    _KEPT = 256
    """Streams of as many kinds are kept; beyond it the kept ones are made again."""

    def __init__(self) -> None:
        self._events: list[bytes] = []
        self._last: dict[Asked, bytes] = {}
        self._whole: dict[Asked, WholeStream] = {}

    def events(self, new_tokens: int) -> list[bytes]:
        """Chunks of events, the k-th at k: at least new_tokens - 1, none of them a last one."""
        while len(self._events) < new_tokens - 1:
            self._events.append(_event(len(self._events) + 1, None))
        return self._events

    def last(self, asked: Asked) -> bytes:
        """The chunk of the last event and the end of the stream."""
        made = self._last.get(asked)
        if made is None:
            if len(self._last) >= self._KEPT:
                self._last.clear()
            made = self._last[asked] = _event(asked.new_tokens, asked) + _LAST_CHUNK
        return made

    def whole(self, asked: Asked) -> WholeStream:
        """The stream in one piece."""
        made = self._whole.get(asked)
        if made is None:
            if len(self._whole) >= self._KEPT:
                self._whole.clear()
            chunks = [*self.events(asked.new_tokens)[: asked.new_tokens - 1], self.last(asked)]
            ends = accumulate((len(chunk) for chunk in chunks), initial=len(STREAM_HEAD))
            made = WholeStream(STREAM_HEAD + b"".join(chunks), array("q", [*ends][1:]))
            self._whole[asked] = made
        return made


def _event(index: int, last: Asked | None) -> bytes:
    """One chunk. index: of its token, from 1. last: None but for the last event."""
    text: str | None = None
    details: dict[str, object] | None = None
    if last is not None:
        text = _WORD * last.new_tokens
        if last.details:
            details = {
                "finish_reason": "length",
                "generated_tokens": last.new_tokens,
                "seed": None,
                "input_length": last.input_length,
            }
    event = {
        "index": index,
        "token": {"id": 0, "text": _WORD, "logprob": 0.0, "special": False},
        "generated_text": text,
        "details": details,
    }
    data = b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)

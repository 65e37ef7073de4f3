"""Recorded HTTP connections of real servers: tests/transcripts/<server>/http/<name>.jsonl."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tgi_bench.load_observation import RequestOutcome, TokenSource

TRANSCRIPTS = Path(__file__).parent.parent / "transcripts"
ENGINES = {
    "tgi-3.3.7": "tgi",
    "tgi-2.0.4": "tgi",
    "vllm-0.32.0": "vllm",
    "llamacpp-xllamacpp-2026.10.11549": "llamacpp",
    "transformers-serve-5.23.0": "",
    "litellm-1.106.2": "litellm",
}
"""Each server's folder, and its engine as `find_out` names it."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request on a connection, and what the server sent for it.

    reads: its bytes as the kernel cut them. ends: "FIN" or "RST" where the server ended the
    connection after it, by itself; "" where it waited for the client.
    """

    request: bytes
    reads: tuple[bytes, ...]
    ends: str

    @property
    def reply(self) -> bytes:
        """All of it."""
        return b"".join(self.reads)

    @property
    def method(self) -> str:
        return self.request.split(b" ", 1)[0].decode()

    @property
    def path(self) -> str:
        return self.request.split(b" ", 2)[1].decode()

    @property
    def body(self) -> dict[str, Any]:
        """The request's JSON object; {} where it is none."""
        text = self.request.partition(b"\r\n\r\n")[2]
        try:
            said = json.loads(text)
        except ValueError:
            return {}
        return said if isinstance(said, dict) else {}


@cache
def connection(server: str, name: str) -> tuple[Exchange, ...]:
    """The exchanges of one connection; a last request without an answer is not among them."""
    path = TRANSCRIPTS / server / "http" / f"{name}.jsonl"
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    found: list[Exchange] = []
    request, ended = b"", ""
    reads: list[bytes] = []
    for line in lines[1:]:
        if "end" in line:
            ended = ended or ("client" if line["from"] == "client" else line["end"])
            if reads and ended != "client":
                found.append(Exchange(request, tuple(reads), ended))
                request, reads = b"", []
        elif line["from"] == "client":
            if reads:
                found.append(Exchange(request, tuple(reads), ""))
                request, reads = b"", []
            request += line["bytes"].encode("latin-1")
        else:
            reads.append(line["bytes"].encode("latin-1"))
    if reads:  # the client went away: where that cut the answer off, nothing more came
        found.append(Exchange(request, tuple(reads), "" if _whole(b"".join(reads)) else "FIN"))
    return tuple(found)


def _whole(reply: bytes) -> bool:
    chunked = b"chunked" in reply.partition(b"\r\n\r\n")[0].lower()
    return not chunked or reply.endswith(b"0\r\n\r\n")


def names(server: str) -> list[str]:
    """Every connection of a server."""
    return sorted(path.stem for path in (TRANSCRIPTS / server / "http").glob("*.jsonl"))


@dataclass(frozen=True, slots=True)
class Meant:
    """What one recorded answer means: a row of tests/transcripts/http_answers.csv.

    events: that carry a token; first: which of all events is the first of them, from 1.
    prompt, cached: tokens, None where the server does not say. model: "" where none is named.
    """

    server: str
    name: str
    exchange: int
    spoken: str
    stream: bool
    outcome: RequestOutcome
    tokens: int
    counted_by: TokenSource
    events: int
    first: int | None
    finish_reason: str | None
    prompt: int | None
    cached: int | None
    model: str
    tokens_told: bool
    first_told: bool

    @property
    def id(self) -> str:
        """For the list of tests."""
        return f"{self.server}/{self.name}#{self.exchange}"

    @property
    def recorded(self) -> Exchange:
        """The answer itself."""
        return connection(self.server, self.name)[self.exchange]


@cache
def meant() -> tuple[Meant, ...]:
    """Every answer to a request for one text."""
    return tuple(_rows())


def _rows() -> Iterator[Meant]:
    with (TRANSCRIPTS / "http_answers.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield Meant(
                server=row["server"],
                name=row["file"],
                exchange=int(row["exchange"]),
                spoken=row["api"],
                stream=row["stream"] == "1",
                outcome=RequestOutcome(row["outcome"]),
                tokens=int(row["tokens"]),
                counted_by=TokenSource(row["counted_by"]),
                events=int(row["events"]),
                first=int(row["first"]) if row["first"] else None,
                finish_reason=row["finish"] or None,
                prompt=int(row["prompt"]) if row["prompt"] else None,
                cached=int(row["cached"]) if row["cached"] else None,
                model=row["model"],
                tokens_told=row["tokens_told"] == "1",
                first_told=row["first_told"] == "1",
            )

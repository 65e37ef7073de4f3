"""Connections as real servers kept and ended them, recorded on 2026-11-22.

tests/transcripts/<server>/http/<name>.jsonl is one connection: a line for each read, in order, with
the bytes and who sent them, or who ended it. llama.cpp's server is that of the package xllamacpp;
TGI's router was built from its tag.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.asks import CHAT
from tests.drive.faulty_server import FaultyServer
from tests.drive.loads import MS, closed, outcomes, prepared, send_prepared, timed, trial
from tgi_bench.dialects.dialect import Abilities
from tgi_bench.drive.control_requests import control_requests
from tgi_bench.drive.preparation import Prepared
from tgi_bench.load_observation import RequestObservation, RequestOutcome
from tgi_bench.trials.load import ClosedLoop, LoadTrial

TRANSCRIPTS = Path(__file__).parent.parent / "transcripts"
LLAMACPP = TRANSCRIPTS / "llamacpp-xllamacpp-2026.10.11549" / "http"
TGI = TRANSCRIPTS / "tgi-3.3.7" / "http"


@dataclass(frozen=True, slots=True)
class Answer:
    """reads: as they came, with when after the request in s. ends: whether the server then ended
    the connection by itself."""

    reads: tuple[tuple[float, bytes], ...]
    ends: bool

    @property
    def pieces(self) -> tuple[bytes, ...]:
        return tuple(piece for _, piece in self.reads)


def answers(path: Path) -> list[Answer]:
    """One for each request that was answered."""
    lines: list[dict[str, Any]] = list(map(json.loads, path.read_text("utf-8").splitlines()[1:]))
    found: list[Answer] = []
    reads: list[tuple[float, bytes]] = []
    asked_s = 0.0
    for line in [*lines, {"from": "client", "t": 0.0, "bytes": ""}]:
        if line["from"] == "server" and "bytes" in line:
            reads.append((line["t"] - asked_s, line["bytes"].encode("latin-1")))
        elif reads:
            found.append(Answer(tuple(reads), line["from"] == "server"))
            reads = []
        if line["from"] == "client":
            asked_s = line["t"]
    return found


def ready(url: str, asked: LoadTrial, abilities: Abilities | None = None) -> Prepared:
    plain = prepared(url, asked)
    return plain if abilities is None else replace(plain, abilities=abilities)


@pytest.mark.parametrize("name", ["keepalive-two-streams-001", "keepalive-stream-then-plain-001"])
@pytest.mark.parametrize("concurrency", [1, 4])
def test_llamacpp_ends_each_streams_connection(name: str, concurrency: int) -> None:
    """It announces Keep-Alive; FIN comes 0.3 ms after the last chunk, and the next request on that
    connection is never answered."""
    (answer,) = answers(LLAMACPP / f"{name}.jsonl")
    assert answer.ends
    assert b"Keep-Alive: timeout=5" in b"".join(answer.pieces)
    with FaultyServer() as server:
        server.answers(answer.pieces, then_ends=True)
        stage, seen = send_prepared(ready(server.url, closed(24, concurrency), CHAT))
    assert outcomes(seen) == {RequestOutcome.OK}, {one.reason for one in seen}
    assert {one.output_tokens for one in seen} == {5}
    again = sum(one.new_connection for one in seen)
    assert again == stage.client.connections_reopened == 24 - concurrency


@pytest.mark.parametrize(
    ("name", "stream", "abilities", "status"),
    [
        ("generate_stream-overloaded", True, None, 200),
        ("chat-stream-overloaded", True, CHAT, 200),
        ("generate-overloaded", False, None, 429),
    ],
)
def test_tgi_refuses_at_once(
    name: str, stream: bool, abilities: Abilities | None, status: int
) -> None:
    """In a 200 where the answer is streamed."""
    (answer,) = answers(TGI / f"{name}.jsonl")
    asked = trial(ClosedLoop(2), timed(200 * MS), stream=stream)
    with FaultyServer() as server:
        server.answers(answer.pieces, then_ends=False)
        stage, seen = send_prepared(ready(server.url, asked, abilities))
    assert outcomes(seen) == {RequestOutcome.OVERLOADED}
    assert {one.status for one in seen} == {status}
    assert 2 <= len(seen) <= 2 * 5  # 10, 20, 40, 80, 160 ms
    assert stage.conditions.waits.count == len(seen)


def test_tgi_holds_back_the_first_event_of_a_kept_alive_connection() -> None:
    """Of two requests on one connection: the first one's events came as they were made; the
    second one's all together, 50 ms after the head, which was acknowledged late."""
    first, second = answers(TGI / "kept-alive-two-requests.jsonl")
    assert len(first.reads) == 5
    assert [piece.count(b"data:") for piece in second.pieces] == [0, 4]
    assert second.reads[1][0] - second.reads[0][0] > 0.04
    # The same pieces, written by a server without TCP_NODELAY.
    with FaultyServer(nagle=True) as server:
        server.answers(first.pieces, then_ends=False)
        found = control_requests(prepared(server.url, closed(1, 1)))
        _, usual = send_prepared(prepared(server.url, closed(12, 1)))
        _, quick = send_prepared(prepared(server.url, closed(12, 1, quickack=True)))
    assert found is not None
    assert found.quickack_ttft_ns is not None
    assert found.ttft_ns > 30 * MS
    assert outcomes(usual) == outcomes(quick) == {RequestOutcome.OK}
    assert sorted(after(usual))[6] > 30 * MS
    assert sorted(after(quick))[6] < sorted(after(usual))[6]
    assert shared(quick) < shared(usual)


def after(seen: Sequence[RequestObservation]) -> list[int]:
    return [one.event_ns[0] - (one.sent_ns or 0) for one in seen]


def shared(seen: Sequence[RequestObservation]) -> int:
    return sum(one.shared_reads for one in seen)

"""A server on 127.0.0.1 that answers as a real one did: by method, path and whether a key came."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

TRANSCRIPTS = Path(__file__).parents[1] / "transcripts"
_NOT_RECORDED = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"


@dataclass
class Recorded:
    """url: where it answers. asked: each path, and the key that came with it, or None."""

    url: str
    answers: dict[str, list[bytes]]
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    def paths(self) -> list[str]:
        """What was asked for, in order."""
        return [path for path, _ in self.asked]


def answers_of(folder: str, names: Sequence[str]) -> dict[str, list[bytes]]:
    """Path -> answers, the first of each named connection."""
    found: dict[str, list[bytes]] = {}
    for name in names:
        file = TRANSCRIPTS / folder / "http" / f"{name}.jsonl"
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        said = {"client": b"", "server": b""}
        for line in lines[1:]:
            if "bytes" in line:
                said[line["from"]] += line["bytes"].encode("latin-1")
        found.setdefault(said["client"].split(b" ", 2)[1].decode(), []).append(said["server"])
    return found


@contextmanager
def recorded(folder: str, *names: str) -> Iterator[Recorded]:
    """A server of the connections of those names: several answers to a path come one after the
    other, the last again and again; what was not recorded is 404."""
    with answering(answers_of(folder, names)) as server:
        yield server


@contextmanager
def answering(answers: dict[str, list[bytes]]) -> Iterator[Recorded]:
    """The same, of bytes that are given."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            server.asked.append((self.path, self.headers["Authorization"]))
            waiting = answers.get(self.path.partition("?")[0], [_NOT_RECORDED])
            reply = waiting[0] if len(waiting) == 1 else waiting.pop(0)
            self.wfile.write(reply)
            self.close_connection = b"\r\nconnection: close" in reply.lower()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server = Recorded(f"http://127.0.0.1:{http.server_port}", answers)
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()

"""A server of the OpenAI dialect that answers nothing, not even /health, without its key."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.dialects.fake_engines import Engine


@dataclass
class Locked:
    """header, value: what must come with everything. asked: paths, and whether the key came."""

    header: str
    value: str
    url: str = ""
    asked: list[tuple[str, bool]] = field(default_factory=list)


@contextmanager
def locked(header: str, value: str) -> Iterator[Locked]:
    """One under its key."""
    engine = Engine(gets={"/health": {}, "/version": {"version": "0.32.0"}, "/metrics": {}})
    server = Locked(header, value)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # or the client waits for each body as long as TCP lets it

        def do_GET(self) -> None:
            self.answer(*(engine.get(self.path.partition("?")[0]) if self.may() else NO_KEY))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self.answer(*(engine.post(self.path, body) if self.may() else NO_KEY))

        def may(self) -> bool:
            came = self.headers[server.header] == server.value
            server.asked.append((self.path.partition("?")[0], came))
            return came

        def answer(self, status: int, said: object) -> None:
            events = [f"data: {json.dumps(e)}\n\n" for e in said] if isinstance(said, list) else []
            body = "".join([*events, "data: [DONE]\n\n"]) if events else json.dumps(said)
            self.send_response(status)
            kind = "text/event-stream" if events else "application/json"
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as found:
        server.url = f"http://127.0.0.1:{found.server_port}"
        thread = threading.Thread(target=found.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            found.shutdown()
            thread.join()


NO_KEY = (401, {"error": "Unauthorized"})

"""Run as a script: a server of the OpenAI dialect that takes any engine's arguments.

It prints them as JSON, is unhealthy for its first two answers, and serves one model.
"""

from __future__ import annotations

import http.server
import json
import os
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    asked = 0

    def do_GET(self) -> None:
        if self.path == "/health":
            Handler.asked += 1
            self.answer(200 if Handler.asked > 2 else 503, b"")
        elif self.path == "/v1/models" and self.may():
            self.answer(200, b'{"object": "list", "data": [{"id": "served-name"}]}')
        else:
            self.answer(404, b"{}")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path != "/v1/completions" or not self.may():
            self.answer(401, b'{"error": "no key"}')
        elif body["model"] != "served-name" or body["max_tokens"] != 1:
            self.answer(404, b'{"error": "no such model"}')
        else:
            self.answer(200, b'{"choices": [{"text": "a"}]}')

    def may(self) -> bool:
        key = os.environ.get("FAKE_KEY") or os.environ.get("VLLM_API_KEY")
        return key is None or self.headers["Authorization"] == f"Bearer {key}"

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    words = sys.argv[1:]
    print("Loading safetensors checkpoint shards:  50% Completed | 1/2", flush=True)
    print(json.dumps(words), flush=True)
    address = (words[words.index("--host") + 1], int(words[words.index("--port") + 1]))
    http.server.HTTPServer(address, Handler).serve_forever()


if __name__ == "__main__":
    main()

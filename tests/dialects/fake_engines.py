"""Servers that answer as vLLM, SGLang, llama.cpp and others do, as far as questions before a load
go. Its tokenizer: a token a word, but words of eight letters or more are two, and <s> is one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.dialects.recorded_http import Exchange
from tests.drive.http_peer import Asked
from tests.drive.replayer import Replayer


@dataclass
class Engine:
    """What it does. refuses: keys of a body that give 400. stream_ends: False: no usage chunk.

    cuts: truncate_prompt_tokens works. template: tokens that chat adds. statuses: of a path.
    """

    owner: str = "vllm"
    models: tuple[str, ...] = ("served",)
    gets: dict[str, object] = field(default_factory=dict)
    refuses: frozenset[str] = frozenset()
    usage: bool = True
    cuts: bool = False
    template: int = 5
    counts: bool = True
    statuses: dict[str, int] = field(default_factory=dict)
    key: str | None = None
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def tokens(self, text: str) -> int:
        return 1 + sum(2 if len(word) >= 8 else 1 for word in text.split())

    def get(self, path: str) -> tuple[int, object]:
        if path == "/v1/models" and self.models:
            entries = [
                {"id": name, "owned_by": self.owner, "max_model_len": 100} for name in self.models
            ]
            return 200, {"object": "list", "data": entries}
        return (200, self.gets[path]) if path in self.gets else (404, {"detail": "Not Found"})

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, object]:
        """The second: JSON, or a list of events."""
        self.asked.append((path, body))
        if path in self.statuses:
            return self.statuses[path], {"error": f"status {self.statuses[path]}"}
        if path == "/tokenize" and self.counts:
            text = body["content"] if self.owner == "llamacpp" else body["prompt"]
            count = self.tokens(text)
            if self.owner == "llamacpp":
                return 200, {"tokens": list(range(count))}
            return 200, {"count": count, "max_model_len": 100, "tokens": list(range(count))}
        if path not in ("/v1/completions", "/v1/chat/completions"):
            return 404, {"detail": "Not Found"}
        wrong = self.refuses & body.keys()
        if wrong:
            return 400, {"error": {"message": f"Unrecognized: {sorted(wrong)[0]}", "code": 400}}
        return 200, self.generated(path, body)

    def generated(self, path: str, body: dict[str, Any]) -> object:
        chat = path.endswith("chat/completions")
        text = body["messages"][-1]["content"] if chat else body["prompt"]
        prompt = self.tokens(text) + (self.template if chat else 0)
        if self.cuts and "truncate_prompt_tokens" in body:
            prompt = min(prompt, body["truncate_prompt_tokens"])
        usage = {"prompt_tokens": prompt, "completion_tokens": 1}
        part = {"content": " t"}
        if not body["stream"]:
            choice = {"message": part} if chat else {"text": " t"}
            whole: dict[str, object] = {"choices": [choice | {"finish_reason": "length"}]}
            return whole | ({"usage": usage} if self.usage else {})
        choice = {"delta": part} if chat else {"text": " t"}
        events: list[object] = [{"choices": [choice | {"finish_reason": "length"}]}]
        if self.usage and body.get("stream_options", {}).get("include_usage"):
            events.append({"choices": [], "usage": usage})
        return events


@contextmanager
def serve(engine: Engine) -> Iterator[str]:
    """Its URL."""

    def pick(asked: Asked) -> Exchange:
        if asked.method == "GET":
            status, said = engine.get(asked.path)
        elif engine.key and asked.headers.get("authorization") != f"Bearer {engine.key}":
            status, said = 401, {"error": "Unauthorized"}
        else:
            status, said = engine.post(asked.path, asked.body)
        kind, body = "application/json", json.dumps(said)
        if isinstance(said, list):
            kind = "text/event-stream"
            body = "".join(f"data: {json.dumps(event)}\n\n" for event in said) + "data: [DONE]\n\n"
        head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}"
        return Exchange(b"", (f"{head}\r\n\r\n{body}".encode(),), "")

    with Replayer(pick) as server:
        yield server.url

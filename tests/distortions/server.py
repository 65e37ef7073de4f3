"""A scripted HTTP server in a process of its own, so that its times are not the client's.

with serving(Script(held=-1)) as url: ...
"""

from __future__ import annotations

import asyncio
import json
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.distortions.answers import Asked, events, whole
from tests.distortions.script import Script

_LOAD = b"x-request-id"
"""A header of the requests of a load, and of no other."""
_APART_S = 0.0005
_STREAM = "text/event-stream"
_Reply = tuple[str, object]
"""Status, and what is said as JSON."""


@dataclass(slots=True)
class _Served:
    """A script on its way. began_s: of the loop's clock; None until the load's first request."""

    script: Script
    began_s: float | None = None
    number: int = 0
    flying: int = 0
    texts: set[str] = field(default_factory=set)
    prompt_tokens: int = 0
    cached_tokens: int = 0

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.lower().split(b"\r\n")
                sizes = [line.split(b":")[1] for line in lines if line.startswith(b"content-len")]
                body = await reader.readexactly(int(sizes[0])) if sizes else b""
                if self.began_s is None and any(line.startswith(_LOAD) for line in lines):
                    self.began_s = asyncio.get_running_loop().time()
                _, path, _ = head.decode().split(" ", 2)
                answered = await self.answer(path, json.loads(body) if body else None, writer)
                if answered and self.script.closes:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has ended, or ends what it does not want any more
        finally:
            writer.close()

    async def answer(self, path: str, body: object, writer: asyncio.StreamWriter) -> bool:
        """Whether it was one to a request for a text."""
        if not isinstance(body, dict) or path == "/tokenize":
            status, said = self.about(path, body)
            await self.say(writer, status, said)
            return False
        asked = Asked(path, body, self.number, False)
        asked = Asked(path, body, self.number, asked.text in self.texts)
        if not self.has_route(asked):
            await self.say(writer, "404 Not Found", {"detail": "Not Found"})
            return False
        self.number += 1
        if self.script.slots is not None and self.flying >= self.script.slots:
            await self.say(writer, "503 Service Unavailable", {"error": "overloaded"})
        elif self.script.failing and self.number % self.script.failing == 0:
            await self.say(writer, "500 Internal Server Error", {"error": "it broke"})
        else:
            self.texts.add(asked.text)
            self.flying += 1
            try:
                await self.generate(asked, writer)
            finally:
                self.flying -= 1
        return True

    def has_route(self, asked: Asked) -> bool:
        if self.script.engine == "tgi":
            return asked.path in ("/generate", "/generate_stream", "/v1/chat/completions")
        return asked.path in ("/v1/completions", "/v1/chat/completions")

    async def generate(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        now_s = self.now_s()
        if not asked.stream:
            event = whole(self.script, asked, now_s)
            await self.until(event.due_s)
            await self.say(writer, "200 OK", event.data)
            return
        writer.write(self.head("200 OK", _STREAM, "transfer-encoding: chunked"))
        before_s = 0.0
        for event in events(self.script, asked, now_s):
            if event.due_s > self.now_s():
                await self.until(event.due_s)
            elif event.due_s == before_s:
                await asyncio.sleep(_APART_S)
            before_s = event.due_s
            writer.write(b"%x\r\n%b\r\n" % (len(event.data), event.data))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    def now_s(self) -> float:
        """Since the load began; before, of a clock that no Pace knows."""
        if self.began_s is None:
            return -1e9 + asyncio.get_running_loop().time()
        return asyncio.get_running_loop().time() - self.began_s

    async def until(self, due_s: float) -> None:
        await asyncio.sleep(max(0.0, due_s - self.now_s()))

    async def say(self, writer: asyncio.StreamWriter, status: str, said: object) -> None:
        body = said if isinstance(said, bytes) else json.dumps(said).encode()
        kind = "text/plain" if isinstance(said, str) else "application/json"
        if isinstance(said, str):
            body = said.encode()
        writer.write(self.head(status, kind, f"content-length: {len(body)}") + body)
        await writer.drain()

    def head(self, status: str, kind: str, *more: str) -> bytes:
        own = ("server: llama.cpp",) if self.script.engine == "llamacpp" else ()
        lines = (f"HTTP/1.1 {status}", f"content-type: {kind}", *own, *more, "", "")
        return "\r\n".join(lines).encode()

    def about(self, path: str, body: object) -> _Reply:
        engine, model = self.script.engine, self.script.model
        if path == "/tokenize" and isinstance(body, dict) and engine in ("tgi", "vllm", "llamacpp"):
            text = body.get("inputs") or body.get("prompt") or body.get("content") or ""
            tokens = list(range(len(str(text).split())))
            if engine == "tgi":
                return "200 OK", [{"id": i, "text": "t", "start": 0, "stop": 1} for i in tokens]
            return "200 OK", {"count": len(tokens), "tokens": tokens, "max_model_len": 8192}
        said: dict[str, object] = {}
        if engine == "tgi":
            said["/info"] = {
                "model_id": model,
                "version": self.script.version or "3.3.7",
                "max_input_tokens": 4096,
                "max_total_tokens": 8192,
            }
            said["/health"] = ""
        else:
            owner = engine or "somebody"
            said["/v1/models"] = {"object": "list", "data": [{"id": model, "owned_by": owner}]}
            said["/health"] = {"status": "ok"}
        if engine == "vllm":
            said["/version"] = {"version": self.script.version or "0.11.0"}
        if engine == "llamacpp":
            said["/props"] = {
                "default_generation_settings": {"n_ctx": 8192},
                "model_path": model,
                "build_info": "b1-unknown",
            }
        return ("200 OK", said[path]) if path in said else ("404 Not Found", {"detail": "no"})


async def _serve(script: Script) -> None:
    server = await asyncio.start_server(_Served(script).connection, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)  # until its end


def main() -> None:
    """In the server's process: the script comes first, then nothing until it is to end."""
    asyncio.run(_serve(pickle.load(sys.stdin.buffer)))


@contextmanager
def serving(script: Script) -> Iterator[str]:
    """Its URL."""
    words = [sys.executable, "-c", "from tests.distortions.server import main; main()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(pickle.dumps(script))
        process.stdin.flush()
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()
            deadline = time.monotonic() + 5
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
            process.kill()

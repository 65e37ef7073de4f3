"""The whole embedded server with a real model, over gRPC and HTTP: its tokens are generate's."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import httpx
import pytest

from tests.torch_engine.needs_torch import skip_without_torch

skip_without_torch()

from tests.torch_engine.text_files import write_model  # noqa: E402
from tests.torch_engine.tiny import expected, spec, write_config  # noqa: E402
from tgi_bench.torch_engine.loading import load  # noqa: E402
from tgi_bench.torch_engine.model import LoadedModel  # noqa: E402
from tgi_bench.wire import codec  # noqa: E402
from tgi_bench.wire.messages import (  # noqa: E402
    Batch,
    Protocol,
    Request,
    StepReply,
    Stopping,
    TokenChoice,
)

START_S = 120.0
_LISTENING = re.compile(r"Listening on (\S+)")
_SMALL = ("--max-input-length", "64", "--max-total-tokens", "96")
_LIMITS = (*_SMALL, "--max-batch-prefill-tokens", "128")
pytestmark = pytest.mark.xdist_group("one transformers server")


@dataclass(frozen=True, slots=True)
class Served:
    """A server that is ready."""

    url: str
    socket: str
    process: subprocess.Popen[str]
    lines: list[str]


@contextmanager
def serve(folder: Path, version: str, *words: str) -> Iterator[Served]:
    """`tgi-bench serve --engine transformers` in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="tb") as sockets:
        stem = f"{sockets}/s"
        command = [sys.executable, "-m", "tgi_bench.cli.main", "serve", "--tgi-version", version]
        command += ["--engine", "transformers", "--device", "cpu", "--random-weights"]
        command += ["--model-id", str(folder), "--port", "0", "--shard-uds-path", stem]
        process = subprocess.Popen(
            [*command, *_LIMITS, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        lines: list[str] = []
        try:
            yield Served(_url(process, lines), f"{stem}-0", process, lines)
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
        assert not list(Path(sockets).iterdir())


def _url(process: subprocess.Popen[str], lines: list[str]) -> str:
    assert process.stdout is not None
    # A reader that waits for a line is woken by the end of the process.
    late = threading.Timer(START_S, process.kill)
    late.start()
    try:
        for line in process.stdout:
            lines.append(line)
            if found := _LISTENING.search(line):
                return f"http://{found[1]}"
    finally:
        late.cancel()
    raise AssertionError("".join(lines))


@dataclass(frozen=True, slots=True)
class Shard:
    """The gRPC side of a server."""

    channel: grpc.Channel
    protocol: Protocol

    def call(self, rpc: str, payload: bytes) -> bytes:
        method = self.channel.unary_unary(
            self.protocol.method(rpc), request_serializer=bytes, response_deserializer=bytes
        )
        reply: bytes = method(payload, timeout=60)
        return reply

    def prefill(self, batch: Batch) -> StepReply:
        payload = codec.encode_prefill(self.protocol, batch)
        return codec.decode_step_reply(self.protocol, self.call("Prefill", payload))

    def decode(self, *replies: StepReply) -> StepReply:
        cached = [reply.cached for reply in replies if reply.cached is not None]
        payload = codec.encode_decode(self.protocol, cached)
        return codec.decode_step_reply(self.protocol, self.call("Decode", payload))


@contextmanager
def shard_of(served: Served, protocol: Protocol = Protocol.V3) -> Iterator[Shard]:
    with grpc.insecure_channel(f"unix:{served.socket}") as channel:
        yield Shard(channel, protocol)


def request(request_id: int, words: int, new: int) -> Request:
    text = " ".join(f"w{request_id}x{n}" for n in range(words))
    stopping = Stopping(new, ignore_eos_token=True)
    return Request(request_id, text, 64, TokenChoice(), stopping)


def batch(batch_id: int, *requests: Request) -> Batch:
    return Batch(batch_id, requests, 1000, len(requests))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    with serve(folder, "3.3.7") as running:
        yield running


@pytest.fixture(scope="module")
def model(folder: Path) -> LoadedModel:
    return load(spec(folder))


def test_tokens_over_grpc(served: Served, model: LoadedModel) -> None:
    asked = [request(1, 3, 6), request(2, 9, 3), request(3, 1, 7)]
    tokens: dict[int, list[int]] = {r.id: [] for r in asked}
    ended: set[int] = set()

    def take(reply: StepReply) -> StepReply:
        for generation in reply.generations:
            if generation.request_id in ended:
                continue  # nobody filters it out
            tokens[generation.request_id] += [token.id for token in generation.tokens]
            if generation.generated_text is not None:
                ended.add(generation.request_id)
        return reply

    with shard_of(served) as shard:
        first = take(shard.prefill(batch(2**40, *asked[:2])))
        joined = take(shard.decode(first, take(shard.prefill(batch(2**40 + 1, asked[2])))))
        while joined.cached is not None:
            joined = take(shard.decode(joined))
    for one in asked:
        ids = list(model.tokenizer.ids(one.text))
        assert tokens[one.id] == expected(model, ids, one.stopping.max_new_tokens)


def test_tokens_over_http_of_many_at_once(served: Served, model: LoadedModel) -> None:
    """They arrive while others are decoded: joined, and filtered as they end or leave."""
    rng = random.Random(0)
    texts = ["hello wor" + "l" * rng.randrange(40) + str(n) for n in range(24)]
    wanted = [rng.randint(1, 20) for _ in texts]

    def ask(at: int) -> dict[str, object]:
        time.sleep(at * 0.004)
        parameters = {"max_new_tokens": wanted[at], "details": True}
        body = {"inputs": texts[at], "parameters": parameters}
        answer = httpx.post(f"{served.url}/generate", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        found: dict[str, object] = answer.json()
        return found

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(len(texts))))
    for text, new, answer in zip(texts, wanted, answers, strict=True):
        details = answer["details"]
        assert isinstance(details, dict)
        want = expected(model, list(model.tokenizer.ids(text)), new)
        ends = [at for at, token in enumerate(want[:-1]) if token in model.end_ids]
        told = [token["id"] for token in details["tokens"]]
        assert told == (want[: ends[0] + 1] if ends else want)
        assert details["finish_reason"] == ("eos_token" if ends else "length")
        assert "".join(t["text"] for t in details["tokens"] if not t["special"])
    metrics = httpx.get(f"{served.url}/metrics").text
    joins = re.findall(r"^tgi_batch_concat\S* (\d+)", metrics, re.MULTILINE)
    assert sum(map(int, joins)) > 0


def test_a_stream(served: Served, model: LoadedModel) -> None:
    body = {"inputs": "hello", "parameters": {"max_new_tokens": 5}}
    ids: list[int] = []
    with httpx.stream("POST", f"{served.url}/generate_stream", json=body, timeout=60) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: "):
                ids.append(json.loads(line.removeprefix("data: "))["token"]["id"])
        assert answer.headers["x-compute-type"] == "transformers"
    want = expected(model, list(model.tokenizer.ids("hello")), 5)
    assert ids == want[: len(ids)]
    assert len(ids) == 5 or ids[-1] in model.end_ids


def test_what_it_says_of_itself(served: Served, model: LoadedModel) -> None:
    info = httpx.get(f"{served.url}/info").json()
    assert "simulated" not in info
    assert (info["router"], info["docker_label"]) == ("transformers", "transformers")
    spans = httpx.post(f"{served.url}/tokenize", json={"inputs": "hello wo"}).json()
    assert [span["id"] for span in spans] == list(model.tokenizer.ids("hello wo"))
    log = "".join(served.lines)
    assert "engine transformers, random weights" in log
    assert "LlamaForCausalLM" in log
    assert "simulated" not in log


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large")
    return write_config(folder, "llama", hidden_size=64, intermediate_size=1 << 16)


@pytest.mark.parametrize(("version", "survives"), [("0.9.4", True), ("3.3.7", False)])
def test_out_of_memory_is_told_as_tgi_tells_it(large: Path, version: str, survives: bool) -> None:
    protocol = Protocol.V1 if survives else Protocol.V3
    with (
        serve(large, version, "--cuda-memory-fraction", "0.02") as served,
        shard_of(served, protocol) as shard,
    ):
        with pytest.raises(grpc.RpcError) as caught:
            shard.prefill(batch(9, *(request(n, 60, 4) for n in range(600))))
        error = caught.value
        assert isinstance(error, grpc.Call)
        assert error.code() is grpc.StatusCode.INTERNAL
        assert (error.details() or "").startswith("CPU out of memory. Tried to allocate ")
        if survives:
            assert len(shard.prefill(batch(9, request(1, 4, 4))).generations) == 1
        else:
            assert served.process.wait(30) == 1

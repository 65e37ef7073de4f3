"""What our gRPC client adds to a step, against a bare grpcio stub that sends the same message.

Both drive the same embedded server with one rank, in turn within each round, so that the
machine's mood is the same for both. Overhead is the step's time at the client minus the
server's own total_ns.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import grpc

from tests.bench.figures import Figure
from tests.launch.deployments import launch
from tgi_bench.drive.ranks import Ranks
from tgi_bench.launch.launcher import LaunchOptions
from tgi_bench.plan.experiment_text import load_plan
from tgi_bench.plan.prompts import batch_prompts
from tgi_bench.wire import codec, generate_v3_pb2
from tgi_bench.wire import messages as m
from tgi_bench.wire.generate_v3_pb2_grpc import TextGenerationServiceStub

ROUNDS = 60
BATCH = 4
TOKENS = 128
NEW = 8
EXPERIMENT = """
experiment: client-overhead
model: bigscience/bloomz-1b1
server: {launcher: embedded, version: 3.3.7, embedded: {accelerator: H100-SXM}}
batches: {sequence_length: 128, decode_length: 8, batch_size: 4, runs: 1}
"""


def run() -> tuple[Figure, ...]:
    """The ratio of the two medians over all prefill and decode steps."""
    _, plan = load_plan(EXPERIMENT, "client-overhead")
    with tempfile.TemporaryDirectory() as folder:
        options = LaunchOptions(Path(folder), "bench")
        with launch(plan.deployments[0], options) as server:
            socket = server.endpoint.master_socket
            assert socket is not None
            with Ranks.connect(socket) as ranks, _bare_channel(socket) as channel:
                ours, bare = _rounds(ranks, _stub(channel))
    ratio = statistics.median(ours) / statistics.median(bare)
    detail = (
        f"p50 {statistics.median(ours) / 1e3:.0f} us against {statistics.median(bare) / 1e3:.0f} "
        f"us, {len(ours)} steps each"
    )
    name = "client overhead of a gRPC step / that of a bare grpcio stub"
    return (Figure(name, 1.15, ratio, "x", detail),)


def _bare_channel(socket: Path) -> grpc.Channel:
    return grpc.insecure_channel(f"unix:{socket}")


def _stub(channel: grpc.Channel) -> TextGenerationServiceStub:
    return TextGenerationServiceStub(channel)  # type: ignore[no-untyped-call]  # generated


def _rounds(ranks: Ranks, stub: TextGenerationServiceStub) -> tuple[list[int], list[int]]:
    ours: list[int] = []
    bare: list[int] = []
    for index in range(ROUNDS):
        batch = _batch(index)
        pair = [(_ours, ours), (_bare, bare)]
        for measure, overheads in pair if index % 2 else reversed(pair):
            seen = measure(ranks, stub, batch)
            if index >= ROUNDS // 10:  # the first rounds warm both up
                overheads.extend(seen)
    return ours, bare


def _ours(ranks: Ranks, _: TextGenerationServiceStub, batch: m.Batch) -> list[int]:
    overheads = []
    reply = ranks.prefill(codec.encode_prefill(ranks.protocol, batch), 30.0)
    while True:
        step = codec.decode_step_reply(ranks.protocol, reply.payloads[0])
        if step.durations is None:
            raise RuntimeError("the embedded server sent no durations")
        overheads.append(reply.ended_ns - reply.sent_ns - step.durations.total_ns)
        if step.cached is None:
            return overheads
        reply = ranks.decode(codec.encode_decode(ranks.protocol, [step.cached]), 30.0)


def _bare(ranks: Ranks, stub: TextGenerationServiceStub, batch: m.Batch) -> list[int]:
    overheads = []
    encoded = codec.encode_prefill(ranks.protocol, batch)
    prefill = generate_v3_pb2.PrefillRequest.FromString(encoded)
    sent_ns = time.monotonic_ns()
    reply = stub.Prefill(prefill, timeout=30.0)
    overheads.append(time.monotonic_ns() - sent_ns - reply.total_ns)
    while reply.HasField("batch"):
        decode = generate_v3_pb2.DecodeRequest(batches=[reply.batch])
        sent_ns = time.monotonic_ns()
        reply = stub.Decode(decode, timeout=30.0)
        overheads.append(time.monotonic_ns() - sent_ns - reply.total_ns)
    return overheads


def _batch(index: int) -> m.Batch:
    prompts = batch_prompts(0, f"round-{index}", BATCH, TOKENS)
    stopping = m.Stopping(max_new_tokens=NEW, ignore_eos_token=True)
    requests = tuple(
        m.Request(i, text, TOKENS, m.TokenChoice(), stopping) for i, text in enumerate(prompts)
    )
    return m.Batch(id=1 + index, requests=requests, max_tokens=BATCH * (TOKENS + NEW), size=BATCH)

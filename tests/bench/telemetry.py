"""What telemetry costs: of a core, and of a decode step's latency.

The sampler's process runs as in a sweep, with a fake NVML of eight GPUs where this machine has no
device of its own. Steps with and without it take turns on one embedded server.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.figures import Figure
from tests.launch.deployments import launch
from tgi_bench.devices.observation import Telemetry
from tgi_bench.devices.take import POWERCAP, PROGRAM, Take, Whose, why_nothing_to_sample
from tgi_bench.devices.watch import DeviceSampling
from tgi_bench.drive.ranks import Ranks
from tgi_bench.launch.launcher import LaunchOptions
from tgi_bench.plan.experiment_text import load_plan
from tgi_bench.plan.prompts import batch_prompts
from tgi_bench.wire import codec
from tgi_bench.wire import messages as m

SECONDS = 15
ROUNDS = 40
NEW = 64
TOKENS = 128
FAKE = (sys.executable, "-m", "tests.bench.recorded_sampler")
EXPERIMENT = """
experiment: telemetry
model: bigscience/bloomz-1b1
server: {launcher: embedded, version: 3.3.7, embedded: {accelerator: H100-SXM}}
batches: {sequence_length: 128, decode_length: 64, batch_size: 1, runs: 1}
"""


def run() -> tuple[Figure, ...]:
    """The sampler's share of a core in percent, and the ratio of median decode steps."""
    with _sampling() as (sampling, what):
        sampling.begin()
        time.sleep(SECONDS)
        return (_share(sampling.end(), what), _latency(sampling, what))


@contextmanager
def _sampling() -> Iterator[tuple[DeviceSampling, str]]:
    """A sampler with devices, and what these are."""
    fake = bool(why_nothing_to_sample())
    sampling = DeviceSampling.start(FAKE if fake else PROGRAM, POWERCAP)
    try:
        sampling.take(Take(None, 8, True, Whose.CHILDREN, (os.getpid(),)))
        yield sampling, "fake NVML" if fake else "this machine's"
    finally:
        sampling.stop()


def _share(seen: Telemetry, what: str) -> Figure:
    if seen.cpu_ns is None or not seen.wall_ns or seen.period_ns is None:
        raise RuntimeError(f"nothing was sampled: {seen.absent}")
    detail = (
        f"{len(seen.devices)} devices ({what}), {len(seen.samples) // len(seen.devices)} samples "
        f"each, every {seen.period_ns / 1e6:.0f} ms at the end"
    )
    share = 100 * seen.cpu_ns / seen.wall_ns
    return Figure("telemetry's share of a core", 0.5, share, "%", detail)


def _latency(sampling: DeviceSampling, what: str) -> Figure:
    _, plan = load_plan(EXPERIMENT, "telemetry")
    with tempfile.TemporaryDirectory() as folder:
        options = LaunchOptions(Path(folder), "bench")
        with launch(plan.deployments[0], options) as server:
            socket = server.endpoint.master_socket
            assert socket is not None
            with Ranks.connect(socket) as ranks:
                sampled, alone = _rounds(ranks, sampling)
    on, off = statistics.median(sampled), statistics.median(alone)
    detail = f"p50 {on / 1e3:.0f} us against {off / 1e3:.0f} us, {len(alone)} steps each ({what})"
    return Figure("decode step with telemetry / without", 1.01, on / off, "x", detail)


def _rounds(ranks: Ranks, sampling: DeviceSampling) -> tuple[list[int], list[int]]:
    sampled: list[int] = []
    alone: list[int] = []
    for index in range(2 * ROUNDS):
        # In pairs with the order turned, so that drift is the same for both.
        with_it = index % 4 in (0, 3)
        if with_it:
            sampling.begin()
        latencies = _steps(ranks, index)
        if with_it:
            sampling.end()
        if index >= 4:  # the first rounds warm both up
            (sampled if with_it else alone).extend(latencies)
    return sampled, alone


def _steps(ranks: Ranks, index: int) -> list[int]:
    """Latencies of one batch's decode steps."""
    (prompt,) = batch_prompts(0, f"round-{index}", 1, TOKENS)
    stopping = m.Stopping(max_new_tokens=NEW, ignore_eos_token=True)
    request = m.Request(0, prompt, TOKENS, m.TokenChoice(), stopping)
    batch = m.Batch(id=1 + index, requests=(request,), max_tokens=TOKENS + NEW, size=1)
    reply = ranks.prefill(codec.encode_prefill(ranks.protocol, batch), 30.0)
    latencies = []
    while (cached := codec.decode_step_reply(ranks.protocol, reply.payloads[0]).cached) is not None:
        reply = ranks.decode(codec.encode_decode(ranks.protocol, [cached]), 30.0)
        latencies.append(reply.ended_ns - reply.sent_ns)
    return latencies

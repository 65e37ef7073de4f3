"""The load client's own error, against null servers: what `tgi-bench selfcheck` measures.

Goals are for two cores with the server on the same machine.
"""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from tests.bench.controls import bare_read_us, bare_sleep_late_ms
from tests.bench.figures import Figure
from tgi_bench.drive.load import run_load
from tgi_bench.selfcheck.loads import (
    CheckLoad,
    CheckResult,
    absorbed,
    check,
    held,
    null_server,
    open_loop,
    paced,
)
from tgi_bench.server.null.timing import StreamPace

SECONDS = 10.0
STARTS = 5
HELD = 5000
SLEEPS = 2000
_STOP_S = 30.0


def run() -> tuple[Figure, ...]:
    """The rows, each of a load of its own kind."""
    at_256 = check(paced(256, SECONDS), run_load)
    quick = check(acknowledged(paced(256, SECONDS)), run_load)
    at_512 = check(paced(512, SECONDS), run_load)
    instant = check(absorbed(SECONDS), run_load)
    opened = check(open_loop(SECONDS), run_load)
    return (
        Figure(
            "client CPU per token event, paced 20 ms, 256 streams",
            10.0,
            at_256.floor.cpu_ns_per_event / 1e3,
            "us",
            f"a bare loop of epoll and recvmsg: {bare_read_us(256, SECONDS / 2):.1f}; "
            f"{_detail(at_256)}",
        ),
        Figure(
            "the same with load.quickack",
            20.0,
            quick.floor.cpu_ns_per_event / 1e3,
            "us",
            f"{quick.floor.cpu_ns_per_event / at_256.floor.cpu_ns_per_event:.2f} times; "
            f"{_detail(quick)}",
        ),
        # A goal is a value not to pass: of events/s, the time that one takes.
        Figure(
            "time per token event, one worker, instant server, 64 streams",
            1e6 / 300e3,
            1e6 / instant.floor.events_per_s,
            "us",
            f"{instant.floor.events_per_s / 1e3:.0f} k events/s for 300 or more; "
            f"{_detail(instant)}",
        ),
        _itl(at_512),
        *_ttft(at_256),
        _lateness(opened),
        _first_byte(),
        *_held(check(held(HELD), run_load)),
    )


def acknowledged(load: CheckLoad) -> CheckLoad:
    """The same load with TCP_QUICKACK after each read."""
    return replace(load, trial=replace(load.trial, quickack=True))


def _detail(result: CheckResult) -> str:
    errors = result.errors
    stamps = "kernel" if result.floor.kernel_stamps else "user-space"
    wrong = errors.failed + errors.missing + errors.differing
    left = f", {wrong} requests failed or differ from the server's log" if wrong else ""
    return f"{result.floor.events} events, {errors.compared} requests, {stamps} stamps{left}"


def _itl(result: CheckResult) -> Figure:
    errors_ns = result.floor.itl_error_ns
    if errors_ns is None:
        raise RuntimeError("a paced load has given no ITL")
    name = "ITL error p99, 512 streams paced 20 ms"
    detail = f"p50 {errors_ns[0] / 1e3:.1f}, p90 {errors_ns[1] / 1e3:.1f}; {_detail(result)}"
    return Figure(name, 20.0, errors_ns[2] / 1e3, "us", detail)


def _ttft(result: CheckResult) -> tuple[Figure, Figure]:
    p50_ns, p90_ns, p99_ns = result.floor.ttft_error_ns
    detail = f"p90 {p90_ns / 1e6:.3f}; {_detail(result)}"
    return (
        Figure("TTFT error p50, 256 streams", 0.1, p50_ns / 1e6, "ms", detail),
        Figure("TTFT error p99, 256 streams", 2.0, p99_ns / 1e6, "ms", detail),
    )


def _lateness(result: CheckResult) -> Figure:
    late_ns = result.floor.start_lateness_ns
    if late_ns is None:
        raise RuntimeError("an open loop has given no start lateness")
    name = "start lateness p99, open loop, 200 requests/s"
    detail = f"p50 {late_ns[0] / 1e6:.3f}, p90 {late_ns[1] / 1e6:.3f}; {_detail(result)}"
    detail = f"a bare sleep: {bare_sleep_late_ms(SLEEPS):.3f}; {detail}"
    return Figure(name, 0.2, late_ns[2] / 1e6, "ms", detail)


def _held(result: CheckResult) -> tuple[Figure, Figure]:
    errors = result.errors
    wrong = errors.failed + errors.missing + errors.differing + HELD - result.most_in_flight
    if result.memory_bytes is None:
        raise RuntimeError("the memory of held streams was not watched")
    in_flight = f"{result.most_in_flight} in flight at once; {_detail(result)}"
    return (
        Figure(f"{HELD} streams held: not held or failed", 0, wrong, "", in_flight),
        Figure(
            f"{HELD} streams held: memory of all client processes",
            500,
            result.memory_bytes / 1e6,
            "MB",
            "sum of resident sizes at its highest",
        ),
    )


def _first_byte() -> Figure:
    took_s = [_start_to_first_byte_s() for _ in range(STARTS)]
    return Figure(
        "process start to first byte sent",
        0.4,
        statistics.median(took_s),
        "s",
        f"`tgi-bench load`, p50 of {STARTS}, highest {max(took_s):.3f}",
    )


def _start_to_first_byte_s() -> float:
    """From before the process is started to the arrival of its first request for tokens."""
    with tempfile.TemporaryDirectory() as folder, null_server(StreamPace(0, 0, 0)) as server:
        command = [str(Path(sys.executable).parent / "tgi-bench"), "load", server.url]
        words = ["--concurrency", "1", "--requests", "1", "--results", folder]
        began_ns = time.monotonic_ns()
        process = subprocess.Popen([*command, *words], stdout=subprocess.DEVNULL)
        try:
            process.wait(_STOP_S)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        # A load's own: control requests have no id.
        requests = [request for request in server.stop().requests if request.request_id]
        if not requests:
            raise RuntimeError(f"tgi-bench load ended with {process.returncode} and sent nothing")
        return (requests[0].arrival_ns - began_ns) / 1e9

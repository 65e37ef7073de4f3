"""What this machine and Python take by themselves: shown beside the load client's figures."""

from __future__ import annotations

import gc
import select
import socket
import time
from urllib.parse import urlsplit

from tgi_bench.kernel_stamps import ANCILLARY_BYTES, ask_for_stamps
from tgi_bench.selfcheck.loads import null_server
from tgi_bench.server.null.timing import StreamPace

_PACE_NS = 20_000_000
_SHARED_S = 0.00125
"""Reads wait for each other for as long as the load client lets them at this pace."""
_BODY = b'{"inputs":"a","parameters":{"max_new_tokens":128}}'
_LAST_CHUNK = b"0\r\n\r\n"


def bare_read_us(streams: int, seconds: float) -> float:
    """CPU of one event where nothing is kept, parsed or recorded: epoll, and recvmsg with its
    stamp, of as many streams as one loop reads."""
    head = f"POST /generate_stream HTTP/1.1\r\nhost: a\r\ncontent-length: {len(_BODY)}\r\n\r\n"
    request = head.encode() + _BODY
    with null_server(StreamPace(_PACE_NS, _PACE_NS, _PACE_NS)) as server, select.epoll() as poller:
        address = urlsplit(server.url)
        opened = [
            socket.create_connection((address.hostname, address.port)) for _ in range(streams)
        ]
        for one in opened:
            one.setblocking(False)
            ask_for_stamps(one)
            poller.register(one.fileno(), select.EPOLLIN)
        by_fd = {one.fileno(): (one.recvmsg, one) for one in opened}
        for one in opened:
            one.send(request)
        reads = 0
        gc.disable()
        try:
            cpu_ns, until = time.process_time_ns(), time.monotonic() + seconds
            while time.monotonic() < until:
                time.sleep(_SHARED_S)
                for fd, _ in poller.poll(1.0):
                    receive, one = by_fd[fd]
                    data, _, _, _ = receive(1 << 15, ANCILLARY_BYTES)
                    reads += 1
                    if data.endswith(_LAST_CHUNK):
                        one.send(request)
            cpu_ns = time.process_time_ns() - cpu_ns
        finally:
            gc.enable()
            for one in opened:
                one.close()
    return cpu_ns / reads / 1e3


def bare_sleep_late_ms(sleeps: int) -> float:
    """p99 of how late a sleep of 3 ms ends on this machine, nothing else being done."""
    late_ns = []
    for _ in range(sleeps):
        due_ns = time.monotonic_ns() + 3_000_000
        time.sleep((due_ns - time.monotonic_ns()) / 1e9)
        late_ns.append(time.monotonic_ns() - due_ns)
    return sorted(late_ns)[int(0.99 * sleeps)] / 1e6

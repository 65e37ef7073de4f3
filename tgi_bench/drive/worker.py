"""The process around `stream`: `python -m tgi_bench.drive.worker FD`, started by `workers`."""

from __future__ import annotations

import resource
import select
import signal
import socket
import sys

from tgi_bench.drive import channel as w
from tgi_bench.drive.channel import Channel, Message
from tgi_bench.drive.connection import IN, Poller
from tgi_bench.drive.stream import Worker


def main() -> None:
    """A worker process: its end of the channel is the file descriptor that it is given."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides what Ctrl-C means
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    _take_all_file_descriptors()
    _sleep_exactly()
    setup: w.WorkerSetup | None = None
    early: list[Message] = []
    while setup is None and not channel.closed:
        select.select([channel], [], [], 1.0)
        first, *early = channel.receive() or [()]
        if first:
            setup = w.WorkerSetup.of(first)
    if setup is None:
        return
    poller: Poller = select.epoll() if sys.platform == "linux" else select.poll()
    worker = Worker(setup, channel, poller)
    for message in early:
        worker.take(message)
    poller.register(channel.fileno(), IN)
    worker.run()


def _take_all_file_descriptors() -> None:
    """A stream is a file descriptor; shells give few by default and allow many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        return  # what is left is said by the request that finds none


def _sleep_exactly() -> None:
    """Linux rounds sleeps up by 50 us to save power."""
    try:
        with open("/proc/self/timerslack_ns", "w", encoding="ascii") as file:
            file.write("1")
    except OSError:
        return  # not Linux: sends are stamped, so their lateness shows


if __name__ == "__main__":
    main()

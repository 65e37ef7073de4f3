"""The worker processes of one stage: started, fed, heard and ended."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

from tgi_bench.drive import worker_messages as w
from tgi_bench.drive.channel import Channel, Message
from tgi_bench.errors import StepError
from tgi_bench.observation import Outcome

_READY_SLACK_S = 10.0
_END_S = 5.0


class WorkerProcess:
    """One worker and our end of its channel. done: what it said at its end."""

    def __init__(self, index: int) -> None:
        ours, theirs = socket.socketpair()
        self.index = index
        self.done: w.Done | None = None
        self.channel = Channel(ours)
        with theirs:
            # -P: a file of the working folder must not stand in for a module.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tgi_bench.drive.worker", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
            )

    def send(self, message: Message) -> None:
        """Say something to it."""
        self.channel.send(message)

    def end(self) -> None:
        """Close the channel, which ends it; kill it where it does not end."""
        self.channel.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def started(setups: Sequence[w.Setup]) -> Iterator[list[WorkerProcess]]:
    """A process for each setup, told of it; all of them are gone at the end."""
    workers = [WorkerProcess(index) for index in range(len(setups))]
    try:
        for worker, setup in zip(workers, setups, strict=True):
            worker.send(setup.message())
        yield workers
    finally:
        for worker in workers:
            worker.end()


def heard(
    workers: Sequence[WorkerProcess], timeout_s: float
) -> list[tuple[WorkerProcess, Message]]:
    """What they say within the timeout, as soon as one of them says something.

    Raises StepError where one ended without saying that it was done.
    """
    open_ones = [worker for worker in workers if worker.done is None]
    readable, _, _ = select.select(
        [worker.channel for worker in open_ones],
        [],
        [],
        timeout_s,
    )
    messages: list[tuple[WorkerProcess, Message]] = []
    for worker in open_ones:
        worker.channel.flush()
        if worker.channel not in readable:
            continue
        for message in worker.channel.receive():
            if message[0] == w.DONE:
                worker.done = w.Done.of(message)
            else:
                messages.append((worker, message))
        if worker.channel.closed and worker.done is None:
            raise StepError(Outcome.FAILED, "a worker process of the load client ended early")
    return messages


def wait_until_ready(workers: Sequence[WorkerProcess], timeout_s: float) -> list[w.Ready]:
    """What each said once its connections were open. Raises StepError."""
    ready: dict[int, w.Ready] = {}
    deadline = time.monotonic() + timeout_s + _READY_SLACK_S
    while len(ready) < len(workers):
        left = deadline - time.monotonic()
        if left <= 0:
            raise StepError(Outcome.TIMEOUT, "the workers of the load client did not get ready")
        for worker, message in heard(workers, left):
            if message[0] == w.READY:
                ready[worker.index] = w.Ready.of(message)
    return [ready[worker.index] for worker in workers]


def answers(message: Message) -> list[w.Answered]:
    """Of a message of that kind."""
    return cast(list[w.Answered], message[1])


def cores() -> int:
    """That this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

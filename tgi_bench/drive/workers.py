"""The worker processes of one stage: started, fed, heard and ended."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

from tgi_bench.drive import channel as w
from tgi_bench.drive.channel import Channel, Message
from tgi_bench.errors import StepError
from tgi_bench.observation import Outcome

_READY_SLACK_S = 10.0
_END_S = 5.0


class WorkerProcess:
    """One worker and our end of its channel. done: what it said at its end.

    lost: it ended without that, and all that it had said was heard.
    """

    def __init__(self, index: int) -> None:
        ours, theirs = socket.socketpair()
        self.index = index
        self.done: w.Done | None = None
        self.lost = False
        self.channel = Channel(ours)
        with theirs:
            # -P: a file of the working folder must not stand in for a module.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tgi_bench.drive.worker", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                process_group=0,  # a terminal's signals are for the sweep alone
            )

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def send(self, message: Message) -> None:
        """Say something to it."""
        self.channel.send(message)

    def how_it_ended(self) -> str:
        """Of one that said nothing before: in one sentence."""
        try:
            code = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            code = None
        what = "a worker process of the load client ended early"
        if code is None:
            return f"{what}: it says no more, and does not end"
        if code < 0:
            return f"{what}: by signal {signal.Signals(-code).name}"
        return f"{what}, with exit code {code}"

    def end(self) -> None:
        """Close the channel, which ends it; kill it where it does not end."""
        self.channel.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Ahead:
    """Workers started before it is known what for: meanwhile they import what they need."""

    def __init__(self, count: int) -> None:
        self._waiting = [WorkerProcess(index) for index in range(count)]

    def taken(self, count: int) -> list[WorkerProcess]:
        """So many workers: those that wait, and new ones where they are too few."""
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        for index, worker in enumerate(taken):
            worker.index = index
        return [*taken, *(WorkerProcess(index) for index in range(len(taken), count))]

    def end(self) -> None:
        """End those that nobody took."""
        waiting, self._waiting = self._waiting, []
        for worker in waiting:
            worker.end()


@contextmanager
def started_ahead(count: int) -> Iterator[Ahead]:
    """So many workers that wait; those that wait still are gone at the end."""
    ahead = Ahead(count)
    try:
        yield ahead
    finally:
        ahead.end()


@contextmanager
def started(
    setups: Sequence[w.WorkerSetup], ahead: Ahead | None = None
) -> Iterator[list[WorkerProcess]]:
    """A process for each setup, told of it; all of them are gone at the end."""
    workers = (ahead or Ahead(0)).taken(len(setups))
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

    Raises StepError where one was lost before: what the others have said is left to be heard.
    """
    open_ones = [worker for worker in workers if worker.done is None]
    for worker in open_ones:
        if worker.lost:
            raise StepError(Outcome.FAILED, worker.how_it_ended())
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
        worker.lost = worker.channel.closed and worker.done is None
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

"""Requests over HTTP: the hot path, which a worker process spends its life in.

A worker knows bytes and times only: requests come to it serialised, answers leave it undecoded.
Sends happen at absolute deadlines; arrivals are the kernel's receive timestamps, so nothing is
lost by reading a little later, many streams at a time.
"""

from __future__ import annotations

import gc
import heapq
import resource
import select
import sys
import time
from collections import deque
from dataclasses import astuple
from typing import cast

from tgi_bench.drive import channel as w
from tgi_bench.drive.channel import Channel, Message
from tgi_bench.drive.connection import Connection, FailedRequestError, Job, Poller, State
from tgi_bench.drive.pool import Pool
from tgi_bench.drive.receiver import Receiver
from tgi_bench.drive.refusal import SlotWaits
from tgi_bench.kernel_stamps import WallClock
from tgi_bench.load_observation import RequestOutcome

_MS = 1_000_000
_LEAD_NS = 300_000
"""Wake that long before a send's time, and spin: a sleep ends late by up to this."""
_SPARE_NS = 500_000
"""A chore is done, or a spare connection opened, only where no send is due that soon."""
_OVERDUE_NS = 2_000_000
"""By then a chore is done all the same."""
_HOUSEKEEPING_NS = 100_000_000
_FLUSH_NS = 20_000_000
_ANSWERS_AT_ONCE = 8
_SENDS_AT_ONCE = 32
"""Jobs without a time that are begun between two looks at the sockets, for the same reason."""
_FIRST_BACKOFF_NS = 50_000_000
_LONGEST_BACKOFF_NS = 1_000_000_000


class Worker:
    """One process's streams."""

    def __init__(self, setup: w.WorkerSetup, channel: Channel, poller: Poller) -> None:
        self._setup = setup
        self._channel = channel
        self._poller = poller
        self._pool = Pool(setup, poller)
        self._untimed: deque[Job] = deque()
        self._timed: list[tuple[int, int, Job]] = []
        self._answers: list[w.Answered] = []
        self._in_flight = 0
        self._waits = SlotWaits.told_by(setup.refusal)
        self._last = self._draining = self._cut = False
        self._stop_ns = 0
        self._clock = WallClock()
        self._next_housekeeping_ns = 0
        self._next_flush_ns = 0
        self._paused_until_ns = self._backoff_ns = 0
        self._receiver = Receiver(self._pool, self._clock, self)
        self._at_once = _ANSWERS_AT_ONCE
        self._in_seconds = sys.platform == "linux"  # epoll's timeout; poll's is in milliseconds

    def run(self) -> None:
        """Open connections, wait for the start, send until there is nothing left."""
        failure = self._pool.open_first(self._setup.connections)
        self._channel.send(w.Ready(self._pool.opened, failure, self._pool.stamp_reason).message())
        start_ns = self._wait_for_start()
        if start_ns is None:
            return
        if self._setup.stop_ns:
            self._stop_ns = start_ns + self._setup.stop_ns
        gc.collect()
        gc.freeze()
        gc.disable()
        cpu_ns = time.process_time_ns()
        time.sleep(max(0, start_ns - time.monotonic_ns() - _LEAD_NS) / 1e9)
        while time.monotonic_ns() < start_ns:
            pass
        self._pool.started = True
        self._loop()
        self._finish(time.process_time_ns() - cpu_ns)

    def _wait_for_start(self) -> int | None:
        while not self._channel.closed:
            select.select([self._channel], [], [], 1.0)
            start_ns = None
            for message in self._channel.receive():
                if message[0] == w.START:
                    start_ns = cast(int, message[1])
                else:
                    self.take(message)
            if start_ns is not None:
                return start_ns
        return None

    def _loop(self) -> None:
        monotonic_ns, poll, timed = time.monotonic_ns, self._poller.poll, self._timed
        channel, waits = self._channel, self._waits
        channel_fd = channel.fileno()
        while not self._over():
            now = monotonic_ns()
            if timed and timed[0][0] - now <= _LEAD_NS:
                self._send_due()
            if now >= waits.next_ns:
                waits.wake(now)
            more = bool(self._untimed) and self._fill_slots()
            more = self._receiver.settle_some() or more
            ready = poll(0 if more else self._rest(monotonic_ns()))
            if ready:
                self._receiver.read(ready)
                if any(fd == channel_fd for fd, _ in ready):
                    self._hear()
            now = monotonic_ns()
            # A chore must not make a send late, unless sends leave it no time at all.
            spare = not timed or timed[0][0] - now > _SPARE_NS
            if now >= self._next_housekeeping_ns + (0 if spare else _OVERDUE_NS):
                self._keep_house(now)
            if self._answers and (
                self._setup.eager or now >= self._next_flush_ns + (0 if spare else _OVERDUE_NS)
            ):
                self._hand_over(now)
            if channel.pending:
                channel.flush()
            if timed and spare and not self._draining:
                self._pool.keep_spares(self._in_flight)

    def _rest(self, now: int) -> float:
        """How long the poll may wait. A wait that ends within a millisecond is slept here: poll
        rounds it up."""
        wake = self._next_housekeeping_ns
        if self._waits.next_ns < wake:
            wake = self._waits.next_ns
        if self._answers:
            wake = min(wake, self._next_flush_ns)
        if self._channel.pending:
            wake = min(wake, now + _MS)
        if self._timed:
            due_ns = self._timed[0][0] - _LEAD_NS
            if due_ns - now < _MS:
                if due_ns > now:
                    time.sleep((due_ns - now) / 1e9)
                return 0
            wake = min(wake, due_ns - _MS)
        if window_ns := self._receiver.window_ns:
            time.sleep(min(window_ns, max(0, wake - now)) / 1e9)
            return 0
        milliseconds = max(0, wake - now) // _MS
        return milliseconds / 1e3 if self._in_seconds else milliseconds

    def _over(self) -> bool:
        if self._channel.closed or self._cut:
            return True
        if self._in_flight or self._timed:
            return False
        stopped = bool(self._stop_ns) and time.monotonic_ns() >= self._stop_ns
        # A conversation's question with a time before the end may still be on its way here.
        if self._draining or (stopped and not self._setup.eager):
            return True
        return self._last and (stopped or not self._untimed)

    # Sending

    def _send_due(self) -> None:
        """Send every job whose time has come; spin for one whose time is about to."""
        timed, monotonic_ns = self._timed, time.monotonic_ns
        while timed and timed[0][0] - monotonic_ns() <= _LEAD_NS:
            due_ns, _, job = heapq.heappop(timed)
            while monotonic_ns() < due_ns:
                pass
            if self._in_flight >= self._setup.most_in_flight:
                reason = f"{self._in_flight} requests were in flight, the most allowed"
                self._not_sent(job, RequestOutcome.DROPPED, reason)
            elif monotonic_ns() - due_ns > self._setup.timeout_ns:
                self._not_sent(job, RequestOutcome.DROPPED, "its time was past by the timeout")
            else:
                self._begin(job)

    def _fill_slots(self) -> bool:
        """Begin jobs without a time while there is a slot; whether more could be begun now."""
        for _ in range(_SENDS_AT_ONCE):
            slots = self._setup.slots
            if not self._untimed or self._in_flight >= slots:
                return False
            if self._in_flight + len(self._waits) >= slots:
                return False
            now = time.monotonic_ns()
            ended = self._stop_ns and now >= self._stop_ns
            if ended or self._draining or now < self._paused_until_ns:
                return False
            job = self._untimed.popleft()
            job.refusals = self._waits.refusals()
            self._begin(job)
        return True

    def _begin(self, job: Job) -> None:
        """Send on an idle connection, or open one for it."""
        connection = self._pool.idle()
        if connection is None:
            self._open_for(job)
            return
        self._in_flight += 1
        self._send(connection, job)

    def _open_for(self, job: Job) -> None:
        """It waits for its connection from now on, unless it had to be sent before."""
        job.due_ns = job.due_ns or time.monotonic_ns()
        try:
            self._pool.open(job)
        except FailedRequestError as failure:
            self._not_sent(job, failure.outcome, str(failure))
            return
        self._in_flight += 1

    def _send(self, connection: Connection, job: Job) -> None:
        connection.job = job
        connection.state = State.BUSY
        connection.sent_ns = connection.started_ns = time.monotonic_ns()
        try:
            connection.send(job.request)
        except FailedRequestError as failure:
            self.failed(connection, failure.outcome, str(failure))

    # What became of requests

    def answered(self, connection: Connection, ended_ns: int, closed: bool) -> None:
        """The answer is whole: its slot is free."""
        self._receiver.forget(connection)
        self._answers.append(connection.answered(ended_ns, None, ""))
        self._in_flight -= 1
        self._backoff_ns = 0
        job, framing = connection.job, connection.framing
        if job is not None:
            self._waits.refused(framing.status, framing.headers, connection.body, job.refusals)
        self._pool.answered(connection, closed)
        if self._untimed:
            self._fill_slots()

    def writable(self, connection: Connection) -> None:
        """More of its request can be sent. Raises FailedRequestError."""
        connection.push()

    def opened(self, connection: Connection) -> None:
        """It is open: send what it was opened for."""
        job = connection.job
        if job is None:
            self._pool.give_back(connection)
        else:
            self._send(connection, job)

    def failed(self, connection: Connection, outcome: RequestOutcome, reason: str) -> None:
        """End the connection and with it its request, unless that is sent once more."""
        self._receiver.take_rest(connection)
        job, never_sent = connection.job, connection.state in (State.CONNECTING, State.HANDSHAKE)
        if job is None:
            self._pool.discard_spare(connection)
            return
        self._pool.discard(connection)
        self._in_flight -= 1
        lost = outcome is RequestOutcome.CONNECTION_RESET and connection.kept_in_vain
        self._pool.ended += lost
        if lost and not job.first_sent_ns:
            job.first_sent_ns = connection.sent_ns
            job.due_ns = job.due_ns or connection.sent_ns
            self._open_for(job)
        elif never_sent:
            self._not_sent(job, outcome, reason)
        else:
            now = time.monotonic_ns()
            self._answers.append(connection.answered(now, outcome, reason))
            if connection.head_ns is None:
                self._back_off(now)

    def _not_sent(self, job: Job, outcome: RequestOutcome, reason: str) -> None:
        now = time.monotonic_ns()
        times = (job.due_ns or now, job.first_sent_ns)
        nothing = (True, 0, b"", b"", b"", b"", 0)
        again = int(job.first_sent_ns > 0)
        self._answers.append((job.number, *times, *nothing, now, outcome.value, reason, again))
        if outcome is not RequestOutcome.DROPPED:
            self._back_off(now)

    def _back_off(self, now: int) -> None:
        """A server that refuses is not to be asked as quickly as it refuses."""
        self._backoff_ns = min(max(_FIRST_BACKOFF_NS, 2 * self._backoff_ns), _LONGEST_BACKOFF_NS)
        self._paused_until_ns = now + self._backoff_ns

    # What is done now and then

    def _keep_house(self, now: int) -> None:
        """Timeouts, the clock's offset, the memory that answers take."""
        self._receiver.settle_all()
        self._receiver.choose_window(now, self._in_flight)
        self._next_housekeeping_ns = now + min(_HOUSEKEEPING_NS, self._setup.timeout_ns // 10)
        self._clock.read()
        timeout_ns = self._setup.timeout_ns
        held_bytes = self._channel.pending_bytes + sum(len(one[8]) for one in self._answers)
        for connection in list(self._pool.connections.values()):
            held_bytes += len(connection.body)
            if connection.job is not None and now - connection.started_ns > timeout_ns:
                self._time_out(connection)
            elif connection.state in (State.CONNECTING, State.HANDSHAKE) and (
                now - connection.started_ns > timeout_ns
            ):
                self._pool.discard(connection)
        self._hold_less(held_bytes)

    def _hold_less(self, held_bytes: int) -> None:
        """Fail the largest answers in flight, and forget them, until the rest may be held."""
        most_bytes = self._setup.most_held_bytes
        self._at_once = _ANSWERS_AT_ONCE if 2 * held_bytes < most_bytes else 1
        if held_bytes <= most_bytes:
            return
        reason = f"more than {most_bytes >> 20} MiB of answers were held at once, the most allowed"
        reason += ", and of those in flight this was the largest"
        for connection in sorted(self._pool.connections.values(), key=lambda one: -len(one.body)):
            if held_bytes <= most_bytes or connection.job is None:
                return
            held_bytes -= len(connection.body)
            connection.drop()
            self.failed(connection, RequestOutcome.PROTOCOL, reason)

    def _time_out(self, connection: Connection) -> None:
        seconds = f"{self._setup.timeout_ns / 1e9:g} s"
        if connection.state is not State.BUSY:
            what = f"no connection within {seconds}"
        elif connection.head_ns is None:
            what = f"no answer within {seconds}"
        else:
            what = f"the answer was not whole within {seconds}"
        if connection.state is State.BUSY:
            self._pool.give_up()
        self.failed(connection, RequestOutcome.TIMEOUT, what)

    def _hear(self) -> None:
        for message in self._channel.receive():
            self.take(message)

    def take(self, message: Message) -> None:
        """Do what the driver says."""
        match message:
            case (w.JOBS, list(jobs)):
                for number, due_ns, request in cast(list[w.JobFields], jobs):
                    job = Job(number, due_ns, request)
                    if due_ns:
                        heapq.heappush(self._timed, (due_ns, number, job))
                    else:
                        self._untimed.append(job)
            case (w.LAST,):
                self._last = True
            case (w.DRAIN,):
                self._draining = True
                self._timed.clear()
                self._untimed.clear()
            case (w.CUT,):
                self._cut = True

    def _hand_over(self, now: int) -> None:
        """A few answers: while they are packed, nothing is read, and arrivals would share one
        read and with it one stamp."""
        self._channel.send((w.ANSWERS, self._answers[: self._at_once]))
        del self._answers[: self._at_once]
        if not self._answers:
            self._next_flush_ns = now + _FLUSH_NS

    def _finish(self, cpu_ns: int) -> None:
        """Hand the rest over, wait until it is taken, and end."""
        self._receiver.settle_all()
        for connection in list(self._pool.connections.values()):
            reason = "the load was ended while it was in flight"
            self.failed(connection, RequestOutcome.CUT_OFF, reason)
        while self._answers:
            self._hand_over(time.monotonic_ns())
        self._clock.read()
        self._waits.end(time.monotonic_ns())
        self._channel.send(
            w.Done(
                cpu_ns=cpu_ns,
                peak_bytes=_peak_bytes(),
                clock_step_ns=self._clock.furthest_step_ns,
                opened=self._pool.opened,
                reopened=self._pool.reopened,
                user_stamped=self._receiver.user_stamped,
                waits=astuple(self._waits.over),
            ).message()
        )
        while not self._channel.closed and not self._channel.flush():
            select.select([], [self._channel], [], 1.0)


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # in KiB on Linux

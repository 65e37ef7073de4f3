"""The kernel's receive timestamps on the monotonic clock: the client and the null server that it
is measured against read the same ones, so a mistake here would show in neither."""

from __future__ import annotations

import select
import socket
import sys
import time

import pytest

from tgi_bench import kernel_stamps
from tgi_bench.kernel_stamps import ANCILLARY_BYTES, WallClock, ask_for_stamps, unpack_stamp

_SLACK_NS = 1_000_000_000
"""Far below a mistake in a unit, a sign or a clock, far above what any machine takes."""


@pytest.mark.skipif(sys.platform != "linux", reason="SO_TIMESTAMPNS is Linux's")
def test_a_stamp_lies_between_send_and_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert ask_for_stamps(listener) == ""  # accepted sockets inherit it
        with socket.create_connection(listener.getsockname()) as sender:
            receiver, _ = listener.accept()
            with receiver:
                clock = WallClock()
                for _ in range(1000):
                    before_ns = time.monotonic_ns()
                    sender.send(b"x")
                    select.select([receiver], [], [])
                    _, ancillary, _, _ = receiver.recvmsg(16, ANCILLARY_BYTES)
                    after_ns = time.monotonic_ns()
                    if ancillary:
                        break
                    time.sleep(0.001)  # the kernel begins to stamp a moment after it is asked to
    [(level, kind, data)] = ancillary
    assert (level, kind) == (socket.SOL_SOCKET, kernel_stamps.SO_TIMESTAMPNS)
    seconds, nanoseconds = unpack_stamp(data)
    arrival_ns = seconds * 1_000_000_000 + nanoseconds + clock.offset_ns
    assert before_ns - _SLACK_NS <= arrival_ns <= after_ns + _SLACK_NS


def test_the_wall_clock_is_followed_through_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic_ns", lambda: 1000)
    wall = [5000, 4990, 5030, 5010]
    seen = []
    monkeypatch.setattr(time, "time_ns", lambda: wall[0])
    clock = WallClock()
    for _ in wall:
        clock.read()
        seen.append((clock.offset_ns, clock.furthest_step_ns))
        wall.append(wall.pop(0))
    # Monotonic less wall clock; and the furthest that it was from the first one.
    assert seen == [(-4000, 0), (-3990, 10), (-4030, -30), (-4010, -30)]


def test_of_several_readings_the_tightest_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    # Pairs of before and after: 100, 10 and 50 ns wide, then as wide as the first.
    ticks = iter([0, 100, 200, 210, 300, 350, *range(400, 100_000, 100)])
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(ticks))
    monkeypatch.setattr(time, "time_ns", lambda: 1)
    assert WallClock().offset_ns == 205 - 1


def test_a_system_without_stamps_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with socket.socket() as sock:
        assert ask_for_stamps(sock) == "darwin has no SO_TIMESTAMPNS"

"""SIGKILL at 40 drawn moments; `python -m tests.sweep.kills --kills 500` makes them more."""

from __future__ import annotations

from tests.sweep.kills import killed


def test_whatever_the_moment_of_a_kill_nothing_is_lost_doubled_or_left() -> None:
    tally = killed(40, seed=1)
    assert tally.wrong == []
    assert tally.kills == 40

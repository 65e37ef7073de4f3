"""SIGKILL at 40 drawn moments; `python -m tests.sweep.kills --kills 500` makes them more."""

from __future__ import annotations

import pytest

from tests.sweep.kills import killed


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_the_moment_of_a_kill_nothing_is_lost_doubled_or_left(seed: int) -> None:
    tally = killed(20, seed)
    assert tally.wrong == []
    assert tally.kills == 20

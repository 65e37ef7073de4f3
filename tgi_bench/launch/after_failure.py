"""What a failed step or load says of its server: whether it goes on, and what its log adds.

A launcher says why a shard ended some 0.1 s after the clients saw it, and ends itself seconds
later: each of these waits a moment, and no longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tgi_bench.launch.launcher import Death, RunningServer
from tgi_bench.observation import Outcome, TrialEnd

_DEATH_SHOWS_S = 1.0
"""A shard that answers and then exits does so within 0.5 s; its launcher notices after that."""
_LOG_WORD_S = 2.0
_LOOK_S = 0.05
_CUT_OFF = (Outcome.SHARD_DIED, Outcome.FAILED)
"""How steps end that another rank's death ends: the connection goes, or a collective fails."""


def found_dead(server: RunningServer, since: int, within_s: float | None = None) -> Death | None:
    """Its death, looked for that long; None where it lives on. since: as RunningServer.death."""
    deadline = time.monotonic() + (_DEATH_SHOWS_S if within_s is None else within_s)
    while (death := server.death(since)) is None and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    return death


def usable(server: RunningServer, since: int, answers: Callable[[], bool]) -> bool:
    """Whether a server that failed a step goes on: a shard may answer and exit right after.

    answers: whether its ranks answer a call that computes nothing.
    """
    return found_dead(server, since) is None and answers()


def explained(end: TrialEnd, server: RunningServer, since: int) -> TrialEnd:
    """The end of a trial whose server died, with what its log says: a rank's own reply may only
    be that it was cut off."""
    death = found_dead(server, since, _LOG_WORD_S)
    if death is None:
        return end
    outcome = end.outcome
    if outcome in _CUT_OFF and death.outcome is not Outcome.SERVER_DIED:
        outcome = death.outcome
    if outcome is Outcome.OUT_OF_MEMORY and end.outcome is outcome:
        return end  # the rank's own words say more
    return TrialEnd(outcome, f"{end.reason}; {death.cause}")


def end_of_load(death: Death) -> TrialEnd:
    """The end of a load whose server died. A device's memory that ran out is a batch's result;
    a load asks for no batch, so that to it the server just died of it."""
    host = death.outcome is Outcome.HOST_OUT_OF_MEMORY
    return TrialEnd(death.outcome if host else Outcome.SERVER_DIED, death.cause)

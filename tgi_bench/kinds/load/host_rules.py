"""Whether other programs on a server's machine left it its CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tgi_bench.analysis.rules import Check, Rule, Seen, apply, listed
from tgi_bench.kinds.load.figures import LoadRow
from tgi_bench.load_observation import ServerHost, Untold

MOST_WAITING = 0.15
"""Of the server's threads, on average. On 2 cores output tokens/s fell by at most 5 % with 0.25 and
by 20 to 40 % with 0.6, of a server that computes all the time and of one that mostly sleeps."""
LEAST_TAKEN = 0.05
"""Of the server's own CPU time. Less cannot slow it by more, however long its threads wait: they
wait for each other where there are more of them than cores."""
LEAST_SEEN = 0.3
"""Of the server's CPU time: what the threads whose waits are known must have had."""
_PROXIES = frozenset({"litellm"})
"""Engines that hand on to a server: what it computes is not theirs."""
_WORDS = {
    Untold.ELSEWHERE: "the server is another machine's",
    Untold.UNSEEN: "no process that this user may look into listens at its address",
    Untold.FORWARDED: "what listens at its address works with another server",
    Untold.OWN_PROCESS: "it is a part of the client's process",
    Untold.ENDED: "its processes ended",
    Untold.SYSTEM: "the system does not count how long its threads wait for a core",
}


def host_checks(rows: Sequence[LoadRow]) -> tuple[Check, ...]:
    """One check, over these stages."""
    why = dict.fromkeys(_WORDS[found] for row in rows if (found := _untold(row)) is not None)
    rule = replace(ALONE, unmade=listed(list(why))) if why else ALONE
    return (apply(rule, rows),)


def others_ns(host: ServerHost) -> int | None:
    """CPU time of all programs but the client and the server, of the latter where it is known.

    Virtual machines beside this one are others too. None where the kernel does not say.
    """
    if host.busy_ns is None:
        return None
    server_ns = 0 if host.server is None else host.server.cpu_ns
    return max(0, host.busy_ns - host.client_ns - server_ns)


def others_text(host: ServerHost) -> str | None:
    """ "0.42 of 2 cores"; None where the kernel does not say."""
    others = others_ns(host)
    if others is None or host.wall_ns <= 0:
        return None
    return f"{others / host.wall_ns:.2f} of {host.cores} cores"


def waiting_for_others(host: ServerHost) -> float | None:
    """How many of the server's threads waited, on average, for a core that others had.

    waited / wall x others / busy: threads also wait for this client and for each other, and each
    has its part in that as it has in all that was computed. waited is of all threads: those that
    were seen waited as long for each second of running as the rest did.
    None where it is not told, or most of the server's threads ended before they were seen.
    """
    others, server = others_ns(host), host.server
    if others is None or server is None or not host.busy_ns or host.wall_ns <= 0:
        return None
    if server.ran_ns <= 0 or server.ran_ns < LEAST_SEEN * server.cpu_ns:
        return None
    waited_ns = server.waited_ns * max(1.0, server.cpu_ns / server.ran_ns)
    return waited_ns / host.wall_ns * others / host.busy_ns


def _alone(row: LoadRow) -> Seen | None:
    host = row.stage.stage.conditions.host
    if _untold(row) is not None:
        return None
    if host is None or host.server is None or (waiting := waiting_for_others(host)) is None:
        return None
    text = (
        f"{waiting:.2f} of its threads waited for them on average, limit {MOST_WAITING}; they took "
        f"{others_text(host)}, the server {host.server.cpu_ns / host.wall_ns:.2f}, this client "
        f"{host.client_ns / host.wall_ns:.2f}"
    )
    taken = (others_ns(host) or 0) > LEAST_TAKEN * host.server.cpu_ns
    return Seen(waiting > MOST_WAITING and taken, waiting, text)


def _untold(row: LoadRow) -> Untold | None:
    conditions = row.stage.stage.conditions
    if conditions.host is None:
        return None
    if conditions.host.server is not None and conditions.engine in _PROXIES:
        return Untold.FORWARDED  # whether or not its connection to the other server was seen
    return conditions.host.untold


ALONE = Rule(
    "other programs left the server its CPU",
    _alone,
    "the machine's CPU was not looked at",
    "end the other programs on the server's machine (`top` lists them), or keep them on other "
    "cores (`taskset`), then measure again",
)

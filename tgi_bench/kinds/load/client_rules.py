"""Whether the client was fit to measure, and what its acknowledgements held back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tgi_bench.analysis.rules import Check, Rule, Seen, apply
from tgi_bench.analysis.samples import LoadDistribution
from tgi_bench.kinds.load.figures import LoadRow, time_text
from tgi_bench.kinds.load.host_rules import others_text
from tgi_bench.kinds.load.metrics import closed_loop, split_metric
from tgi_bench.load_observation import ClientFloor, SmallWrites

LEAST_HELD_NS = 10_000_000
LEAST_HELD_SHARE = 0.20
"""Of the control requests' TTFT: what differs by less may be chance."""
MOST_HELD_SHARE = 0.10
"""Of the load's median TTFT."""
_LATER = 1.25
"""A first token so much later after its head than the control's waited for its own step."""
QUICKACK = "set load.quickack: true"


def held_ns(found: SmallWrites) -> float:
    """Of a control request's first token; 0 where nothing waits that could be seen."""
    return _difference_ns(found) if found.apart else 0.0


def _difference_ns(found: SmallWrites) -> float:
    """Of the medians; 0 where it is small."""
    if found.quickack_ttft_ns is None:
        return 0.0
    held = found.ttft_ns - found.quickack_ttft_ns
    return held if held > max(LEAST_HELD_NS, LEAST_HELD_SHARE * found.ttft_ns) else 0.0


def held_in_load_ns(found: SmallWrites) -> float:
    """Of the load's median first token, at most.

    The acknowledgement of the answer's head comes so long after it whatever happens: a first token
    that its own step makes later than that waits for nothing.
    """
    after_ns = found.load_after_head_ns
    if after_ns is not None and after_ns > _LATER * found.after_head_ns:
        return 0.0
    return held_ns(found)


def held_text(found: SmallWrites) -> str:
    """What the control requests told; "" where nothing waits."""
    held = held_ns(found)
    if not held or found.quickack_ttft_ns is None:
        return ""
    most, ttft, quick = (time_text(ns) for ns in (held, found.ttft_ns, found.quickack_ttft_ns))
    text = (
        "the server writes small pieces and waits for acknowledgements: alone, a first token took "
        f"{ttft}, and {quick} where reads were acknowledged at once"
    )
    after_ns = found.load_after_head_ns
    if not held_in_load_ns(found) and after_ns is not None:
        return f"{text}; this load's came {time_text(after_ns)} after their heads, so none waited"
    return f"{text}: up to {most} of TTFT is the connection's, not the model's"


def _held_back(row: LoadRow) -> Seen | None:
    if not row.load.trial.stream or row.stage.ttft is None:
        return None
    if row.load.trial.quickack:
        return Seen(False, 0.0, "reads were acknowledged at once (load.quickack)")
    found = row.stage.stage.conditions.small_writes
    if found is None or _too_unlike(found):
        return None
    p50_ns = row.stage.ttft.p50.value
    held = held_in_load_ns(found)
    text = held_text(found) or f"a first token alone took {time_text(found.ttft_ns)}, none of it so"
    if held:
        text += f", of {time_text(p50_ns)} (p50)"
    return Seen(held > MOST_HELD_SHARE * p50_ns, held / p50_ns if p50_ns else 0.0, text)


def _too_unlike(found: SmallWrites) -> bool:
    return bool(_difference_ns(found)) and not found.apart


def check_held_back(rows: Sequence[LoadRow]) -> Check:
    """Whether much of TTFT is such a wait; where no row tells, why."""
    return apply(replace(HELD_BACK, unmade=_unmade(rows)), rows)


def _unmade(rows: Sequence[LoadRow]) -> str:
    streamed = [row for row in rows if row.load.trial.stream and row.stage.ttft is not None]
    if not streamed:
        return HELD_BACK.unmade
    if any(row.stage.stage.conditions.small_writes is not None for row in streamed):
        return "control requests were too unlike each other to compare"
    return "no control requests were answered within a second on one kept-alive connection"


HELD_BACK: Rule[LoadRow] = Rule(
    f"waiting for acknowledgements is at most {MOST_HELD_SHARE:.0%} of TTFT",
    _held_back,
    "nothing was streamed",
    f"{QUICKACK}, or let the server, or the proxy before it, set TCP_NODELAY",
)


MOST_LAG_NS = 1_000_000
MOST_LAG_SHARE = 0.10
"""Of the median TTFT: TTFT is counted from the intended time, so a lag is part of it."""
MOST_MOVED = 0.01
"""Of a figure: what is less is less than what other causes move it by."""
MOST_CPU = 0.80
"""Of one core. A process nearer to it than that makes events wait at times."""
MOST_WAITED = 0.10
"""Of the time of a load: a process without a core sends late and reads late."""
IDLE_CPU = 0.50
"""Of one core: a process with less to do was not what others waited for."""
MOST_REOPENED = 0.01
"""Of the requests: with more, p99 of TTFT has connections being opened in it."""
MOST_CLOCK_STEP_NS = 1_000_000
MOST_SHARED = 0.05
"""Of the events: those that share a read have one arrival, and gaps of 0 between them."""
MOST_ERROR = 0.10
"""The client's own error against the figure of the same percentile."""
_OWN_ERROR = "the client's own error is small against what it measured"
_OWN_ERROR_REMEDY = (
    "run on Linux, where arrivals are stamped by the kernel; raise load.workers, and keep the "
    "client's machine quiet; `tgi-bench selfcheck` shows the error"
)


def client_checks(rows: Sequence[LoadRow], floors: Sequence[ClientFloor]) -> tuple[Check, ...]:
    """Every check of the client, over these stages."""
    own_error: Rule[LoadRow] = Rule(
        _OWN_ERROR,
        lambda row: _own_error(row, floors),
        "no error of such a client was measured beside this run",
        _OWN_ERROR_REMEDY,
        of_client=True,
    )
    before = (CPU, WAITED, SEND_LAG, own_error, CLOCK, REOPENED)
    return (*(apply(rule, rows) for rule in before), check_held_back(rows), apply(SHARED, rows))


def _send_lag(row: LoadRow) -> Seen | None:
    """p99 (the highest below 100 requests) against 1 ms, or a share of the median TTFT or E2E; bad
    where it is more, and where it is more than MOST_MOVED of some figure that is printed."""
    lag, first = row.stage.send_lag, row.stage.ttft or row.stage.e2e
    # Of conversations it is of the sends that had a time alone.
    if lag is None or (closed_loop(row.load.trial) and row.load.trial.workload.turns is None):
        return None
    most = float(MOST_LAG_NS)
    if first is not None:
        most = min(most, MOST_LAG_SHARE * first.p50.value)
    value, name = (lag.highest, "highest") if lag.p99 is None else (lag.p99.value, "p99")
    text = f"{name} send lag {time_text(value)}, limit {time_text(most)}"
    moved = row.stage.lag_moves
    if moved is not None:
        metric, statistic = split_metric(moved.figure)
        text += f"; of {metric.upper()} {statistic} it is {moved.share:.1%}, of others less"
    host = row.stage.stage.conditions.host
    others = None if host is None else others_text(host)
    if others is not None:
        text += f"; other programs took {others}"
    bad = value > most and (moved is None or moved.share > MOST_MOVED)
    return Seen(bad, value, text + (workers_text(row) if bad else ""), late_remedy(row))


def late_remedy(row: LoadRow) -> str:
    """What mends requests that waited in the client, by who was busy meanwhile; "" where that is
    not known."""
    shares = cpu_shares(row)
    if shares is None:
        return ""
    worker, parent = shares
    if worker > IDLE_CPU:
        return "raise load.workers, or ask for a lower load.rate or load.concurrency"
    if parent > IDLE_CPU:
        return (
            "lower load.rate or load.concurrency, or make prompts shorter: the process that makes "
            "the requests was the busy one, and more workers would wait for it too"
        )
    return (
        "leave fewer processes on the client's machine, or give it more cores: the load's workers "
        "were idle, so that more of them would be late too"
    )


def workers_text(row: LoadRow) -> str:
    """What the busiest worker took, for the finding of what late_remedy mends; "" if not known."""
    shares = cpu_shares(row)
    return "" if shares is None else f"; the busiest worker took {shares[0]:.0%} of a core"


def cpu_shares(row: LoadRow) -> tuple[float, float] | None:
    """Of a core: the busiest worker's, and the parent's; None where no stage lasted."""
    client = row.stage.client
    if client.wall_ns <= 0:
        return None
    worker = max(client.worker_cpu_ns, default=0) / client.wall_ns
    return worker, client.parent_cpu_ns / client.wall_ns


def _cpu(row: LoadRow) -> Seen | None:
    shares = cpu_shares(row)
    if shares is None:
        return None
    worker, parent = shares
    text = f"worker {worker:.0%}, parent {parent:.0%}"
    return Seen(max(shares) > MOST_CPU, max(shares), text)


def _waited(row: LoadRow) -> Seen | None:
    host, wall_ns = row.stage.stage.conditions.host, row.stage.client.wall_ns
    if host is None or host.client_waited_ns is None or wall_ns <= 0:
        return None
    share = host.client_waited_ns / wall_ns
    text = f"worker or parent waited {share:.0%} of {time_text(wall_ns)}"
    return Seen(share > MOST_WAITED, share, text)


def _reopened(row: LoadRow) -> Seen | None:
    """More than MOST_REOPENED is bad where the waits for them move a percentile by MOST_MOVED.

    A server may close a connection after each answer (HTTP/1.0, `Connection: close`; llama.cpp
    after each stream, without a word), so that every request opens one. That is how it serves its
    users too, and TTFT and E2E hold the wait as theirs do: from when the request could have gone
    out to when it went out on a connection that answered. Figures are wrong only as figures of
    the model, and only as far as that wait is a part of them; on loopback it is some 0.1 ms. Each
    percentile is compared with what it is without the waits, for a few of them move p99 alone.
    Where the waits are not known, more than MOST_REOPENED is bad. Not of a load that was cut off:
    a server that died kept no connection.
    """
    if row.load.cut_off(row.stage):
        return None
    requests = sum(count for _, count in row.stage.by_part)
    if not requests:
        return None
    share = row.stage.client.connections_reopened / requests
    text = f"{row.stage.client.connections_reopened} reopened in {requests} requests"
    found = row.stage.reopening
    if found is None or found.moved is None:
        return Seen(share > MOST_REOPENED, share, text)
    of = "E2E" if row.stage.ttft is None else "TTFT"
    text += f", {found.resent} of them sent again" if found.resent else ""
    text += f"; waits of {time_text(found.wait_p50_ns)} (p50) move {of} by {found.moved:.1%}"
    return Seen(share > MOST_REOPENED and found.moved > MOST_MOVED, found.moved, text)


def _clock(row: LoadRow) -> Seen | None:
    """Kernel stamps are of the wall clock and calibrated against the monotonic one."""
    if not row.stage.client.kernel_stamps:
        return None
    step = abs(row.stage.client.clock_step_ns)
    return Seen(step > MOST_CLOCK_STEP_NS, step, f"moved by {time_text(step)}")


def _shared(row: LoadRow) -> Seen | None:
    if not row.load.trial.stream or not row.stage.events:
        return None
    share = row.stage.shared_reads / row.stage.events
    found = row.stage.stage.conditions.small_writes
    waits = found is not None and held_ns(found) > 0 and not row.load.trial.quickack
    remedy = f"{QUICKACK}: the server holds events back until others are acknowledged"
    text = f"{share:.1%} shared one with the event before"
    return Seen(share > MOST_SHARED, share, text, remedy if waits else "")


def _own_error(row: LoadRow, floors: Sequence[ClientFloor]) -> Seen | None:
    """p50 and p99 of the floor's errors against p50 and p99 of ITL and TTFT; the largest share."""
    floor = _floor_for(row, floors)
    if floor is None:
        return None
    shares = [
        (error / value, f"{metric} {name} {time_text(value)}, error {time_text(error)}")
        for metric, figures, errors in (
            ("ITL", row.stage.itl, floor.itl_error_ns),
            ("TTFT", row.stage.ttft, floor.ttft_error_ns),
        )
        if figures is not None and errors is not None
        for name, value, error in _alike(figures, errors)
        if value > 0
    ]
    if not shares:
        return None
    share, text = max(shares, key=lambda found: found[0])
    return Seen(share > MOST_ERROR, share, f"{text} ({share:.1%})")


def _alike(
    figures: LoadDistribution, errors: tuple[float, float, float]
) -> list[tuple[str, float, float]]:
    """(percentile, figure, error) in ns."""
    pairs = [("p50", figures.p50.value, errors[0])]
    if figures.p99 is not None:
        pairs.append(("p99", figures.p99.value, errors[2]))
    return pairs


def _floor_for(row: LoadRow, floors: Sequence[ClientFloor]) -> ClientFloor | None:
    """Of those with paced events and the same kind of stamps: the fewest streams that are enough.

    The one with the most streams where none has enough.
    """
    stamps = row.stage.client.kernel_stamps
    fit = sorted(
        (f for f in floors if f.interval_ns > 0 and f.kernel_stamps is stamps),
        key=lambda floor: floor.streams,
    )
    wanted = row.stage.concurrency or 0.0
    enough = [floor for floor in fit if floor.streams >= wanted]
    return enough[0] if enough else next(reversed(fit), None)


SEND_LAG = Rule(
    "loads send on time",
    _send_lag,
    "a closed loop has no schedule: each request is sent when the one before it ended, but for "
    "those of conversations with think time",
    "raise load.workers, ask for a lower load.rate, or leave fewer processes on the client's "
    "machine",
    of_client=True,
)
CPU = Rule(
    f"the client's processes take at most {MOST_CPU:.0%} of a core each",
    _cpu,
    "no stage lasted",
    "raise load.workers; where the parent process is the busy one, lower load.rate or "
    "load.concurrency, or make prompts shorter",
    of_client=True,
)
WAITED = Rule(
    f"the client waited for a core at most {MOST_WAITED:.0%} of the time",
    _waited,
    "the system does not count how long the client's processes wait for a core",
    "keep the server and other programs off one core (`taskset`), or send from another machine",
    of_client=True,
)
REOPENED = Rule(
    "connections were kept open",
    _reopened,
    "no request was sent",
    "let the server, or the proxy before it, keep connections alive for longer and for more "
    "requests, or name the server's own address in server.url; where the server itself closes each "
    "(llama.cpp does after a stream), read service TTFT, which holds no wait for a connection, or "
    "make prompts so long that the wait is small against TTFT",
)
CLOCK = Rule(
    "the clock did not step",
    _clock,
    "arrivals were stamped by the monotonic clock, which does not step",
    "let the machine's time synchronisation settle, then measure again",
    of_client=True,
)
SHARED = Rule(
    "events came in reads of their own",
    _shared,
    "no events were streamed",
    "turn off response buffering in the proxy before the server or name the server's own address "
    "in server.url; where the client was busy, raise load.workers",
)

"""The load client's own error: what it saw against what a null server says that it sent.

Both are of one machine and so of one monotonic clock, in ns. Errors are absolute values.

TTFT error: |(t_1 - sent) - (first send - request's arrival)|, one a request. ITL error:
|(t_k - t_(k-1)) - (send_k - send_(k-1))|, one a gap, k >= 2. Start lateness: sent - intended.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tgi_bench.analysis.samples import nearest_rank
from tgi_bench.load_observation import (
    ClientFloor,
    LoadPart,
    LoadStage,
    RequestObservation,
    RequestOutcome,
)

PERCENTS = (50, 90, 99)
Percentiles = tuple[float, float, float]
"""At p50, p90 and p99, by nearest rank."""


@dataclass(frozen=True, slots=True)
class ServerSends:
    """What a null server says of one request.

    request_id: as its header x-request-id gave it. arrival_ns: when the whole request had
    arrived. event_ns: just before each event was sent.
    """

    request_id: str
    arrival_ns: int
    event_ns: array[int]


def request_id(observation: RequestObservation) -> str:
    """The x-request-id that the client gives a request: "<stage>-<request_index>"."""
    return f"{observation.stage}-{observation.request_index}"


@dataclass(frozen=True, slots=True)
class ClientErrors:
    """Errors of the measured requests whose events the server's log has, one by one.

    compared: how many. missing: answered requests that the log lacks; differing: those with
    another number of events than it says. failed: measured requests that were not answered,
    those that the client itself cut off at the end left out.
    itl_ns: empty where no request has two events. lateness_ns: of every measured request sent.
    """

    compared: int
    missing: int
    differing: int
    failed: int
    ttft_ns: NDArray[np.int64]
    itl_ns: NDArray[np.int64]
    lateness_ns: NDArray[np.int64]

    @property
    def agrees(self) -> bool:
        """Whether client and server tell of the same events, and every request was answered."""
        return self.compared > 0 and not (self.missing or self.differing or self.failed)


def client_errors(
    requests: Sequence[RequestObservation], sends: Sequence[ServerSends]
) -> ClientErrors:
    """Compare measured requests with the server's log, by id; an id that comes twice raises
    ValueError: nothing could be said of either."""
    logged = {entry.request_id: entry for entry in sends}
    if len(logged) != len(sends):
        raise ValueError("the null server's log has one x-request-id twice")
    measured = [r for r in requests if r.part is LoadPart.MEASURED]
    answered = [r for r in measured if r.outcome is RequestOutcome.OK]
    pairs = [(r, logged[request_id(r)]) for r in answered if request_id(r) in logged]
    same = [(r, entry) for r, entry in pairs if 0 < len(r.event_ns) == len(entry.event_ns)]
    cut_off = sum(r.outcome is RequestOutcome.CUT_OFF for r in measured)
    return ClientErrors(
        compared=len(same),
        missing=len(answered) - len(pairs),
        differing=len(pairs) - len(same),
        failed=len(measured) - len(answered) - cut_off,
        ttft_ns=_joined([_ttft_error(r, entry) for r, entry in same]),
        itl_ns=_joined([_itl_error(r, entry) for r, entry in same]),
        lateness_ns=_of([r.sent_ns - r.intended_ns for r in measured if r.sent_ns is not None]),
    )


def _ttft_error(request: RequestObservation, entry: ServerSends) -> NDArray[np.int64]:
    if request.sent_ns is None:
        raise ValueError(f"request {entry.request_id} was answered and never sent")
    seen_ns = request.event_ns[0] - request.sent_ns
    return _distances(_of([seen_ns]), _of([entry.event_ns[0] - entry.arrival_ns]))


def _itl_error(request: RequestObservation, entry: ServerSends) -> NDArray[np.int64]:
    return _distances(_gaps(request.event_ns), _gaps(entry.event_ns))


def _gaps(times_ns: array[int]) -> NDArray[np.int64]:
    times = _of(times_ns)
    return times[1:] - times[:-1]


def _distances(ours: NDArray[np.int64], theirs: NDArray[np.int64]) -> NDArray[np.int64]:
    distances: NDArray[np.int64] = np.abs(ours - theirs)
    return distances


def _of(numbers: Sequence[int] | array[int]) -> NDArray[np.int64]:
    return np.asarray(numbers, dtype=np.int64)


def _joined(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate(parts) if parts else _of([])


def percentiles(samples: Sequence[int] | NDArray[np.int64]) -> Percentiles | None:
    """p50, p90 and p99 by nearest rank; None for no samples."""
    if not len(samples):
        return None
    ordered: list[int] = np.sort(samples).tolist()
    p50, p90, p99 = (float(nearest_rank(ordered, percent)) for percent in PERCENTS)
    return p50, p90, p99


def most_in_flight(requests: Sequence[RequestObservation]) -> int:
    """How many requests were sent and not yet ended at once, at most."""
    changes = [(r.sent_ns, 1) for r in requests if r.sent_ns is not None]
    changes += [(r.ended_ns, -1) for r in requests if r.sent_ns is not None]
    now = most = 0
    for _, change in sorted(changes):  # of one time, ends come first
        now += change
        most = max(most, now)
    return most


@dataclass(frozen=True, slots=True)
class NullLoad:
    """What was asked of a null server. interval_ns: between a stream's events; 0: none."""

    streams: int
    interval_ns: int


def client_floor(
    load: NullLoad,
    stage: LoadStage,
    requests: Sequence[RequestObservation],
    errors: ClientErrors,
) -> ClientFloor:
    """The client's error in one stage; ValueError where no request could be compared.

    events, events_per_s and cpu_ns_per_event are of every event of the stage, from its first
    intended send to its last answer; the CPU time is that of all client processes.
    itl_error_ns is None without an interval: gaps are then the transport's, not the server's.
    """
    ttft = percentiles(errors.ttft_ns)
    events = sum(len(r.event_ns) for r in requests)
    took_ns = stage.ended_ns - stage.began_ns
    if ttft is None or not events or took_ns <= 0:
        raise ValueError("no request of this load could be compared with the null server's log")
    client = stage.client
    is_open = stage.concurrency is None
    return ClientFloor(
        streams=load.streams,
        interval_ns=load.interval_ns,
        events=events,
        events_per_s=events / (took_ns / 1e9),
        cpu_ns_per_event=(sum(client.worker_cpu_ns) + client.parent_cpu_ns) / events,
        ttft_error_ns=ttft,
        itl_error_ns=percentiles(errors.itl_ns) if load.interval_ns else None,
        start_lateness_ns=percentiles(errors.lateness_ns) if is_open else None,
        kernel_stamps=client.kernel_stamps,
    )

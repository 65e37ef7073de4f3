"""Loads for tests: requests with times chosen by hand."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tgi_bench.load_observation import (
    ClientFacts,
    LoadPart,
    LoadStage,
    RequestObservation,
    RequestOutcome,
    TokenSource,
)
from tgi_bench.sections.section import Sampling
from tgi_bench.trials.load import (
    ClosedLoop,
    Extent,
    Fixed,
    LoadTrial,
    OpenLoop,
    Process,
    Workload,
)

MS = 1_000_000
S = 1_000 * MS

CLIENT = ClientFacts(
    workers=2,
    worker_cpu_ns=(S, S),
    parent_cpu_ns=S,
    wall_ns=10 * S,
    kernel_stamps=True,
    stamp_reason="",
    clock_step_ns=0,
    connections_opened=8,
    connections_reopened=0,
)
STAGE = LoadStage(
    index=0,
    concurrency=8,
    rate_per_s=None,
    repeat=0,
    began_ns=0,
    ended_ns=10 * S,
    measured_from_ns=0,
    measured_until_ns=10 * S,
    dialect="tgi",
    client=CLIENT,
)
CLOSED = LoadTrial(
    trial_id="num_shard-1/load-c8",
    deployment_id="num_shard-1",
    spoken="tgi",
    stream=True,
    workload=Workload(Fixed(100), Fixed(4), None, None, None, 0),
    arrivals=ClosedLoop(8),
    extent=Extent(10 * S, None, 0, 0, 0, 0, None),
    slos=(),
    find=None,
    sampling=Sampling(False, None, None, None, None, None, False),
    request_timeout_ns=60 * S,
    max_in_flight=None,
    workers=None,
    tokenizer=None,
)
OPEN = replace(
    CLOSED,
    trial_id="num_shard-1/load-r10",
    arrivals=OpenLoop(10.0, (), Process.CONSTANT, 1.0, 0),
)
OPEN_STAGE = replace(STAGE, concurrency=None, rate_per_s=10.0)


@dataclass(frozen=True, slots=True)
class Timing:
    """Of one request in ns: lag and first from intended, then a gap before each other event."""

    intended_ns: int
    first_ns: int
    gaps_ns: Sequence[int] = ()
    lag_ns: int = 0
    tail_ns: int = 0


def request(
    index: int, timing: Timing, tokens: Sequence[int] | None = None, **changes: object
) -> RequestObservation:
    """One that ended OK, with one token in each event unless tokens says otherwise."""
    times = [timing.intended_ns + timing.first_ns]
    for gap in timing.gaps_ns:
        times.append(times[-1] + gap)
    carried = list(tokens) if tokens is not None else [1] * len(times)
    seen = RequestObservation(
        stage=0,
        request_index=index,
        worker=0,
        part=LoadPart.MEASURED,
        conversation=index,
        turn=0,
        intended_ns=timing.intended_ns,
        sent_ns=timing.intended_ns + timing.lag_ns,
        ended_ns=times[-1] + timing.tail_ns,
        event_ns=array("q", times),
        event_tokens=array("i", carried),
        events=len(times),
        shared_reads=0,
        prompt_tokens_asked=100,
        prompt_tokens=100,
        cached_tokens=None,
        output_tokens_asked=sum(carried),
        output_tokens=sum(carried),
        counted_by=TokenSource.SERVER,
        finish_reason="length",
        status=200,
        new_connection=False,
        kernel_stamps=True,
        outcome=RequestOutcome.OK,
        reason="",
    )
    return replace(seen, **changes)  # type: ignore[arg-type]


def unsent(index: int, intended_ns: int) -> RequestObservation:
    """A dropped one."""
    return request(
        index,
        Timing(intended_ns, 0),
        sent_ns=None,
        event_ns=array("q"),
        event_tokens=array("i"),
        events=0,
        output_tokens=0,
        prompt_tokens=None,
        finish_reason=None,
        status=None,
        outcome=RequestOutcome.DROPPED,
        reason="too many in flight",
    )


def lane(lanes: int, each_ns: int, until_ns: int) -> list[RequestObservation]:
    """A closed loop: `lanes` at a time, each request takes each_ns in four equal events."""
    part = each_ns // 4
    return [
        request(n * lanes + k, Timing(n * each_ns, part, (part,) * 3))
        for n in range(until_ns // each_ns)
        for k in range(lanes)
    ]

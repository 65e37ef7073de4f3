"""One load over HTTP: workers are started and fed, their answers read as they come.

The workers keep the time; this process makes the requests ahead of it and reads what came back,
and may be late with both without moving a send or an arrival.
"""

from __future__ import annotations

import gc
from dataclasses import replace
from urllib.parse import urlsplit

from tgi_bench.dialects.answer import OVERLOAD
from tgi_bench.drive import channel as w
from tgi_bench.drive.load_stage import Stage, shares
from tgi_bench.drive.preparation import LoadTarget, Prepared, prepare
from tgi_bench.drive.server_host import HostWatch
from tgi_bench.drive.stage import Listener, StageAsk
from tgi_bench.drive.workers import Ahead, cores, started, wait_until_ready
from tgi_bench.load_observation import LoadStage, RequestObservation
from tgi_bench.trials.load import Arrivals, ClosedLoop, LoadTrial, OpenLoop, TraceTimes

_STREAMS_A_WORKER = 1024
_RATE_A_WORKER = 2000.0
_LEAST_CONNECTIONS = 16
_MOST_CONNECTIONS = 512
_UNLIMITED = 2**31 - 1
_MOST_HELD_BYTES = 1 << 30
"""Of answers, over all workers: a hostile server must not fill the memory."""


def run_stage(
    prepared: Prepared, ask: StageAsk, listener: Listener, ahead: Ahead | None = None
) -> LoadStage:
    """Send one load and record every request of it. ahead: workers that wait already.

    Raises StepError where a worker process ends early; what was recorded stays. A
    KeyboardInterrupt passes through, after what is in flight was cut off and recorded.
    """
    before = None if prepared.cache_counted is None else prepared.cache_counted()
    setups = _setups(prepared, ask.arrivals, listener.kernel_stamps)
    collecting = gc.isenabled()
    gc.disable()
    try:
        host = HostWatch(prepared.url)  # first: a connection must not wait for it once it is open
        with started(setups, ahead) as workers:
            ready = wait_until_ready(workers, prepared.trial.request_timeout_ns / 1e9)
            stage = Stage(prepared, ask, listener, workers, host).run(ready)
    finally:
        if collecting:
            gc.enable()
    if before is None or prepared.cache_counted is None:
        return stage
    from tgi_bench.dialects.metrics import between

    cache = between(before, prepared.cache_counted())
    return replace(stage, conditions=replace(stage.conditions, cache=cache))


def run_load(url: str, trial: LoadTrial) -> tuple[LoadStage, list[RequestObservation]]:
    """One load to a server of unknown kind, and its requests by their index; without control
    requests, for a null server writes each piece at once.

    Raises InputError and StepError as `prepare` and `run_stage`.
    """
    prepared = prepare(LoadTarget(url, "", "auto"), trial, control=False)
    seen: list[RequestObservation] = []
    listener = Listener(record=seen.extend, progress=lambda _: None)
    stage = run_stage(prepared, StageAsk(0, 0, trial.arrivals), listener)
    return stage, sorted(seen, key=lambda request: request.request_index)


def _setups(prepared: Prepared, arrivals: Arrivals, kernel_stamps: bool) -> list[w.WorkerSetup]:
    trial = prepared.trial
    url = urlsplit(prepared.url)
    count = _worker_count(trial, arrivals)
    closed = isinstance(arrivals, ClosedLoop)
    talking = trial.workload.turns is not None
    streams = min(_first_connections(arrivals), trial.max_in_flight or _UNLIMITED)
    extent = trial.extent
    stop_ns = 0
    if extent.duration_ns is not None and closed:
        stop_ns = extent.warmup_ns + extent.duration_ns + extent.cooldown_ns
    return [
        w.WorkerSetup(
            host=url.hostname or "",
            port=url.port or (443 if url.scheme == "https" else 80),
            server_name=url.hostname or "",
            tls=url.scheme == "https",
            verify=prepared.verify_tls,
            slots=share if closed else 0,
            connections=share,
            stop_ns=stop_ns,
            timeout_ns=trial.request_timeout_ns,
            most_in_flight=-(-(trial.max_in_flight or _UNLIMITED) // count),
            eager=talking,
            kernel_stamps=kernel_stamps,
            most_held_bytes=_MOST_HELD_BYTES // count,
            # A user of conversations waits by the feeder's word.
            refusal=OVERLOAD if closed and not talking else b"",
            quickack=trial.quickack,
        )
        for share in shares(streams, count)
    ]


def _first_connections(arrivals: Arrivals) -> int:
    """One for each stream; where sends have times, what two seconds of them may need."""
    match arrivals:
        case ClosedLoop(concurrency):
            return concurrency
        case OpenLoop(rate_per_s=None, parts=parts):
            rate = max(max(part.from_rate_per_s, part.to_rate_per_s) for part in parts)
        case OpenLoop(rate_per_s=rate_per_s):
            rate = rate_per_s or 0.0
        case TraceTimes():
            rate = 0.0
    return min(max(2 * round(rate), _LEAST_CONNECTIONS), _MOST_CONNECTIONS)


def _worker_count(trial: LoadTrial, arrivals: Arrivals) -> int:
    """As asked; else as many as the load needs, and one core less than there are.

    Never more than there are streams: one without a stream would keep its requests for ever.
    """
    if trial.workers is not None:
        streams = arrivals.concurrency if isinstance(arrivals, ClosedLoop) else trial.workers
        return min(trial.workers, streams)
    match arrivals:
        case ClosedLoop(concurrency):
            needed = -(-concurrency // _STREAMS_A_WORKER)
        case OpenLoop(rate_per_s=rate) if rate is not None:
            needed = int(-(-rate // _RATE_A_WORKER))
        case _:
            needed = 1
    return max(1, min(needed, cores() - 1))
